from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, refused, run
from tests.cli.stand_in import Explained, StandIn


def test_people_see_what_is_expected_and_why(model: StandIn) -> None:
    text = done("explain", "run", "--user", "u", "--item", ":heart:", "-n", "2").out
    assert model.asked() == ("explain", ("u", ":heart:"), {})
    assert "Expected rating 4.25 of item :heart: (The [i]Title[/i]) for user u." in text
    assert "History: the largest changes (2 of 3)" in text
    assert "+0.500" in text
    assert "-0.250" in text
    assert "+0.125" not in text
    assert "█" * 15 + " " in text
    assert "75.0%" in text
    for word in ("IIC", "UUC", "1-2", "33"):
        assert word in text


def test_json_has_all_and_files_have_the_history(model: StandIn, tmp_path: Path) -> None:
    words = ["explain", "run", "--user", "u", "--item", "i", "-n", "1"]
    explained = Explained()
    found = json.loads(done(*words, "--json").out)
    assert found == explained.as_json() | {"unknown": ["user", "item"]}
    done(*words, "--out", tmp_path / "why.parquet")
    assert pl.read_parquet(tmp_path / "why.parquet").equals(explained.history)
    text = done(*words, "--format", "csv").out
    assert text.splitlines()[:2] == ["item,title,rating,change", "a,A,5.0,0.5"]


def test_an_anonymous_user_is_explained_by_a_history(model: StandIn) -> None:
    model.explanation = replace(Explained(), user=None, title=None)
    text = done("explain", "run", "--history", "x:5", "--item", "i", "--unknown", "serve").out
    assert "of item :heart: for this history." in text
    _, (user, item), options = model.asked()
    assert (user, item) == (None, "i")
    assert options["history"].rows() == [("x", 5.0)]
    assert options["unknown"] == "serve"


def test_titles_and_a_history_may_be_missing(model: StandIn) -> None:
    whole = Explained()
    model.explanation = replace(whole, history=whole.history.with_columns(title=pl.lit(None)))
    assert "title" not in done("explain", "run", "--user", "u", "--item", "i").out
    model.explanation = replace(whole, history=whole.history.clear(), raters=whole.raters.clear())
    text = done("explain", "run", "--user", "u", "--item", "i").out
    assert "There is no history" in text
    assert "Others on this item" not in text


def test_contributions_of_too_few_users_are_withheld(model: StandIn) -> None:
    whole = Explained()
    others = pl.col("contribution") == "UUC"
    contributions = whole.contributions.with_columns(
        pl.when(~others).then(pl.exclude("contribution"))
    )
    model.explanation = replace(whole, contributions=contributions, raters=whole.raters.clear())
    text = done("explain", "run", "--user", "u", "--item", "i").out
    assert text.count("UUC") == 1
    assert "UUC is withheld: fewer than 5 others rated the item." in text


@pytest.mark.parametrize("words", [["--item", "i"], ["--user", "u"], ["--item", "i", "-n", "0"]])
def test_wrong_usage_is_reported(words: list[str]) -> None:
    assert run("explain", "run", *words).code == 2


def test_one_person_is_explained(model: StandIn) -> None:
    outcome = run("explain", "run", "--item", "i", "--user", "u", "--history", "a:1")
    assert outcome.code == 2
    assert "give one of --user, --history or --history-file" in outcome.err
    assert "--item is empty" in refused("explain", "run", "--user", "u", "--item", "")
    assert "'a' is not of the form" in refused("explain", "run", "--item", "i", "--history", "a")
    assert model.calls == []
    refused("explain", "run", "--user", "zzz", "--item", "i", "--unknown", "error")


def test_a_real_model_explains_itself(titled: Path) -> None:
    words = ["explain", titled, "--item", "5"]
    printed = json.loads(done(*words, "--user", "3", "--json").out)
    assert printed == load(titled).explain(3, 5).as_json()
    assert (printed["user"], printed["item"]) == (3, 5)
    text = done(*words, "--user", "3", "-n", "2").out
    assert (
        f"Expected rating {printed['expected']:.2f} of item 5 ({printed['title']}) for user 3."
        in text
    )
    assert "for this history" in done(*words, "--history", "1:5,2:1").out
    assert "There is no history" in done(*words, "--user", "new").out
    assert "item 'none' (row 1) is unknown" in refused(
        "explain", titled, "--user", "3", "--item", "none", "--unknown", "error"
    )
