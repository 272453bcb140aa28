"""Why a rating is predicted, and who is alike."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pytest

from cfuica.errors import DataError, SettingsError
from cfuica.models.co_autoregressive import RatingModel
from tests.runs.small import small_table


def test_an_explanation_is_of_what_is_predicted(with_cold: RatingModel) -> None:
    for user, item in ((3, 5), (3, 7), (9999, 5), (3, 9999)):
        pair = {"user": [user], "item": [item]}
        explanation = with_cold.explain(user, item)
        assert (explanation.user, explanation.item) == (user, item)
        expected = with_cold.predict(pair)["prediction"][0]
        assert explanation.expected == pytest.approx(expected, abs=1e-5)
        p_k = with_cold.predict_proba(pair)[0]
        assert explanation.distribution["probability"].to_list() == pytest.approx(p_k.tolist())
        assert explanation.distribution["rating"].to_list() == [1, 2, 3, 4, 5]


def test_a_change_is_what_taking_the_interaction_back_changes(live: RatingModel) -> None:
    live.observe([(3, 700, 5.0), (4, 700, 1.0)])  # an item that is new
    pair = {"user": [3], "item": [5]}
    before = live.explain(3, 5)
    assert 700 in before.history["item"]
    for item, rating, change in before.history.head(4).select("item", "rating", "change").rows():
        live.remove([(3, item)])
        without = live.explain(3, 5).expected
        assert before.expected - without == pytest.approx(change, abs=1e-9)
        assert live.predict(pair)["prediction"][0] == pytest.approx(without, abs=1e-5)
        live.observe([(3, item, rating)])
    after = live.explain(3, 5).as_json()
    assert after == before.as_json() | {"sequence": after["sequence"]}


def test_titles_and_ids_are_those_of_the_data(with_cold: RatingModel) -> None:
    items = small_table().items
    assert items is not None
    titles = dict(items.select("item", "title").iter_rows())
    explanation = with_cold.explain("3", "5")
    assert (explanation.user, explanation.item, explanation.title) == (3, 5, titles[5])
    for item, title in explanation.history.select("item", "title").iter_rows():
        assert title == titles[item]
    assert with_cold.explain("x", "y").item == "y"


def test_equal_changes_are_in_the_order_of_the_ids(live: RatingModel) -> None:
    live.observe([(1000, item, 4.0) for item in (803, 801, 802)])
    history = live.explain(1000, 5).history
    assert history["change"].n_unique() == 1
    assert history["item"].to_list() == [801, 802, 803]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((None, 5), "of a user or of a history: give one of them"),
        (([3, 4], 5), "2 users were given, but one is asked for"),
        ((3, [5, 6]), "2 items were given, but one is asked for"),
        ((3, []), "0 items were given"),
        ((3, [None]), "item in row 1 is missing"),
    ],
)
def test_what_cannot_be_explained_is_said(
    with_cold: RatingModel, asked: tuple[Any, Any], message: str
) -> None:
    with pytest.raises((DataError, SettingsError), match=message):
        with_cold.explain(*asked)


def test_a_user_and_a_history_are_one_too_many(with_cold: RatingModel) -> None:
    with pytest.raises(SettingsError, match="give one of them"):
        with_cold.explain(3, 5, history=[(1, 5.0)])


def test_unknown_ids_are_refused_where_that_is_asked_for(with_cold: RatingModel) -> None:
    for user, item in ((9999, 5), (3, 9999)):
        with pytest.raises(DataError, match=r"9999 .* is unknown"):
            with_cold.explain(user, item, unknown="error")


# Who is alike.


@pytest.mark.parametrize("role", ["user", "item"])
def test_both_axes_are_asked_in_the_same_way(live: RatingModel, role: str) -> None:
    ask = {"user": live.similar_users, "item": live.similar_items}[role]
    found = ask([3, "5"][:1], 4)
    assert found.columns[:4] == [role, "rank", "similar", "score"]
    assert found["rank"].to_list() == [1, 2, 3, 4]
    assert ask("3", 4).equals(found)
    assert ask([3, 3], 4).equals(found)
    assert isinstance(ask(pd.Series([3]), 4), pd.DataFrame)
    both = ask([5, 3], 4)
    assert both[role].to_list() == [5] * 4 + [3] * 4
    assert both.filter(pl.col(role) == 3).equals(found)
    with pytest.raises(SettingsError, match="min_support is -1, but it is how many ratings"):
        ask(3, min_support=-1)
    with pytest.raises(DataError, match=f"No {role} was given"):
        ask(None)
    assert ask([]).equals(found.clear())
    with pytest.raises(SettingsError, match="n is 0"):
        ask(3, 0)
    with pytest.raises(SettingsError, match="min_support is 'few'"):
        ask(3, min_support="few")
    with pytest.raises(DataError, match=f"{role} 9999 .* is unknown"):
        ask(9999, unknown="error")
    nothing = f"Nothing is known of the {role} 9999 .* has no interactions"
    with pytest.raises(DataError, match=nothing):
        ask(9999)


def test_a_new_user_is_like_who_rated_alike(live: RatingModel) -> None:
    twin = live.explain(3, 5).history.select("item", "rating").rows()
    live.observe([(1000, item, rating) for item, rating in twin])
    first = live.similar_users(1000, 1)
    assert first["similar"].to_list() == [3]
    assert first["score"].to_list() == pytest.approx([1], abs=1e-4)
    assert 1000 not in live.similar_users(3, 100, min_support=len(twin) + 2)["similar"]
