"""What a report is made of: rows with their cells, and sections of tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from cfuica.reporting.report import Table
from cfuica.reproduction.cells import FAILED, Cell, CellFolder
from cfuica.reproduction.paired import Key

DASH = "–"


@dataclass(frozen=True)
class Row:
    """A system in a table: its published figures, and its cells over folds and seeds."""

    name: str
    title: str
    origin: str
    published: Mapping[str, tuple[float, ...]]
    cells: Sequence[Cell]
    why_not: str | None  # why it cannot be run
    base: str  # the name of the system that it is or is a variant of
    x: int | None = None  # where it is in a figure

    def finished(self, folder: CellFolder) -> dict[Key, dict[str, Any]]:
        """The records of its finished cells, by fold and seed."""
        found = {(cell.fold, cell.seed): folder.finished(cell) for cell in self.cells}
        return {key: record for key, record in found.items() if record is not None}

    def missing(self, folder: CellFolder) -> str:
        """Why there is no figure."""
        if self.why_not:
            return f"not run: {self.why_not}"
        records = filter(None, map(folder.ended, self.cells))
        failed = [record["reason"] for record in records if record["status"] == FAILED]
        return f"failed: {failed[0]}" if failed else "not measured yet"


@dataclass
class Section:
    """Tables, and charts as SVG by their titles."""

    tables: list[Table] = field(default_factory=list)
    charts: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: Section) -> Section:
        return Section([*self.tables, *other.tables], {**self.charts, **other.charts})


def figure(value: float | None, form: str = ".4f") -> str:
    """A number with four digits behind the point."""
    return DASH if value is None else format(value, form)


def scores(record: Mapping[str, Any]) -> str:
    """The figures of a finished cell: RMSE, or HR@10 / NDCG@10 by each protocol."""
    found = []
    for question, answer in record["answers"].items():
        if "rmse" in answer:
            found.append(f"RMSE {figure(answer['rmse'])}")
        elif "ndcg@10" in answer:
            pair = (figure(answer[name]["value"]) for name in ("hr@10", "ndcg@10"))
            found.append(f"{question} {' / '.join(pair)}")
    return ", ".join(found)


def resources(record: Mapping[str, Any]) -> tuple[float, float | None, float] | None:
    """Seconds and CPU seconds of the training of a finished cell, and its peak memory in GB; None
    where nothing was trained. A system that ran elsewhere brings its own, prediction included."""
    if "training" in record:
        trained = record["training"]
        return trained["seconds"], record["cpu_seconds"], trained["peak_memory_gb"]
    used = record["definition"]["settings"]
    if "cpu_seconds" not in used:
        return None
    return used["seconds"], used["cpu_seconds"], used["peak_gb"]


def mean_resources(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Mean time, mean CPU time and largest memory of the trainings, as three cells of a table."""
    found = [each for each in map(resources, records) if each is not None]
    if not found:
        return [DASH] * 3
    seconds, of_processor, peaks = zip(*found, strict=True)
    processor = [each for each in of_processor if each is not None]
    mean = duration(fmean(processor)) if processor else DASH
    return [duration(fmean(seconds)), mean, f"{max(peaks):.2f} GB"]


def folds_and_seeds(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The folds of these records, and their seeds, as two cells of a table."""
    places = ({each[name] for each in records} - {None} for name in ("fold", "seed"))
    return [", ".join(map(str, sorted(each))) or DASH for each in places]


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads best."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
