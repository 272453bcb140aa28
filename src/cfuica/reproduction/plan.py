"""What to reproduce on, and where: data, folds, seeds and the folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cfuica.data.datasets import DEMO, RELEASES, find, located
from cfuica.data.movielens import NcfTest, find_ncf
from cfuica.errors import SettingsError
from cfuica.io import content_of, sha256_of_file, write_text_atomically
from cfuica.reproduction import systems
from cfuica.reproduction.cells import Cell, CellFolder
from cfuica.reproduction.paired import Key
from cfuica.reproduction.sections import Row
from cfuica.reproduction.systems import ML_1M, System

QUICK_DATA = "ml-100k"
# What a peer's process used, of its result.json.
_USED = ("seconds", "cpu_seconds", "peak_gb")


@dataclass(frozen=True)
class Plan:
    """What to reproduce on: data, folds and seeds."""

    folder: CellFolder
    data: str = ML_1M
    netflix: str | None = None  # A file or folder of its ratings.
    folds: tuple[int, ...] = (1,)
    seeds: tuple[int, ...] = (0,)
    quick: bool = False

    @classmethod
    def of(cls, folder: CellFolder, *, quick: bool, netflix: str | None, **given: Any) -> Plan:
        """With the data of a quick reproduction, if none is given. What is not there is refused."""
        if quick and netflix:
            raise SettingsError("--quick is for small data; leave --netflix out.")
        if quick and given["data"] is None:
            given["data"] = QUICK_DATA if located(QUICK_DATA) else DEMO
        given["data"] = given["data"] or ML_1M
        if bad := [fold for fold in given["folds"] if fold >= systems.FOLDS]:
            raise SettingsError(
                f"--folds has {bad[0]}, but the folds are 0 to {systems.FOLDS - 1}."
            )
        for data in filter(None, (given["data"], netflix)):
            find(data)
        return cls(folder, quick=quick, netflix=netflix, **given)

    def shown(self, names: Sequence[str]) -> tuple[Plan, list[str]]:
        """What the report is to show: with the file of Netflix that was given last, all tables and
        figures that were ever asked for in the folder. Other data is refused."""
        path, earlier = self.folder.path / "reproduction.json", {}
        with suppress(OSError, ValueError, TypeError):
            earlier = dict(json.loads(path.read_text("utf-8")))
        own = {"data": self.label, "quick": self.quick}
        if any(earlier.get(name, value) != value for name, value in own.items()):
            quick = " --quick" if earlier.get("quick") else ""
            raise SettingsError(
                f"{self.folder.path} is a reproduction of --data {earlier.get('data')}{quick}, and "
                f"this command is of --data {self.label}{' --quick' * self.quick}; choose another "
                f"--out."
            )
        netflix = earlier.get("netflix")
        if self.netflix:
            netflix = str((find(self.netflix) or Path(self.netflix)).absolute())
        names = list(dict.fromkeys([*earlier.get("what", ()), *names]))
        record = {**own, "netflix": netflix, "what": names}
        write_text_atomically(path, json.dumps(record, indent=1) + "\n")
        is_there = netflix is not None and located(netflix) is not None
        return replace(self, netflix=netflix if is_there else None), names

    def widened(self) -> Plan:
        """With the folds and seeds of everything that was measured in the folder before."""
        records = list(self.folder.records())
        folds, seeds = ({record[name] for record in records} for name in ("fold", "seed"))
        # Those of the plan come first: some figures have the first fold alone.
        every = dict.fromkeys([*self.folds, *sorted(folds - {None})])
        return replace(
            self, folds=tuple(every), seeds=tuple(dict.fromkeys([*self.seeds, *sorted(seeds)]))
        )

    @property
    def label(self) -> str:
        """The data in names of files."""
        return self.data if self.data in (*RELEASES, DEMO) else Path(self.data).name

    @cached_property
    def ncf(self) -> NcfTest | None:
        """NCF's test set, where it is of this data and there."""
        return find_ncf() if self.data == ML_1M else None

    @property
    def protocols(self) -> tuple[str, ...]:
        """Those by which rankings of this data are tested: the paper's needs times."""
        if self.ncf is not None:
            return ("ncf", "paper", "full")
        return ("paper", "full") if self.data in (*RELEASES, DEMO) else ("full",)

    def content(self, data: str, task: str) -> str:
        """A hash of what trainings read: a test by NCF's protocol keeps its items out of them."""
        places = [located(data)]
        if task == "ranking" and self.ncf is not None:
            places.append(self.ncf.folder)
        return content_of(*filter(None, places))

    def cells(self, system: System, data: str | None = None) -> tuple[Cell, ...]:
        """Those of a system, or none where it cannot be run."""
        label = data or self.label
        if system.why_not(label, quick=self.quick):
            return ()
        file = (self.netflix if data else None) or self.data
        own: dict[str, Any] = {"quick": self.quick, "file": file}
        own["content"] = self.content(file, system.task)
        places: list[Key] = [(fold, seed) for seed in self.seeds for fold in self.folds]
        if system.task == "ranking":
            # Leave-one-out has one split.
            places = [(None, seed) for seed in self.seeds]
            own["protocols"] = self.protocols
        return tuple(system.cell(label, fold=fold, seed=seed, **own) for fold, seed in places)

    def row(self, system: System, data: str | None = None) -> Row:
        label = data or self.label
        why_not = system.why_not(label, quick=self.quick)
        cells = self.cells(system, data)
        figures, base = system.published, system.base
        return Row(system.name, system.row, system.origin, figures, cells, why_not, base)

    def once(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        """Of what is measured on one split alone: the first that is finished, or else the first."""
        return (*filter(self.folder.finished, cells), *cells)[:1]

    def peers(self, base: System) -> Iterator[Row]:
        """Rows of what `benchmarks/peers/run.py NAME --out OUT/peers` has predicted in environments
        of their own, tested on the split of `base`."""
        found: dict[tuple[str, str], dict[int | None, list[Cell]]] = {}
        unreadable: dict[str, Row] = {}
        data = Path(self.data).stem
        for own in self.cells(base):
            place = "leave-one-out" if own.fold is None else f"fold-{own.fold}"
            for path in sorted(self.folder.path.glob(f"peers/*-{data}-{place}*/result.json")):
                name = path.parent.name.replace(f"-{data}-{place}", "")
                try:
                    result = json.loads(path.read_text("utf-8"))
                    settings = {key: result[key] for key in _USED}
                    title: str = result["title"]
                except (OSError, ValueError, KeyError, TypeError) as error:
                    why_not = (
                        f"{path.relative_to(self.folder.path)} cannot be read as a result of "
                        f"benchmarks/peers/run.py ({type(error).__name__}: {error}); remove its "
                        f"folder, or run it again"
                    )
                    unreadable[name] = Row(name, name, "beyond the paper", {}, (), why_not, name)
                    continue
                questions, hashes = {}, []
                for question, words in own.questions.items():
                    of = "rating" if question == "ratings" else question
                    if (file := path.with_name(f"predicted-{of}.parquet")).is_file():
                        name_there = file.relative_to(self.folder.path).as_posix()
                        asked = ("--predictions", f"{{out}}/{name_there}")
                        questions[question] = (*words, *asked)
                        hashes.append(sha256_of_file(file))
                cell = Cell(
                    f"{own.name}-{name}", f"{title}, {data}, {place}", name, questions, run_of=own,
                    settings={"predictions": hashes} | settings, fold=own.fold, seed=own.seed,
                    minutes=0.3,
                )  # fmt: skip
                found.setdefault((name, title), {}).setdefault(own.fold, []).append(cell)
        for (name, title), folds in found.items():
            # Its predictions are the same for every seed of ours.
            cells = tuple(cell for own in folds.values() for cell in self.once(own))
            yield Row(name, title, "beyond the paper", {}, cells, None, name)
        yield from unreadable.values()
