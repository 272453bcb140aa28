"""The commands on a model that ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, refused
from tests.live.ranking_world import fresh


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Look, do not touch."""
    return fresh("decay").save(tmp_path_factory.mktemp("models") / "ranking")


@pytest.fixture
def copied(ranking: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ranking, tmp_path / "model"))


def test_a_history_is_a_list_of_ids_newest_last(ranking: Path, tmp_path: Path) -> None:
    (tmp_path / "history.csv").write_text("item,rating\n3,1\n5,2\n2,3\n")
    expected = load(ranking).recommend(history=[3, 5, 2], n=4).to_dicts()
    for words in (("--history", " 3,5,2"), ("--history-file", tmp_path / "history.csv")):
        printed = json.loads(done("recommend", ranking, *words, "-n", "4", "--json").out)
        assert printed == expected
    assert expected != load(ranking).recommend(history=[2, 5, 3], n=4).to_dicts()
    assert "For this history" in done("recommend", ranking, "--history", "3").out
    message = refused("recommend", ranking, "--history", "3,4,3")
    assert "'3' is in --history more than once; give each item its last place alone" in message
    assert "has an empty id" in refused("recommend", ranking, "--history", "3,,4")


def test_users_and_rules(ranking: Path) -> None:
    model = load(ranking)
    words = ("--where", "series=1", "--exclude", "4", "--include-seen", "--json")
    printed = json.loads(done("recommend", ranking, "--user", "2", *words).out)
    asked = {"where": {"series": 1}, "exclude": [4], "exclude_seen": False}
    assert printed == model.recommend([2], **asked).to_dicts()
    all_rows = json.loads(done("recommend", ranking, "--all-users", "-n", "2", "--json").out)
    assert all_rows == model.recommend(model.users.ids, 2).to_dicts()


def test_what_only_ratings_have_is_refused_in_one_sentence(ranking: Path, tmp_path: Path) -> None:
    message = refused("recommend", ranking, "--user", "2", "--by", "lower")
    assert "by is 'lower', but RankingModel has one score; leave by out." in message
    (tmp_path / "pairs.csv").write_text("user,item\n1,2\n")
    for words in ((), ("--distribution",)):
        message = refused("predict", ranking, "--pairs", tmp_path / "pairs.csv", *words)
        assert (
            "RankingModel cannot predict ratings; RatingModel and baselines of ratings can."
            in message
        )


def test_an_explanation_is_of_a_score(ranking: Path) -> None:
    text = done("explain", ranking, "--user", "2", "--item", "1", "-n", "2").out
    assert "Score " in text
    assert "History: the largest changes (2 of" in text
    assert "Expected" not in text
    printed = json.loads(done("explain", ranking, "--history", "2,3", "--item", "1", "--json").out)
    assert printed == load(ranking).explain(None, 1, history=[2, 3]).as_json()


def test_contributions_of_too_few_users_are_withheld(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,item\n1,10\n")
    done("observe", copied, "--events", tmp_path / "events.csv")
    printed = done("explain", copied, "--user", "2", "--item", "10").out
    assert "UUC is withheld: fewer than 5 others interacted with the item." in printed


def test_similar_ones_are_found(ranking: Path) -> None:
    words = ("similar", ranking, "--item", "1", "--min-support", "1", "--json")
    assert json.loads(done(*words).out) == (
        load(ranking).similar_items(["1"], min_support=1).to_dicts()
    )


def test_events_are_observed_and_users_forgotten(copied: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.csv"
    # A rating of 0 or none is an interaction too; a removal says so.
    known = load(copied).artifact
    done_by_3 = known.items.decode(known.interactions.items[known.interactions.users == 2])[0]
    rows = ["77,1,,500,", "77,9,0,501,no", f"3,{done_by_3},,502,yes"]
    events.write_text("\n".join(["user,item,rating,timestamp,removed", *rows, ""]))
    printed = done("observe", copied, "--events", events, "--no-rating", "0").out
    assert "2 interactions added, 0 changed, 1 removed; 1 new users and 1 new items." in printed
    model = load(copied)
    assert 77 in model.users.ids
    interactions = pl.read_parquet(copied / "interactions.parquet")
    assert interactions["timestamp"].sort()[-2:].to_list() == [500, 501]
    assert "User 77: 2 interactions and the user" in done("forget", copied, "--user", "77").out
    assert 77 not in load(copied).users.ids
