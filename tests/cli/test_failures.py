"""What becomes of errors that no command expects."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import cfuica.models.recommender
from tests.cli.harness import SCRIPT, refused, run


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PermissionError(13, "Permission denied", "model.json"), 1, "Permission denied (model.js"),
        (OSError("odd"), 1, "The system refused: odd."),
        (MemoryError(), 1, "not enough memory"),
        (ZeroDivisionError("by zero"), 70, "An unexpected ZeroDivisionError: by zero. This is a"),
    ],
)
def test_every_failure_is_one_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, message: str
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.delenv("CFUICA_DEBUG", raising=False)
    monkeypatch.setattr(cfuica.models.recommender, "load", fail)
    assert message in refused("recommend", "run", "--user", "1", code=code)


def test_a_bug_shows_where_it_is_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setenv("CFUICA_DEBUG", "1")
    monkeypatch.setattr(cfuica.models.recommender, "load", fail)
    with pytest.raises(ZeroDivisionError):
        run("recommend", "run", "--user", "1")


def test_a_reader_that_goes_away_is_no_failure_to_speak_of(trained: Path) -> None:
    words = [*SCRIPT, "recommend", str(trained), "--user", "3", "--include-seen", "-n", "60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
