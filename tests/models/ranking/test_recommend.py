"""Ranked lists: rules, cold-start users and items, histories, libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cfuica.errors import CfuicaError
from cfuica.inference.block_scores import FEWEST_USERS
from cfuica.live import live_state
from cfuica.models.co_autoregressive import RankingModel
from tests.models.ranking.cyclic import LENGTH, N_ITEMS, rows


def test_scores_are_those_of_the_scorer_in_order(model: RankingModel) -> None:
    top = model.recommend([4, 2], 99, exclude_seen=True)
    assert top.columns == ["user", "rank", "item", "score", "title"]
    scores = model.scorer().scores(np.array([4, 2]))
    for row, user in enumerate((4, 2)):
        mine = top.filter(pl.col("user") == user)
        assert mine["rank"].to_list() == list(range(1, N_ITEMS - LENGTH + 1))
        assert mine["score"].is_sorted(descending=True)
        np.testing.assert_allclose(mine["score"], scores[row][mine["item"].to_numpy()], rtol=1e-5)
        seen = rows().filter(pl.col("user") == user)["item"]
        assert not set(seen) & set(mine["item"])


def test_who_is_asked_with_others_gets_the_same_bits(model: RankingModel) -> None:
    together = model.recommend(list(range(60)), 3)
    for user in (0, 17, 59):
        alone = model.recommend(user, 3)
        assert alone.equals(together.filter(pl.col("user") == user))


def test_rules_hold(model: RankingModel) -> None:
    top = model.recommend(1, 99, items=[0, 1, 2, 3], exclude=[2], exclude_seen=False)
    assert set(top["item"]) == {0, 1, 3}
    top = model.recommend(1, 99, where={"series": 2}, exclude_seen=False)
    assert set(top["item"]) == {2, 6, 10, 14, 18}
    top = model.recommend(1, 99, max_per={"series": 1}, exclude_seen=False)
    assert sorted(item % 4 for item in top["item"]) == [0, 1, 2, 3]
    support = np.bincount(rows()["item"])
    top = model.recommend(1, 99, min_support=int(support.max()), exclude_seen=False)
    assert set(top["item"]) == set(np.flatnonzero(support == support.max()).tolist())


def test_what_was_done_is_scored_as_if_it_had_not_been(
    live: RankingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_state, "PAIRS_PER_PASS", 5)
    users = [3, 8, 1]
    told = live.recommend(users, 99, exclude_seen=False)
    assert told.height == 3 * N_ITEMS
    for user, item in ((3, 0), (8, 3), (1, -1)):
        item = rows().filter(pl.col("user") == user)["item"][item]
        found = told.filter(pl.col("user") == user, pl.col("item") == item)["score"][0]
        when = rows().filter(pl.col("user") == user, pl.col("item") == item)["timestamp"][0]
        live.remove([(user, item)])
        alone = live.recommend(user, 99).filter(pl.col("item") == item)["score"][0]
        assert found == pytest.approx(alone, rel=1e-5)
        live.observe([(user, item, 1.0, when)])
    assert live.recommend(users, 99, exclude_seen=False).equals(told)


def test_an_anonymous_user_is_somebody_who_is_new(live: RankingModel) -> None:
    anonymous = live.recommend(history=[7, 8, 9], n=99)
    assert anonymous.columns == ["rank", "item", "score", "title"]
    assert not set(anonymous["item"]) & {7, 8, 9}
    live.observe({"user": ["99"] * 3, "item": [7, 8, 9]})
    stored = live.recommend(99, 99).drop("user")
    # Those who did 7, 8 and 9 are one more now, so their own scores are as they were.
    assert stored["item"].to_list() == anonymous["item"].to_list()
    assert stored["score"].to_list() == anonymous["score"].to_list()


def test_what_an_anonymous_user_did_is_left_out_where_it_is_scored(model: RankingModel) -> None:
    whole = model.recommend(history=[7, 8, 9], n=99, exclude_seen=False)
    without = model.recommend(history=[7, 9], n=99)
    found, expected = (top.filter(pl.col("item") == 8)["score"][0] for top in (whole, without))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("form", ["list", "tuple", "series", "frame", "pandas"])
def test_a_history_can_be_of_many_forms(model: RankingModel, form: str) -> None:
    ids = [3, 4, 5]
    given: Any = {
        "list": ids,
        "tuple": ("3", "4", "5"),
        "series": pl.Series("anything", ids),
        "frame": pl.DataFrame({"item": ids, "rating": [1.0, 2.0, 3.0]}),
        "pandas": pd.DataFrame({"item": ids}),
    }[form]
    top = model.recommend(history=given, n=2)
    assert isinstance(top, pd.DataFrame if form == "pandas" else pl.DataFrame)
    assert list(top["item"]) == model.recommend(history=ids, n=2)["item"].to_list()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([3, 4, 3], "The item 3 is in the history more than once; give each item its last place"),
        (
            [(3, 5.0)],
            r"\(3, 5.0\) is not an item's id, and this model reads no ratings; give item ids",
        ),
        ([3, "x"], "'x' cannot stand in one column with 3"),
        ([3, None], "None in column 'item'"),
        (pl.DataFrame({"film": [3]}), "The history has no column 'item'"),
    ],
)
def test_a_history_that_is_none_is_explained(model: RankingModel, given: Any, message: str) -> None:
    with pytest.raises(CfuicaError, match=message):
        model.recommend(history=given)


def test_cold_start_users_are_served_or_refused(model: RankingModel) -> None:
    cold = model.recommend([777], 3)
    assert cold["user"].to_list() == [777] * 3
    state = model.live_model.state
    nobody = state.anonymous(np.empty(0, np.int32), np.empty(0, np.uint8))
    nothing = state.scores(state.item_logits([nobody]), np.array([[nobody.row]]))[0]
    assert cold["score"][0] == pytest.approx(float(nothing[:N_ITEMS].max()), rel=1e-6)
    for ask in (
        lambda: model.recommend([1, 777], unknown="error"),
        lambda: model.recommend(history=[3, 777], unknown="error"),
        lambda: model.explain(777, 3, unknown="error"),
        lambda: model.similar_items(777, unknown="error"),
    ):
        with pytest.raises(CfuicaError, match=r"777 .* is unknown to this model"):
            ask()
    assert model.recommend(history=[3, 4, 777], n=4).equals(model.recommend(history=[3, 4], n=4))


def test_a_new_item_is_ranked_once_it_was_observed(live: RankingModel) -> None:
    assert live.recommend(1, 99)["item"].max() < N_ITEMS
    live.observe([(2, 555)])
    top = live.recommend(1, 99)
    assert 555 in top["item"]
    assert top.filter(pl.col("item") == 555)["title"].to_list() == [None]
    assert 555 not in live.recommend(2, 99)["item"]


def test_users_and_a_history_are_too_much(model: RankingModel) -> None:
    with pytest.raises(CfuicaError, match="give the one or the other"):
        model.recommend(1, history=[2])
    with pytest.raises(CfuicaError, match="No user was given"):
        model.recommend(None)


def test_many_users_get_what_each_gets_alone(live: RankingModel) -> None:
    """To the bit, though matrix products choose the items."""
    live.observe([(9001, live.items.ids[0]), (live.users.ids[0], 9002)])
    users = [*live.users.ids.to_list(), 9001, 9999]
    assert len(users) > FEWEST_USERS
    for rules in ({}, {"exclude_seen": False}):
        expected = pl.concat([live.recommend(user, 2, **rules) for user in users])
        assert live.recommend(users, 2, **rules).equals(expected)
