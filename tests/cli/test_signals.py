"""Ctrl-C and SIGTERM, sent to real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.harness import SCRIPT, done
from tests.runs.small import SET_TINY

# Long enough to be met in the middle.
SETTINGS = [*SET_TINY, "--set", "max_steps=150"]
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


def each_signal(one: Callable[[signal.Signals, Path], tuple[int, str]], folder: Path) -> list[str]:
    """Have a process meet each signal, all of them at the same time, each in a folder of its own;
    what they said on standard error."""
    folders = [folder / number.name for number in CODES]
    for each in folders:
        each.mkdir()
    with ThreadPoolExecutor() as pool:
        ends = list(pool.map(one, CODES, folders))
    assert [code for code, _ in ends] == list(CODES.values()), ends
    return [err for _, err in ends]


def test_a_signal_ends_training_after_the_step_and_says_how_to_go_on(
    ratings: Path, whole: Path, tmp_path: Path
) -> None:
    def stop(number: signal.Signals, folder: Path) -> tuple[int, str]:
        process = Process([*SCRIPT, "train", ratings, "--out", "run", *SETTINGS], folder)
        process.wait_until(is_training(folder / "run"))
        process.send(number)
        return process.end()

    for err in each_signal(stop, tmp_path):
        *_, notice, last = err.splitlines()
        assert notice == "Stopping after this minibatch; once more to stop at once."
        assert last.startswith("cfuica: Training was stopped after step ")
        assert last.endswith(" and is kept; go on with:  cfuica train --resume run")
    for number in CODES:
        done("train", "--resume", tmp_path / number.name / "run")
        assert weights(tmp_path / number.name / "run") == weights(whole)


@pytest.mark.parametrize("times", [2, 8])
def test_more_signals_end_at_once_and_lose_no_checkpoint(
    ratings: Path, whole: Path, tmp_path: Path, times: int
) -> None:
    options = ["--checkpoint-every", "0"]

    def stop(number: signal.Signals, folder: Path) -> tuple[int, str]:
        process = Process([*SCRIPT, "train", ratings, "--out", "run", *SETTINGS, *options], folder)
        process.wait_until(is_training(folder / "run"))
        for _ in range(times):
            process.send(number)
            time.sleep(0.005)
        return process.end()

    for err in each_signal(stop, tmp_path):
        last = err.splitlines()[-1]
        assert last.startswith("cfuica: Training was stopped a")  # "after step ..." or "at once"
        assert last.endswith("with:  cfuica train --resume run")
    for number in CODES:
        done("train", "--resume", tmp_path / number.name / "run")
        assert weights(tmp_path / number.name / "run") == weights(whole)


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


@pytest.mark.parametrize(
    ("module", "name"), [("cfuica.runs.inputs", "read_split"), ("cfuica.runs.run", "save_inputs")]
)
def test_a_signal_before_training_leaves_no_folder(
    ratings: Path, tmp_path: Path, module: str, name: str
) -> None:
    """While the data is read, or while it is put aside for resuming."""
    script = [sys.executable, "-c", WAITING.format(module=module, name=name)]

    def stop(number: signal.Signals, folder: Path) -> tuple[int, str]:
        process = Process([*script, "train", ratings, "--out", "run", *SETTINGS], folder)
        process.wait_until((folder / "waiting").exists)
        process.send(number)
        return process.end()

    last = [err.splitlines()[-1] for err in each_signal(stop, tmp_path)]
    assert last == ["cfuica: Interrupted.", "cfuica: Terminated."]
    for number in CODES:
        assert not (tmp_path / number.name / "run").exists()


LATE = """
import os, signal, sys
import cfuica.runs.inputs as place
from cfuica.cli import main
from cfuica.errors import Interrupted
def stopped(*arguments, **options):
    try:
        raise Interrupted("Training was stopped; what it has is kept", signal.SIGTERM)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
place.read_split = stopped
sys.argv[0] = "cfuica"
main()
"""


def test_a_signal_while_a_stop_is_on_its_way_hides_no_sentence(
    ratings: Path, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", LATE, "train", ratings, "--out", "run", *SETTINGS]
    code, err = Process(words, tmp_path).end()
    assert code == CODES[signal.SIGTERM]
    assert err.splitlines()[-1] == "cfuica: Training was stopped; what it has is kept"


def test_of_two_trainings_into_one_folder_one_is_refused_and_the_other_is_whole(
    ratings: Path, whole: Path, tmp_path: Path
) -> None:
    words = [*SCRIPT, "train", ratings, "--out", tmp_path / "run", *SETTINGS]
    first, second = (Process(words, tmp_path) for _ in range(2))
    ends = [first.end(), second.end()]
    assert sorted(code for code, _ in ends) == [0, 1], ends
    refusal = next(err for code, err in ends if code == 1)
    # The latter where the other has ended already.
    assert "Another process is training in" in refusal or "is not empty" in refusal, refusal
    assert weights(tmp_path / "run") == weights(whole)
