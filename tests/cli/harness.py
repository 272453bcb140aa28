"""Run a command in this process as the console script does, or in one of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from cfuica.cli import main

SCRIPT = [sys.executable, "-c", "from cfuica.cli import main; main()"]


@dataclass(frozen=True)
class Outcome:
    """What a command left on its streams, and its exit code."""

    code: int
    out: str
    err: str


def run(*arguments: object) -> Outcome:
    """`cfuica ARGUMENTS`."""
    words = ["cfuica", *map(str, arguments)]
    code: object = 0
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
        patch.object(sys, "argv", words),
        patch.object(sys, "unraisablehook", sys.unraisablehook),
    ):
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code or 0
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    assert isinstance(code, int)
    return Outcome(code, out.getvalue(), err.getvalue())


def done(*arguments: object) -> Outcome:
    """A command that must succeed."""
    outcome = run(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def refused(*arguments: object, code: int = 1) -> str:
    """The one sentence that a command must end with when it cannot do what was asked."""
    outcome = run(*arguments)
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    return sentence(outcome.err)


def sentence(err: str) -> str:
    """The last line, which must be one of ours; before it only what training says of itself."""
    *before, last = err.splitlines()
    assert last.startswith("cfuica: ")
    assert last.endswith(".")
    assert all(line.startswith(("Training on ", "The size ", "step ")) for line in before), err
    return last


def in_a_process(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`cfuica ARGUMENTS` with real pipes."""
    return subprocess.run(
        [*SCRIPT, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )
