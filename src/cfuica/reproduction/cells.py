"""Cells: measurements as data, each made in processes of its own and written down in a folder.

A cell is made of commands that anyone can type: `cfuica train` with its settings, and questions
that are answered in JSON. So its time and its peak memory are its own.

DIR/reproduction.json  the data, and the tables and figures that the report shows
DIR/cells/NAME.json    the definition of a cell, its status and, once it is finished, its figures
DIR/runs/NAME          its run folder; an interrupted one is resumed from its last checkpoint
DIR/users/NAME-*       the metrics of each user, by question
DIR/logs/NAME.log      its commands, and what they said
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cfuica.errors import CfuicaError
from cfuica.io import locked, write_text_atomically
from cfuica.ops.runtime import machine, versions
from cfuica.run_folder import FINISHED, TRAINING, RunFolder

FAILED = "failed"
CHECKPOINT_SECONDS = 120
# A training that is asked to stop first ends its minibatch and writes a checkpoint.
GRACE_SECONDS = 300
# What a whole Parquet file ends with.
_PARQUET = b"PAR1"
_COMMAND = (sys.executable, "-c", "from cfuica.cli import main; main()")
_CURVE_POINTS = 100
# What a record says of the training.
_LEARNED = ("training", "data", "cpu_seconds", "curve")
# What every record has, and what those of cells that have ended have, too.
_ALWAYS = {"definition", "title", "fold", "seed", "status"}
_ENDED = {
    FINISHED: {"answers", "seconds", "machine", "versions", "date"},
    FAILED: {"reason", "machine", "versions", "date"},
}


@dataclass(frozen=True)
class Cell:
    """One measurement: a system on a split of some data, with a seed.

    In the words of a command, {run} stands for its run folder, {users} for a file of the metrics
    of each user and {out} for the folder of the reproduction. A command that begins with -m is a
    module, any other one is of `cfuica`.
    """

    name: str  # of its files
    title: str
    system: str  # Cells of one system take about as long.
    questions: Mapping[str, tuple[str, ...]]
    train: tuple[str, ...] = ()  # of `cfuica train`, without --out
    # All settings and not the changed ones alone: with another default it is another measurement.
    settings: Mapping[str, Any] = field(default_factory=dict)
    content: str = ""  # SHA-256 of the data that it is trained on
    run_of: Cell | None = None  # the cell whose run is asked, where it trains none itself
    fold: int | None = None
    seed: int = 0
    minutes: float = 1.0  # on MovieLens 1M and two cores, about

    @property
    def definition(self) -> dict[str, Any]:
        """What must be the same for a figure to be that of this cell."""
        asks: dict[str, Any] = {"questions": dict(self.questions)}
        if self.run_of is not None:
            asks["run"] = {"of": self.run_of.name, **self.run_of._training}
        definition: dict[str, Any] = json.loads(json.dumps({**self._training, **asks}))
        return definition

    @property
    def _training(self) -> dict[str, Any]:
        """What must be the same for its run to be that of this cell. Where the data is counts only
        as long as its content is not known."""
        words = (*self.train[:1], *self.train[2:]) if self.content else self.train
        return {"train": words, "settings": self.settings, "content": self.content}

    def has_run_of(self, record: Mapping[str, Any] | None) -> bool:
        """Whether what is written down was trained in the same way."""
        definition = {} if record is None else record["definition"]
        return all(definition.get(name) == self.definition[name] for name in self._training)


class Watch:
    """Is called while cells are measured; does nothing."""

    def note(self, text: str) -> None:
        """Something worth saying."""

    def began(self, cell: Cell, number: int, total: int, seconds_left: float) -> None:
        """A cell, counted from 1, and about how long it and all after it will take."""

    def trained(self, share: float) -> None:
        """This share of the cell's training is done."""

    def ended(self, cell: Cell, record: Mapping[str, Any]) -> None:
        """A cell is finished or has failed."""


class CellFolder:
    """The folder of a reproduction."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder, and keep other processes from measuring in it."""

        def refuse() -> None:
            raise CfuicaError(
                f"Another process is reproducing in {self.path}; wait until it ends, or stop it."
            )

        is_ours = (self.path / "cells").is_dir() or (self.path / "peers").is_dir()
        if self.path.is_dir() and not is_ours and any(self.path.iterdir()):
            raise CfuicaError(
                f"The folder {self.path} exists and has no cells; choose another --out."
            )
        try:
            for name in ("cells", "runs", "users", "logs"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CfuicaError(
                f"The folder {self.path} cannot be created: {error.strerror}."
            ) from None
        with locked(self.path, refuse):
            yield

    def run(self, name: str) -> Path:
        return self.path / "runs" / name

    def users(self, cell: Cell, question: str) -> Path:
        return self.path / "users" / f"{cell.name}-{question}.parquet"

    def record(self, name: str) -> dict[str, Any] | None:
        """What is written down of a cell; None where nothing is, or nothing readable."""
        try:
            record = json.loads((self.path / "cells" / f"{name}.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(record, dict) or not record.keys() >= _ALWAYS:
            return None
        return record if record.keys() >= _ENDED.get(record["status"], set()) else None

    def records(self) -> Iterator[dict[str, Any]]:
        """What is written down of any cell."""
        for path in sorted((self.path / "cells").glob("*.json")):
            if (record := self.record(path.stem)) is not None:
                yield record

    def ended(self, cell: Cell) -> dict[str, Any] | None:
        """The record of a cell of the same definition that is finished or has failed."""
        record = self.record(cell.name)
        same = record is not None and record["definition"] == cell.definition
        return record if same and record and record["status"] in (FINISHED, FAILED) else None

    def finished(self, cell: Cell) -> dict[str, Any] | None:
        """The record of a finished cell of the same definition, if its files are there."""
        record = self.ended(cell)
        is_finished = record is not None and record["status"] == FINISHED
        return (
            record
            if is_finished and all(self._has_users(cell, q) for q in cell.questions)
            else None
        )

    def _has_users(self, cell: Cell, question: str) -> bool:
        """Whether the metrics of each user are there and whole, where a question writes them."""
        if "{users}" not in cell.questions[question]:
            return True
        try:
            with self.users(cell, question).open("rb") as file:
                file.seek(-len(_PARQUET), os.SEEK_END)
                return file.read() == _PARQUET
        except OSError:
            return False

    def measure(self, cell: Cell, watch: Watch) -> dict[str, Any]:
        """Train and ask what is left to do; the record, which may be of a failure."""
        earlier, definition = self.record(cell.name), cell.definition
        has_run, answers = cell.has_run_of(earlier), {}
        if earlier is not None and (changed := ", ".join(_changed(earlier["definition"], cell))):
            again = "what changed is asked" if cell.train and has_run else "it is measured"
            watch.note(f"{cell.title}: {changed} changed, so {again} anew.")
        if cell.train:
            self._wait_for_run(cell, watch)
            if not has_run:
                # First of all: once the definition is written down, it would pass for its run.
                self._remove_run(cell)
        record: dict[str, Any] = {"definition": definition, "title": cell.title}
        record |= {"fold": cell.fold, "seed": cell.seed, "status": TRAINING}
        if earlier is not None and has_run and _status(RunFolder(self.run(cell.name))) == FINISHED:
            record |= {name: earlier[name] for name in _LEARNED if name in earlier}
            before = earlier["definition"]["questions"]
            answers = {
                name: answer
                for name, answer in earlier.get("answers", {}).items()
                if before.get(name) == definition["questions"].get(name)
                and self._has_users(cell, name)
            }
        self._write(cell, record)
        try:
            if cell.train:
                if "training" not in record:
                    record |= self._trained(cell, watch)
            elif cell.run_of is not None and self.finished(cell.run_of):
                self._bring_back(cell.run_of, watch)
            begin = time.perf_counter()
            record["answers"] = answers | {
                name: self._answer(cell, name) for name in cell.questions if name not in answers
            }
            asked = time.perf_counter() - begin
        except CellFailed as error:
            record |= {"status": FAILED, "reason": str(error)}
        else:
            seconds = asked + record.get("training", {}).get("seconds", 0.0)
            record |= {"status": FINISHED, "seconds": round(seconds, 1)}
        record |= {"machine": machine(), "versions": versions()}
        record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._write(cell, record)
        return record

    def _write(self, cell: Cell, record: dict[str, Any]) -> None:
        text = json.dumps(record, indent=1) + "\n"
        write_text_atomically(self.path / "cells" / f"{cell.name}.json", text)

    def _wait_for_run(self, cell: Cell, watch: Watch) -> None:
        """The training of a reproduction that was killed ends by itself at its next line, and its
        folder with it if there is nothing to resume."""
        run = self.run(cell.name)
        if run.is_dir():
            waits = f"Waiting for the end of an earlier training in {run}."
            with suppress(FileNotFoundError), locked(run, lambda: watch.note(waits)):
                pass

    def _remove_run(self, cell: Cell) -> None:
        run = self.run(cell.name)
        try:
            if run.exists():
                shutil.rmtree(run)
        except OSError as error:
            raise CfuicaError(
                f"{run} is another training's and cannot be removed ({error.strerror}); remove it."
            ) from None

    def _bring_back(self, cell: Cell, watch: Watch) -> None:
        """Train the run of a finished cell once more if it was removed."""
        if _status(RunFolder(self.run(cell.name))) != FINISHED:
            watch.note(f"{cell.title}: its run is not there any more, so it is trained again.")
            self.measure(cell, watch)

    def _trained(self, cell: Cell, watch: Watch) -> dict[str, Any]:
        """Train a cell's run unless it is finished; what the run says of it."""
        run, before = RunFolder(self.run(cell.name)), _cpu_seconds()
        status = _status(run)
        options = ["--progress", "json", "--checkpoint-every", str(CHECKPOINT_SECONDS)]
        words = [*cell.train, "--out", str(run.path), "--overwrite", *options]
        if status == TRAINING:
            words = ["train", "--resume", str(run.path), *options]
        if status != FINISHED:
            self._run(cell, words, lambda line: _show(line, watch))
        try:
            record, curve = run.read_record(), _curve(run.metrics)
            training, data = record["training"], record["data"]
        except (CfuicaError, OSError, ValueError, KeyError, TypeError) as error:
            raise CellFailed(
                f"its run is damaged ({type(error).__name__}: {error}); remove {run.path} to train "
                f"it again"
            ) from None
        # Seconds of the processor are those of this process's children; a part was another's child.
        whole = status is None and "resumed_at" not in record
        return {
            "training": training,
            "data": data,
            "cpu_seconds": round(_cpu_seconds() - before, 1) if whole else None,
            "curve": curve,
        }

    def _answer(self, cell: Cell, question: str) -> Any:
        of = cell.run_of or cell
        run = self.run(of.name)
        places = {"{run}": str(run), "{users}": str(self.users(cell, question))}
        asked = cell.questions[question]
        words = [places.get(word, word.replace("{out}", str(self.path))) for word in asked]
        if of is not cell and _status(RunFolder(run)) != FINISHED:
            raise CellFailed(f"it needs the run {of.name}, which is not finished")
        said = self._run(cell, words)
        try:
            return json.loads(said)
        except ValueError:
            raise CellFailed(f"`{shlex.join(words[:2])}` gave no JSON: {said[:80]!r}") from None

    def _run(
        self, cell: Cell, words: Sequence[str], on_line: Callable[[str], None] = lambda line: None
    ) -> str:
        """Run a command; its standard output. Whatever stops us stops it too."""
        path, said = self.path / "logs" / f"{cell.name}.log", []
        command = [sys.executable, *words] if words[0] == "-m" else [*_COMMAND, *words]
        with path.open("a+", encoding="utf-8", errors="replace") as log:
            log.write(f"$ cfuica {shlex.join(words)}\n")
            log.flush()
            begin = log.tell()
            with subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                errors="replace",
                # Ctrl-C reaches this process alone, which then asks the command once to stop.
                start_new_session=True,
            ) as process:
                assert process.stdout is not None
                try:
                    for line in process.stdout:
                        said.append(line)
                        on_line(line)
                    code = process.wait()
                except BaseException:
                    _stop(process)
                    raise
            if code:
                log.seek(begin)
                *_, last = ["it said nothing", *filter(None, map(str.strip, log))]
                ended = f"signal {-code} ended it" if code < 0 else last.removeprefix("cfuica: ")
                raise CellFailed(ended.rstrip("."))
        return "".join(said)


class CellFailed(Exception):
    """A command of a cell failed; the text is the end of a sentence."""


def measure_all(
    folder: CellFolder, cells: Sequence[Cell], watch: Watch, after_each: Callable[[], None]
) -> list[Cell]:
    """Measure the cells that are not finished; those that failed."""
    remaining = [cell for cell in cells if folder.finished(cell) is None]
    failed = []
    while remaining:
        left = seconds_left(remaining, folder, cells)
        watch.began(remaining[0], len(cells) - len(remaining) + 1, len(cells), left)
        cell = remaining.pop(0)
        record = folder.measure(cell, watch)
        watch.ended(cell, record)
        if record["status"] == FAILED:
            failed.append(cell)
        after_each()
    return failed


def seconds_left(remaining: Sequence[Cell], folder: CellFolder, cells: Sequence[Cell]) -> float:
    """About how long the remaining cells will take.

    A cell takes as long as others of its system did; a system of which none is finished takes its
    `minutes`, times what the finished ones took in proportion to theirs.
    """
    took = [(cell, folder.finished(cell)) for cell in cells]
    finished = [(cell, record["seconds"]) for cell, record in took if record is not None]
    planned = sum(60 * cell.minutes for cell, _ in finished)
    pace = sum(seconds for _, seconds in finished) / planned if planned else 1.0
    total = 0.0
    for cell in remaining:
        own = [seconds for other, seconds in finished if other.system == cell.system]
        total += sum(own) / len(own) if own else 60 * cell.minutes * pace
    return total


def _stop(process: subprocess.Popen[str]) -> None:
    """End a command, which may first write a checkpoint."""
    process.terminate()
    try:
        process.communicate(timeout=GRACE_SECONDS)
    finally:
        process.kill()


def _show(line: str, watch: Watch) -> None:
    """Pass on how much of a training is done, from a line of `cfuica train --progress json`."""
    event = json.loads(line) if line.startswith('{"event": "validated"') else {}
    if planned := event.get("steps_planned"):
        watch.trained((event["member"] + event["step"] / planned) / event["networks"])


def _status(run: RunFolder) -> str | None:
    """That of a run; None where there is none, or a damaged one."""
    try:
        return str(run.read_record().get("status"))
    except CfuicaError:
        return None


def _curve(metrics: Path) -> list[tuple[float, float]]:
    """Seconds and validation score of the first network, thinned."""
    lines = map(json.loads, metrics.read_text("utf-8").splitlines())
    first = [one for one in lines if one["member"] == 0 and one["valid"]]
    points = [
        (round(one["seconds"], 1), one["valid"].get("rmse", one["valid"].get("ndcg")))
        for one in first
    ]
    return points[:: 1 + len(points) // _CURVE_POINTS]


def _changed(before: Mapping[str, Any], cell: Cell) -> Iterator[str]:
    """What differs from the definition of a cell; of settings their names."""
    names = {"train": "training", "content": "content of the data", "run": "run that it asks"}
    for name, value in cell.definition.items():
        if name != "settings" and before.get(name) != value:
            yield names.get(name, name)
    old, new = before.get("settings", {}), cell.definition["settings"]
    yield from (f"setting {name}" for name in {**old, **new} if old.get(name) != new.get(name))


def _cpu_seconds() -> float:
    """Of the commands that have ended."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
