"""Runs of the command line that the benchmarks share: train unless it is done, and evaluate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from cfuica.cli import main; main()"]


def train(run: Path, arguments: list[str]) -> dict[str, Any]:
    """`cfuica train` into a run folder: what is stopped is resumed, what is finished is left.

    Returns what the run says of its training.
    """
    record = run / "run.json"
    status = json.loads(record.read_text("utf-8"))["status"] if record.is_file() else None
    if status == "training":
        subprocess.run([*COMMAND, "train", "--resume", str(run)], check=True)
    elif status != "finished":
        subprocess.run(
            [*COMMAND, "train", *arguments, "--out", str(run), "--overwrite"], check=True
        )
    training: dict[str, Any] = json.loads(record.read_text("utf-8"))["training"]
    return training


def evaluate(run: Path, *arguments: str) -> dict[str, Any]:
    """What `cfuica evaluate --json` says."""
    answer = subprocess.run(
        [*COMMAND, "evaluate", str(run), "--json", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    scores: dict[str, Any] = json.loads(answer.stdout)
    return scores


def changed(changes: list[str]) -> tuple[str, list[str]]:
    """Settings as part of a folder's name, and as arguments."""
    name = "".join(f"-{change}" for change in changes)
    return name, [part for change in changes for part in ("--set", change)]
