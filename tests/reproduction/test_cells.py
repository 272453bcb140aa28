"""Cells with a stand-in for `cfuica`: what is run, what never twice, and what is written down."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from cfuica.errors import CfuicaError
from cfuica.io import locked
from cfuica.reproduction import cells as module
from cfuica.reproduction.cells import Cell, CellFolder, Watch, measure_all, seconds_left

STAND_IN = str(Path(__file__).with_name("stand_in_cfuica.py"))


class Seen(Watch):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.shares: list[float] = []
        self.began_: list[tuple[str, int, int]] = []
        self.waited: Callable[[], None] = lambda: None

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.waited()

    def began(self, cell: Cell, number: int, total: int, seconds_left: float) -> None:
        self.began_.append((cell.name, number, total))

    def trained(self, share: float) -> None:
        self.shares.append(share)


class World:
    """A folder, and the calls of the stand-in."""

    def __init__(self, path: Path) -> None:
        self.folder, self.watch, self._calls = CellFolder(path / "out"), Seen(), path / "calls"

    def measure(self, *cells: Cell) -> list[Cell]:
        with self.folder.held():
            return measure_all(self.folder, cells, self.watch, lambda: None)

    @property
    def calls(self) -> list[str]:
        """Since the last time, without the options of every training."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return [line.split(" --progress")[0].replace(f"{self.folder.path}/", "") for line in lines]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "_COMMAND", (sys.executable, STAND_IN))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return World(tmp_path)


def cell(name: str = "one", **changes: Any) -> Cell:
    own: dict[str, Any] = {"title": name.title(), "system": name, "train": ("train", "demo")}
    own |= {"questions": {"ratings": ("ask", "{run}", "{users}")}, "settings": {"rate": 0.1}}
    return Cell(name, **{**own, **changes})


def test_a_cell_is_trained_asked_and_written_down(world: World) -> None:
    assert world.measure(cell(fold=2, seed=5)) == []
    folder = world.folder.path
    assert world.calls == [
        "train demo --out runs/one --overwrite",
        "ask runs/one users/one-ratings.parquet",
    ]
    record = json.loads((folder / "cells" / "one.json").read_text())
    assert record["status"] == "finished"
    assert record["answers"]["ratings"]["rmse"] == 0.5
    assert (record["fold"], record["seed"]) == (2, 5)
    assert record["training"]["peak_memory_gb"] == 0.5
    assert record["curve"] == [[1.0, 0.75]]
    assert record["seconds"] >= 2.0  # of training, and of asking
    assert 0 <= record["cpu_seconds"] < 60
    assert {"machine", "versions", "date"} <= record.keys()
    assert "$ cfuica train demo" in (folder / "logs" / "one.log").read_text()


def test_a_finished_cell_is_never_measured_again(world: World) -> None:
    world.measure(cell())
    world.measure(cell(), cell("two"))
    assert [each.split()[0] for each in world.calls] == ["train", "ask"] * 2
    assert world.watch.began_[-1] == ("two", 2, 2)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"settings": {"rate": 0.2, "units": 3}}, "setting rate, setting units"),
        ({"train": ("train", "demo", "--fold", "2")}, "training"),
        ({"content": "another"}, "content of the data"),
    ],
)
def test_a_changed_definition_is_said_and_measured_anew(
    world: World, changes: dict[str, Any], what: str
) -> None:
    world.measure(cell(content="one"))
    (world.folder.run("one") / "old").touch()
    assert world.calls
    world.measure(cell(**{"content": "one", **changes}))
    assert world.watch.notes == [f"One: {what} changed, so it is measured anew."]
    assert world.calls[0].startswith("train ")
    assert not (world.folder.run("one") / "old").exists()


def test_an_interrupt_leaves_no_run_to_a_definition_that_is_not_its_own(world: World) -> None:
    world.measure(cell())
    run, changed = world.folder.run("one"), cell(settings={"rate": 0.2})

    def interrupt() -> None:
        if world.watch.notes[-1].startswith("Waiting"):
            raise KeyboardInterrupt

    with locked(run):
        world.watch.waited = interrupt
        with pytest.raises(KeyboardInterrupt):
            world.measure(changed)
    world.watch.waited = lambda: None
    assert world.calls
    world.measure(changed)
    assert [each.split()[0] for each in world.calls] == ["train", "ask"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1 and so")])
def test_a_question_whose_file_is_missing_or_cut_short_is_asked_again(
    world: World, damage: Callable[[Path], Any]
) -> None:
    one = cell(questions={"full": ("ask", "{users}"), "ncf": ("ask", "1")})
    world.measure(one)
    assert world.calls
    damage(world.folder.users(one, "full"))
    assert world.folder.finished(one) is None
    world.measure(one)
    assert world.calls == ["ask users/one-full.parquet"]
    assert world.folder.finished(one)


@pytest.mark.parametrize("key", ["fold", "status", "answers", "date"])
def test_a_record_without_all_that_belongs_to_it_is_none(world: World, key: str) -> None:
    world.measure(cell())
    record = world.folder.finished(cell())
    assert record is not None
    assert record.pop(key, "absent") != "absent"
    world.folder._write(cell(), record)
    assert world.folder.record("one") is None
    world.measure(cell())
    assert world.folder.finished(cell())


def test_where_the_data_is_does_not_matter_if_its_content_is_the_same(world: World) -> None:
    world.measure(cell(train=("train", "a.csv"), content="abc"))
    world.measure(cell(train=("train", "/data/a.csv"), content="abc"))
    assert [each.split()[0] for each in world.calls] == ["train", "ask"]


def test_of_changed_questions_only_the_new_ones_are_asked(world: World) -> None:
    first = cell(questions={"paper": ("ask", "1"), "full": ("ask", "2")})
    world.measure(first)
    before = world.folder.finished(first)
    assert world.calls
    more = cell(questions={"paper": ("ask", "1"), "full": ("ask", "3"), "ncf": ("ask", "4")})
    world.measure(more)
    assert world.calls == ["ask 3", "ask 4"]
    assert world.watch.notes == ["One: questions changed, so what changed is asked anew."]
    after = world.folder.finished(more)
    assert before is not None
    assert after is not None
    assert after["answers"].keys() == {"paper", "full", "ncf"}
    assert after["training"] == before["training"]
    assert after["cpu_seconds"] == before["cpu_seconds"]
    (world.folder.run("one") / "run.json").unlink()  # without it, there is nobody to ask
    world.measure(cell())
    assert [each.split()[0] for each in world.calls] == ["train", "ask"]


def test_a_question_may_name_a_file_of_the_folder(world: World) -> None:
    world.measure(cell(questions={"ratings": ("ask", "{out}/peers/a.parquet")}))
    assert world.calls[-1] == "ask peers/a.parquet"


def test_a_run_that_nothing_is_written_down_of_is_not_used(world: World) -> None:
    world.measure(cell())
    (world.folder.path / "cells" / "one.json").unlink()
    assert world.calls
    world.measure(cell(settings={"rate": 7}))
    assert world.calls[0].startswith("train demo --out")


def test_a_title_or_an_estimate_is_no_part_of_the_definition(world: World) -> None:
    world.measure(cell())
    world.measure(cell(title="Another", minutes=99))
    assert len(world.calls) == 2


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("fail", "It diverged; try a lower rate"),
        ("die", "signal 9 ended it"),
        ("harm", "its run is damaged (JSONDecodeError: Unterminated"),
    ],
)
def test_a_failing_cell_does_not_end_the_others_and_is_tried_again(
    world: World, do: str, reason: str
) -> None:
    bad = cell(train=("train", "--set", f"do={do}"))
    assert world.measure(bad, cell("two")) == [bad]
    record = world.folder.ended(bad)
    assert record is not None
    assert record["reason"].startswith(reason)
    assert world.folder.finished(cell("two"))
    assert len(world.calls) == 3
    world.measure(bad, cell("two"))
    # A damaged run is not trained again until it is removed.
    assert len(world.calls) == (0 if do == "harm" else 1)


def test_an_answer_that_is_no_json_is_a_failure(world: World) -> None:
    odd = cell(train=(), questions={"answer": ("-m", "this")})
    assert world.measure(odd) == [odd]
    record = world.folder.ended(odd)
    assert record is not None
    assert record["reason"].startswith("`-m this` gave no JSON: 'The Zen of Python")


def test_a_cell_may_ask_the_run_of_another(world: World) -> None:
    asking = cell("asking", train=(), run_of=cell())
    assert world.measure(asking) == [asking]
    assert world.calls == []  # it needs a finished run
    world.measure(cell(), asking)
    assert world.calls[-1] == "ask runs/one users/asking-ratings.parquet"
    # Another run has another answer.
    changed = cell(settings={"rate": 0.2})
    again = cell("asking", train=(), run_of=changed)
    world.measure(changed, again)
    assert [each.split()[0] for each in world.calls] == ["train", "ask", "ask"]
    assert world.watch.notes[-1] == "Asking: run that it asks changed, so it is measured anew."


def test_a_run_that_was_removed_is_trained_again_where_it_is_asked(world: World) -> None:
    world.measure(cell())
    shutil.rmtree(world.folder.run("one"))
    assert world.calls
    assert world.measure(cell(), cell("asking", train=(), run_of=cell())) == []
    assert [each.split()[0] for each in world.calls] == ["train", "ask", "ask"]
    assert world.watch.notes == ["One: its run is not there any more, so it is trained again."]
    assert world.folder.finished(cell())


def test_an_interrupted_training_is_resumed(world: World) -> None:
    run = world.folder.run("one")
    run.mkdir(parents=True)
    (world.folder.path / "cells").mkdir()
    begun = {"title": "One", "fold": None, "seed": 0, "status": "training"}
    world.folder._write(cell(), {"definition": cell().definition, **begun})
    (run / "run.json").write_text('{"status": "training"}')
    world.measure(cell())
    assert world.calls[0] == "train --resume runs/one"
    record = world.folder.finished(cell())
    assert record is not None
    assert record["cpu_seconds"] is None  # those of its first part are not known


def test_a_training_that_still_runs_is_waited_for(world: World) -> None:
    run = world.folder.run("one")
    run.mkdir(parents=True)
    (world.folder.path / "cells").mkdir()
    ends = Event()

    def trains() -> None:
        with locked(run):
            began.set()
            ends.wait(30)
            run.rmdir()  # it had nothing to resume from

    began = Event()
    training = Thread(target=trains)
    training.start()
    began.wait(30)
    world.watch.waited = ends.set
    world.measure(cell())
    training.join()
    assert world.watch.notes == [f"Waiting for the end of an earlier training in {run}."]
    assert world.calls[0].startswith("train demo --out")


def test_two_processes_exclude_each_other_and_a_foreign_folder_is_refused(world: World) -> None:
    with (
        world.folder.held(),
        pytest.raises(CfuicaError, match=r"Another process is reproducing in .*wait until it ends"),
        CellFolder(world.folder.path).held(),
    ):
        pass
    foreign = world.folder.path.parent / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").touch()
    with (
        pytest.raises(CfuicaError, match="has no cells; choose another"),
        CellFolder(foreign).held(),
    ):
        pass


def test_the_time_left_follows_what_the_finished_ones_took(world: World) -> None:
    own = [cell(name, minutes=minutes) for name, minutes in (("a", 1), ("b", 3), ("c", 10))]
    again = replace(own[0], name="a-again")
    assert seconds_left(own, world.folder, own) == 60 * 14
    world.measure(own[0])
    record = world.folder.record("a")
    assert record is not None
    world.folder._write(own[0], {**record, "seconds": 30.0})  # half of what was planned
    every = [*own, again]
    assert seconds_left([again], world.folder, every) == 30
    assert seconds_left([own[1], own[2], again], world.folder, every) == 30 * 13 + 30


# A reproduction in a process of its own, with a cell that is done at once and one that trains on.
DRIVER = """
import sys
from pathlib import Path
from cfuica.reproduction import cells
from tests.reproduction.test_cells import STAND_IN, cell
cells._COMMAND = (sys.executable, STAND_IN)
folder = cells.CellFolder(Path(sys.argv[1]))
with folder.held():
    cells.measure_all(
        folder, [cell(), cell("two", train=("train", "--set", "do=wait"))], cells.Watch(),
        lambda: None,
    )
"""


def waiting(world: World, tmp_path: Path) -> subprocess.Popen[bytes]:
    """A reproduction that is in the middle of the second training."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", ".", *sys.path[1:]])}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(world.folder.path)],
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    until(lambda: (world.folder.run("two") / "run.json").is_file(), process)
    return process


def until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    for _ in range(6000):
        if is_so():
            return
        assert process.poll() in (None, -signal.SIGKILL), "it ended early"
        time.sleep(0.01)
    raise AssertionError("it takes too long")


def test_a_killed_reproduction_goes_on_and_its_training_ends_by_itself(
    world: World, tmp_path: Path
) -> None:
    process = waiting(world, tmp_path)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert [line.split()[0] for line in world.calls] == ["train", "ask", "train"]
    # Without its reader the training fails to print, and so leaves the run for us.
    begun = {"status": "training"}
    assert json.loads((world.folder.run("two") / "run.json").read_text())["status"] == "training"
    assert world.folder.record("two")["status"] == begun["status"]  # type: ignore[index]
    second = cell("two", train=("train", "--set", "do=wait"))
    world.measure(cell(), second)
    assert world.calls == [
        "train --resume runs/two",
        "ask runs/two users/two-ratings.parquet",
    ]
    assert world.folder.finished(second)


def test_an_interrupt_asks_the_training_once_to_stop(world: World, tmp_path: Path) -> None:
    process = waiting(world, tmp_path)
    process.send_signal(signal.SIGINT)
    process.wait(30)
    assert (world.folder.run("two") / "stopped").exists()


def test_progress_of_a_training_is_passed_on() -> None:
    seen = Seen()
    line: Mapping[str, Any] = {"event": "validated", "member": 1, "networks": 2, "step": 1}
    module._show(json.dumps({**line, "steps_planned": 4}), seen)
    module._show(json.dumps({**line, "steps_planned": None}), seen)
    module._show('{"event": "note", "text": "x"}', seen)
    assert seen.shares == [0.625]
