"""How a download shows on a terminal and in a pipe."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from cfuica.cli import data
from cfuica.cli.data import progress_of


def _shown(*, terminal: bool) -> str:
    stream = StringIO()
    console = Console(file=stream, force_terminal=terminal, width=60, color_system=None)
    with progress_of(console, "bytes") as callbacks:
        callbacks.message(
            "Downloading [https://x] to somewhere with a name so long that it needs two."
        )
        for done in (0, 1_000_000, 2_000_000, 5_900_000):
            callbacks.progress(done, 5_900_000)
    return stream.getvalue()


def test_a_pipe_gets_plain_lines_and_few_of_them() -> None:
    sentence, last = _shown(terminal=False).splitlines()
    assert sentence.endswith("[https://x] to somewhere with a name so long that it needs two.")
    assert last == "5.9 of 5.9 MB"


def test_a_pipe_hears_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "SECONDS_BETWEEN_LINES", 0.0)
    assert _shown(terminal=False).splitlines()[1:3] == ["0.0 of 5.9 MB", "1.0 of 5.9 MB"]


def test_a_terminal_gets_a_bar() -> None:
    shown = _shown(terminal=True)
    assert "━" in shown
    assert "5.9/5.9 MB" in shown


def test_a_server_that_does_not_say_how_much_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data, "SECONDS_BETWEEN_LINES", 0.0)
    for terminal in (False, True):
        stream = StringIO()
        with progress_of(
            Console(file=stream, force_terminal=terminal, width=60), "bytes"
        ) as callbacks:
            callbacks.progress(1_200_000, None)
        assert "1.2" in stream.getvalue()
