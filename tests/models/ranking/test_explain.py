"""Explanations of ranks: each interaction left out as if it had never happened."""

from __future__ import annotations

import copy
import json

import polars as pl
import pytest

from cfuica.errors import CfuicaError
from cfuica.models.co_autoregressive import RankingModel
from tests.live.ranking_world import KINDS, Truth, fresh
from tests.models.ranking.cyclic import fitted, rows


def score(model: RankingModel, user: object, item: object) -> float:
    """Of an item that the user has not done."""
    top = model.recommend([user], 99)
    return float(top.filter(pl.col("item") == item)["score"][0])


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_what_taking_a_interaction_back_does(kind: str) -> None:
    truth, model = Truth.of(kind), fresh(kind)
    user = truth.named(2)
    done = [item for item, _ in truth.timed[user]]
    assert len(done) > 2
    unseen = [item for item in map(truth.named, range(1, 8)) if item not in done]
    for item in (unseen[0], done[1]):
        told = model.explain(user, item)
        base = fresh(kind)
        if item in done:
            base.remove([(user, item)])
        whole = score(base, user, item)
        assert told.score == pytest.approx(whole, abs=1e-5)
        listed = dict(told.history.select("item", "change").iter_rows())
        if kind == "users":
            assert listed == {}, "nothing is read of the history"
            continue
        assert set(listed) == set(done) - {item}
        assert told.history["change"].abs().is_sorted(descending=True)
        for other, change in listed.items():
            replayed = RankingModel.from_artifact(copy.deepcopy(base.snapshot()))
            replayed.remove([(user, other)])
            assert change == pytest.approx(whole - score(replayed, user, item), abs=1e-5)


@pytest.mark.parametrize("kind", ["paper", "decay", "items", "users"])
def test_parts_are_taken_out_whole(kind: str) -> None:
    truth, model = Truth.of(kind), fresh(kind)
    user, item = 2, 10
    for other in (1, 3, 4, 5, 6):
        model.observe([(other, item)])
    contributions = {
        row["contribution"]: row for row in model.explain(user, item).contributions.to_dicts()
    }
    whole = score(model, user, item)
    assert (
        set(contributions)
        == {"both": {"IIC", "UUC"}, "items": {"IIC"}, "users": {"UUC"}}[KINDS[kind].sides]
    )
    alone = fresh(kind)
    alone.observe([(other, item) for other in (1, 3, 4, 5, 6)])
    alone.remove([(user, done) for done, _ in truth.timed[user]])
    if "IIC" in contributions:
        assert contributions["IIC"]["interactions"] == len(truth.timed[user])
        without = score(alone, user, item)
        assert contributions["IIC"]["score_without"] == pytest.approx(without, abs=1e-5)
        assert contributions["IIC"]["change"] == pytest.approx(whole - without, abs=1e-5)
    if "UUC" in contributions:
        assert contributions["UUC"]["interactions"] == 5
        model.remove([(other, item) for other in (1, 3, 4, 5, 6)])
        without = score(model, user, item)
        assert contributions["UUC"]["score_without"] == pytest.approx(without, abs=1e-5)


def test_of_a_few_others_nothing_is_told() -> None:
    model = fresh("decay")
    for others, counted in (((), 0), ((1,), None), ((1, 3, 4, 5), None), ((1, 3, 4, 5, 6), 5)):
        for other in others:
            model.observe([(other, 10)])
        told = model.explain(2, 10).contributions.filter(contribution="UUC").to_dicts()[0]
        assert told["interactions"] == counted
        assert (told["change"] is None) == (counted is None)
        assert (told["score_without"] is None) == (counted is None)
    model.observe([(2, 10)])
    assert model.explain(2, 10).contributions["interactions"].to_list()[1] == 5, "without the user"


def test_an_anonymous_user_is_explained_like_a_new_user() -> None:
    model = fresh("decay")
    told = model.explain(None, 1, history=[2, 3, 5])
    assert told.user is None
    model.observe([(99, item, 1.0 + item % 3) for item in (2, 3, 5)])
    stored = model.explain(99, 1)
    assert told.score == stored.score
    assert told.history.equals(stored.history)
    assert told.history.columns == ["item", "title", "change"]


def test_it_reads_well_and_is_plain_json(model: RankingModel) -> None:
    user = 1
    done = rows().filter(user=user)["item"].to_list()
    told = model.explain(user, (done[-1] + 1) % 20)
    text = repr(told)
    assert f"(item {told.item}) for user 1: score" in text
    assert "by the user's history (IIC, 8 interactions;" in text
    assert "and 3 more in .history" in text
    assert "by the item's other users (UUC," in text
    plain = json.loads(json.dumps(told.as_json()))
    assert plain["fewest_users"] == 5
    assert len(plain["history"]) == 8
    few = fresh("decay")
    few.observe([(1, 10)])
    not_shown = "Not shown: the item's other users, because fewer than 5 others interacted with"
    assert not_shown in repr(few.explain(2, 10))


def test_similar_ones_are_neighbours_in_the_cycle() -> None:
    model = fitted()
    found = model.similar_items(list(range(20)), 2)
    near = [(row["similar"] - row["item"]) % 20 in (1, 2, 18, 19) for row in found.to_dicts()]
    assert sum(near) / len(near) > 0.7
    first = rows().group_by("user").agg(pl.col("item").first())
    starts = dict(first.iter_rows())
    found = model.similar_users(list(range(60)), 1)
    gaps = [(starts[row["similar"]] - starts[row["user"]]) % 20 for row in found.to_dicts()]
    assert sum(gap in (0, 1, 19) for gap in gaps) / len(gaps) > 0.7


def test_one_of_user_and_history_is_explained(model: RankingModel) -> None:
    for user, history in ((None, None), (1, [2])):
        with pytest.raises(CfuicaError, match="give one of them"):
            model.explain(user, 3, history=history)
    with pytest.raises(CfuicaError, match="2 users were given, but one is asked for"):
        model.explain([1, 2], 3)
