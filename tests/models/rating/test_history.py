"""An anonymous user and brings a history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cfuica.errors import DataError
from cfuica.models.co_autoregressive import RatingModel

HISTORY = [(1, 5.0), (7, 2.0), (12, 4.0)]


def as_frame() -> pl.DataFrame:
    return pl.DataFrame(HISTORY, schema=["item", "rating"], orient="row")


@pytest.mark.parametrize(
    "history",
    [
        tuple(HISTORY),
        HISTORY[::-1],
        [[np.int64(item), int(rating)] for item, rating in HISTORY],
        [(str(item), rating, "more") for item, rating in HISTORY],
        as_frame(),
        as_frame().lazy(),
        as_frame().with_columns(user=9, timestamp=3),
        as_frame().to_dict(as_series=False),
    ],
)
def test_a_history_may_be_given_in_any_form(with_cold: RatingModel, history: Any) -> None:
    top = with_cold.recommend(history=history)
    assert top.columns == ["rank", "item", "score", "title"]
    assert top.equals(with_cold.recommend(history=HISTORY))
    assert set(top["item"]).isdisjoint({1, 7, 12})


def test_the_list_is_of_the_library_the_history_is_of(with_cold: RatingModel) -> None:
    top = with_cold.recommend(history=as_frame().to_pandas())
    assert isinstance(top, pd.DataFrame)
    assert pl.DataFrame(top).equals(with_cold.recommend(history=HISTORY))


@pytest.mark.parametrize("by", ["expected", "lower", "blend"])
def test_an_anonymous_user_gets_what_a_new_user_with_the_same_ratings_gets(
    live: RatingModel, by: Any
) -> None:
    """Of items that they did not rate: nobody else's ratings of these are any other."""
    anonymous = live.recommend(history=HISTORY, n=1000, by=by, min_support=0)
    live.observe([(1000, item, rating) for item, rating in HISTORY])
    newcomer = live.recommend(1000, 1000, by=by, min_support=0).drop("user")
    if by == "blend":  # three ratings more change the mean support
        columns = ["rank", "item"]
        assert newcomer.select(columns).equals(anonymous.select(columns))
    else:
        assert newcomer.equals(anonymous)


def test_an_item_of_the_history_is_left_out_of_its_own_score(live: RatingModel) -> None:
    top = live.recommend(history=HISTORY, n=1000, by="expected", exclude_seen=False)
    scores = dict(top.select("item", "score").iter_rows())
    for at, (item, _) in enumerate(HISTORY):
        others = HISTORY[:at] + HISTORY[at + 1 :]
        alone = live.recommend(history=others, items=item, by="expected")
        assert alone["score"].to_list() == [scores[item]]


def test_of_unknown_items_nothing_is_read(with_cold: RatingModel) -> None:
    more = [*HISTORY, (999, 1.0), (1000, 5.0)]
    top = with_cold.recommend(history=more)
    assert top.equals(with_cold.recommend(history=HISTORY))
    assert with_cold.recommend(history=[(999, 1.0)]).height == 10
    with pytest.raises(DataError, match=r"item 999 \(row 4\) is unknown to this model, like 1"):
        with_cold.recommend(history=more, unknown="error")


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([(1, 5.0), (2, 6.0)], "rating 6 of the item 2 is not on the label scale"),
        ([(1, 5.0), (7, 2.0), (1, 4.0)], "item 1 is in the history more than once"),
        ([(1, 5.0), (7, None)], r"Row 1 \(from 0\) of the history has None in column 'rating'"),
        ([(None, 5.0)], r"Row 0 \(from 0\) of the history has None in column 'item'"),
        ([(1, "good")], "'good' in column 'rating'"),
        ([(1, float("nan"))], "nan in column 'rating'"),
        ([(1,)], r"interaction of the history \(1,\) is not of the form \(item, rating\)"),
        ([7], "interaction of the history 7 is not of the form"),
        ([(1, 5.0), ("x", 5.0)], "item 'x' cannot stand in one column with 1"),
        (pl.DataFrame({"item": [1]}), "no column 'rating': its columns are item"),
        (pl.DataFrame({"rating": [1]}), "no column 'item'"),
        ("1:5", "a polars, pandas or pyarrow table was expected"),
        (7, "a polars, pandas or pyarrow table was expected"),
    ],
)
def test_a_history_that_cannot_be_read_is_explained_in_a_sentence(
    with_cold: RatingModel, history: Any, message: str
) -> None:
    for ask in (
        lambda: with_cold.recommend(history=history),
        lambda: with_cold.explain(None, 1, history=history),
    ):
        with pytest.raises(DataError, match=message) as caught:
            ask()
        assert str(caught.value).endswith(".")
        assert ". " not in str(caught.value)
