"""Ctrl-C and SIGTERM, sent to real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.harness import SCRIPT, done
from tests.runs.small import SET_TINY

# Long enough to be met in the middle.
SETTINGS = [*SET_TINY, "--set", "max_steps=300"]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(scope="module")
def whole(ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    path = tmp_path_factory.mktemp("whole") / "run"
    done("train", ratings, "--out", path, *SETTINGS)
    return path


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


class Process:
    """A command that is running."""

    def __init__(self, words: list[object], cwd: Path) -> None:
        self._process = subprocess.Popen(
            [*map(str, words)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(60_000):
            if is_so() or self._process.poll() is not None:
                return
            time.sleep(0.002)
        raise AssertionError("it takes too long")

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Exit code and what it said on standard error."""
        out, err = self._process.communicate(timeout=120)
        assert out == ""
        assert "Traceback" not in err
        assert "Exception ignored" not in err
        return self._process.returncode, err


def is_training(run: Path) -> Callable[[], bool]:
    metrics = run / "metrics.jsonl"
    return lambda: metrics.is_file() and metrics.read_text("utf-8").count("\n") >= 3


@pytest.mark.parametrize("number", CODES)
def test_a_signal_ends_training_after_the_step_and_says_how_to_go_on(
    ratings: Path, whole: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process = Process([*SCRIPT, "train", ratings, "--out", "run", *SETTINGS], tmp_path)
    process.wait_until(is_training(tmp_path / "run"))
    process.send(number)
    code, err = process.end()
    assert code == CODES[number]
    *_, notice, last = err.splitlines()
    assert notice == "Stopping after this minibatch; once more to stop at once."
    assert last.startswith("cfuica: Training was stopped after step ")
    assert last.endswith(" and is kept; go on with:  cfuica train --resume run")
    done("train", "--resume", tmp_path / "run")
    assert weights(tmp_path / "run") == weights(whole)


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("times", [2, 8])
def test_more_signals_end_at_once_and_cost_no_checkpoint(
    ratings: Path, whole: Path, tmp_path: Path, number: signal.Signals, times: int
) -> None:
    options = ["--checkpoint-every", "0"]
    process = Process([*SCRIPT, "train", ratings, "--out", "run", *SETTINGS, *options], tmp_path)
    process.wait_until(is_training(tmp_path / "run"))
    for _ in range(times):
        process.send(number)
        time.sleep(0.005)
    code, err = process.end()
    assert code == CODES[number]
    last = err.splitlines()[-1]
    assert last.startswith("cfuica: Training was stopped a")  # "after step ..." or "at once"
    assert last.endswith("with:  cfuica train --resume run")
    done("train", "--resume", tmp_path / "run")
    assert weights(tmp_path / "run") == weights(whole)


WAITING = """
import sys, time
from pathlib import Path
import {module} as place
from cfuica.cli import main
def wait(*arguments, **options):
    Path("waiting").touch()
    time.sleep(60)
place.{name} = wait
sys.argv[0] = "cfuica"
main()
"""


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize(
    ("module", "name"), [("cfuica.cli.parts", "parts_of"), ("cfuica.runs.job", "keep_inputs")]
)
def test_a_signal_before_training_leaves_no_folder(
    ratings: Path, tmp_path: Path, number: signal.Signals, module: str, name: str
) -> None:
    """While the data is read, or while it is put aside for resuming."""
    script = [sys.executable, "-c", WAITING.format(module=module, name=name)]
    process = Process([*script, "train", ratings, "--out", "run", *SETTINGS], tmp_path)
    process.wait_until((tmp_path / "waiting").exists)
    process.send(number)
    code, err = process.end()
    assert code == CODES[number]
    assert err.splitlines()[-1] in ("cfuica: Interrupted.", "cfuica: Terminated.")
    assert not (tmp_path / "run").exists()
