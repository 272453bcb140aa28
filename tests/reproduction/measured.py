"""A reproduction whose cells are finished without having been run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from cfuica.reproduction.cells import FAILED, Cell, CellFolder
from cfuica.reproduction.plan import Plan
from cfuica.run_folder import FINISHED

USERS = 30


def plan_in(path: Path, **given: Any) -> Plan:
    """A plan on the embedded data, whose folder is there."""
    folder = CellFolder(path)
    with folder.held():
        pass
    return Plan(folder, **{"data": "demo", **given})


def finish(folder: CellFolder, cell: Cell, scores: Mapping[str, float], **more: Any) -> None:
    """Write a cell down as if it had these scores, by metric; every user has the same."""
    answers: dict[str, Any] = {}
    for question in cell.questions:
        answers[question] = {name: value for name, value in scores.items() if name == "rmse"}
        answers[question] |= {n: {"value": v} for n, v in scores.items() if n != "rmse"}
        answers[question]["seconds"] = 0.25
        columns = {name: [value] * USERS for name, value in scores.items()}
        frame = pl.DataFrame({"user": range(USERS), "n": [2] * USERS, **columns})
        frame.write_parquet(folder.users(cell, question))
    training = {"seconds": 90.0, "steps": 10, "parameters": 1234, "peak_memory_gb": 1.5}
    own = {"answers": answers, "training": training} | more
    write(folder, cell, status=FINISHED, **own)


def fail(folder: CellFolder, cell: Cell, reason: str) -> None:
    """Write a cell down as if it had failed."""
    write(folder, cell, status=FAILED, reason=reason)


def write(folder: CellFolder, cell: Cell, **more: Any) -> None:
    record = {"definition": cell.definition, "title": cell.title, "fold": cell.fold}
    record |= {"seed": cell.seed, "seconds": 100.0, "cpu_seconds": 80.0, "date": "2026-11-18"}
    record |= {"curve": [[30.0, 1.0], [60.0, 0.9]], "data": {"sha256": "d1" * 32, "users": 100}}
    record |= {"machine": {"cpu": "a CPU", "cores": 2}, "versions": {"torch": "2.x"}}
    folder._write(cell, {**record, **more})
