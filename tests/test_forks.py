"""Models in processes that were forked, as by gunicorn --preload, Celery and multiprocessing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes and their children answered: one trained, the other only loaded."""
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    home = tmp_path_factory.mktemp("forked")
    for how in ("fitted", "loaded"):
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.forked", str(home), how],
            env={**os.environ, "CFUICA_THREADS": "3"},
            check=True,
            timeout=180,
        )
    return home


def of_child(home: Path, how: str, kind: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((home / f"{how}-{kind}.json").read_text())
    return found


@pytest.mark.parametrize("kind", ["fork", "multiprocessing"])
@pytest.mark.parametrize("how", ["fitted", "loaded"])
def test_a_forked_process_answers_as_its_parent(home: Path, how: str, kind: str) -> None:
    assert of_child(home, how, kind)["answers"] == json.loads((home / f"{how}.json").read_text())


def test_after_a_fork_of_a_process_that_only_loaded_everything_works(home: Path) -> None:
    assert of_child(home, "loaded", "fork")["refused"] == {}


def test_what_cannot_work_after_a_fork_is_refused_in_a_sentence(home: Path) -> None:
    refused = of_child(home, "fitted", "fork")["refused"]
    assert len(refused) == 6
    for sentence in refused.values():
        assert "needs the threads of polars, which this process lost when it was forked" in sentence
