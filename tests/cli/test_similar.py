from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, refused, run
from tests.cli.stand_in import StandIn


@pytest.mark.parametrize("axis", ["item", "user"])
def test_users_and_items_are_compared_in_the_same_way(model: StandIn, axis: str) -> None:
    words = ["similar", "run", f"--{axis}", "a", f"--{axis}", "b", "-n", "2"]
    text = done(*words).out
    assert model.calls.pop() == (f"similar_{axis}s", (["a", "b"], 2), {})
    assert f"Most like {axis} b" in text
    rows = json.loads(done(*words, "--json").out)
    assert [list(row) for row in rows] == [[axis, "rank", "similar", "score"]] * 4
    done(*words, "--min-support", "3", "--unknown", "serve")
    assert model.calls.pop()[2] == {"min_support": 3, "unknown": "serve"}


@pytest.mark.parametrize("words", [[], ["--item", "a", "--user", "b"]])
def test_it_must_be_clear_what_is_compared(words: list[str]) -> None:
    outcome = run("similar", "run", *words)
    assert outcome.code == 2
    assert "give --item or --user, and not both" in outcome.err


def test_what_cannot_be_meant_is_refused(model: StandIn) -> None:
    assert "--item is empty" in refused("similar", "run", "--item", " ")
    assert "--unknown odd is not known" in refused(
        "similar", "run", "--item", "a", "--unknown", "odd"
    )
    message = refused("similar", "run", "--item", "zzz", "--unknown", "error")
    assert message == "cfuica: The user 'zzz' is unknown to this model."
    assert run("similar", "run", "--item", "a", "-n", "0").code == 2


def test_no_other_user_to_compare_with_is_reported_and_is_no_failure(model: StandIn) -> None:
    model.top = pl.DataFrame(
        schema={"item": pl.String, "rank": pl.Int32, "similar": pl.String, "score": pl.Float64}
    )
    outcome = done("similar", "run", "--item", "a")
    assert outcome.out == ""
    assert outcome.err == "There is no other item with so many interactions to compare with.\n"


def test_a_real_model_finds_who_is_alike(titled: Path) -> None:
    found = json.loads(done("similar", titled, "--item", "5", "-n", "2", "--json").out)
    assert found == load(titled).similar_items(5, 2).to_dicts()
    assert found[0]["title"]
    assert "Most like user 3" in done("similar", titled, "--user", "3").out
    message = refused("similar", titled, "--item", "none")
    assert "Nothing is known of the item 'none' that another could be similar to" in message
    outcome = done("similar", titled, "--item", "5", "--min-support", "1000")
    assert "There is no other item with so many interactions" in outcome.err
