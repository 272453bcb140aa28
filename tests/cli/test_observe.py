from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cfuica.data.layout import ReadOptions
from cfuica.data.table import Interactions
from cfuica.models.recommender import load
from tests.cli.harness import done, refused
from tests.cli.stand_in import StandIn


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.csv"
    path.write_text("user,item,rating\na,x,4\nb,x,2\na,x,5\n")
    return path


def test_events_reach_the_model_which_is_written_in_its_place(
    model: StandIn, events: Path, run_copy: Path
) -> None:
    outcome = done("observe", run_copy, "--events", events)
    assert model.asked() == ("observe", ([("b", "x", 2.0), ("a", "x", 5.0)],), {})
    assert model.saved == run_copy / "model"
    assert outcome.out == (
        f"2 interactions added, 1 changed, 1 removed; 1 new users and 0 new items. Written to "
        f"{run_copy / 'model'}.\n"
    )
    assert "1 earlier interactions of a repeated" in outcome.err


def test_a_model_folder_is_as_good_as_a_run(model: StandIn, events: Path, run_copy: Path) -> None:
    done("observe", run_copy / "model", "--events", events)
    assert model.saved == run_copy / "model"


def test_the_changed_model_can_go_elsewhere(
    model: StandIn, events: Path, run_copy: Path, tmp_path: Path
) -> None:
    done("observe", run_copy, "--events", events, "--out", tmp_path / "new" / "model")
    assert model.saved == tmp_path / "new" / "model"


def test_a_model_that_cannot_be_written_is_refused_before_the_work(
    model: StandIn, events: Path, run_copy: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for out, message in {
        tmp_path: "exists and is not a model folder",
        run_copy: "exists and is not a model folder",
        tmp_path / "file": "exists and is not a model folder",
        tmp_path / "file" / "model": "is no folder that may be written to",
    }.items():
        assert message in refused("observe", run_copy, "--events", events, "--out", out)
    assert model.calls == []


def test_events_that_cannot_be_read_change_nothing(
    model: StandIn, run_copy: Path, events: Path
) -> None:
    events.write_text("user,item,rating\na,x,4\nb,x,good\n")
    assert "line 3, has 'good' in column 3" in refused("observe", run_copy, "--events", events)
    missing = events.with_name("nowhere.csv")
    assert "nowhere.csv cannot be read" in refused("observe", run_copy, "--events", missing)
    assert model.saved is None


def test_a_rating_that_means_none_takes_none_back(
    model: StandIn, events: Path, run_copy: Path
) -> None:
    events.write_text("user,item,rating\na,x,4\nb,x,0\n")
    done("observe", run_copy, "--events", events, "--no-rating", "0")
    assert model.asked() == ("observe", ([("a", "x", 4.0)],), {})


@pytest.mark.parametrize("content", ["user,item\na,x\nb,x\n", "user,item,rating\na,x,\nb,x,3\n"])
def test_with_remove_every_row_is_removed(
    model: StandIn, events: Path, run_copy: Path, content: str
) -> None:
    events.write_text(content)
    outcome = done("observe", run_copy, "--events", events, "--remove")
    assert model.asked() == ("remove", ([("a", "x"), ("b", "x")],), {})
    assert "2 removed" in outcome.out


def test_a_day_without_events_is_fine(run_copy: Path, events: Path) -> None:
    events.write_text("user,item,rating\n")
    for words in ((), ("--remove",)):
        outcome = done("observe", run_copy, "--events", events, *words)
        assert outcome.out.startswith("0 interactions added, 0 changed, 0 removed; 0 new users")


def test_an_empty_rating_is_refused_with_the_remedy(run_copy: Path, events: Path) -> None:
    events.write_text("user,item,rating\n3,1,\n")
    content = (run_copy / "model" / "model.json").read_bytes()
    message = refused("observe", run_copy, "--events", events)
    assert "user 3 and item 1" in message
    assert "a column 'removed', model.remove or cfuica observe --remove." in message
    assert (run_copy / "model" / "model.json").read_bytes() == content


def test_a_missing_run_is_explained(tmp_path: Path, events: Path) -> None:
    message = refused("observe", tmp_path / "nowhere", "--events", events)
    assert "There is no model in" in message


def test_a_real_model_observes_and_the_next_command_knows(
    run_copy: Path, events: Path, tmp_path: Path
) -> None:
    rows = ["3,1,5,20,", "3,1,1,10,", "900,1,4,10,false", "900,901,2,5,no"]
    events.write_text("\n".join(["user,item,rating,timestamp,removed", *rows, ""]))
    before = load(run_copy)
    rated = before.explain(3, 2).history.filter(pl.col("item") != 1)["item"][0]
    with events.open("a") as file:
        file.write(f"3,{rated},,30,true\n")
    outcome = done("observe", run_copy, "--events", events, "--out", tmp_path / "model")
    assert ", 1 removed; 1 new users and 1 new items." in outcome.out
    assert load(run_copy).artifact.users.size == before.artifact.users.size
    after = load(tmp_path / "model")
    assert after.artifact.users.size == before.artifact.users.size + 1
    history = dict(after.explain(3, 2).history.select("item", "rating").iter_rows())
    assert history[1] == 5
    assert rated not in history
    before.observe(Interactions.read(events, ReadOptions(empty_rating="keep", removals=True)))
    pairs = {"user": [3, 900, 1], "item": [2, 2, 901]}
    assert after.predict(pairs).equals(before.predict(pairs))
    done("observe", run_copy, "--events", events)
    assert load(run_copy).predict(pairs).equals(before.predict(pairs))


def test_events_that_a_real_model_refuses_leave_it_as_it_was(run_copy: Path, events: Path) -> None:
    content = (run_copy / "model" / "model.json").read_bytes()
    for text, message in (
        ("900,1,4\n3,1,9\n", "rating 9 of user 3 and item 1 is not on the label scale"),
        ("900,1,4\nx,1,4\n", "user 'x' cannot be added"),
    ):
        events.write_text(f"user,item,rating\n{text}")
        assert message in refused("observe", run_copy, "--events", events)
    assert (run_copy / "model" / "model.json").read_bytes() == content
