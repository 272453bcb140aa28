"""What a model takes in besides ratings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cfuica
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.models.co_autoregressive import RatingModel
from tests.runs.small import TINY, small_table

EVENTS = {"user": [3, 4, 3], "item": [700, 700, 5], "rating": [5.0, 4.0, 2.0]}
ABOUT = {"item": [700, 5, 9999], "title": ["The New One", "Another Name", "Nowhere"]}


def shown(model: RatingModel, item: int) -> str | None:
    title: str | None = model.recommend(9, 1, items=[item], exclude_seen=False)["title"][0]
    return title


def test_titles_of_new_items_and_new_titles_are_taken_over(
    live: RatingModel, tmp_path: Path
) -> None:
    before = shown(live, 6)
    live.observe(Interactions.from_frame(EVENTS, items=ABOUT))
    again = cfuica.load(live.save(tmp_path / "model"))
    for model in (live, again):
        assert shown(model, 700) == "The New One"
        assert model.explain(9, 700).title == "The New One"
        assert (shown(model, 5), shown(model, 6)) == ("Another Name", before)
    assert again.artifact.items.size == 61


def test_a_title_may_come_later(live: RatingModel) -> None:
    live.observe([(3, 700, 5.0)])
    assert shown(live, 700) is None
    live.observe(
        Interactions.from_frame({"user": [4], "item": [700], "rating": [4.0]}, items=ABOUT)
    )
    assert shown(live, 700) == "The New One"


def test_a_model_without_titles_learns_some(tmp_path: Path) -> None:
    model = RatingModel(TINY).fit(small_table().frame)
    assert "title" not in model.recommend(9, 1).columns
    model.observe(Interactions.from_frame(EVENTS, items=ABOUT))
    again = cfuica.load(model.save(tmp_path / "model"))
    for one in (model, again):
        assert shown(one, 700) == "The New One"
        assert shown(one, 5) == "Another Name"
        assert shown(one, 6) is None
    table = again.artifact.item_metadata
    assert table is not None
    assert table["item"].to_list() == sorted({*range(1, 61), 700})
    assert table.filter(pl.col("title").is_not_null()).height == 2


NAN = float("nan")
FRAME = pd.DataFrame({"user": [3, 3], "item": [5, 6], "rating": [4.0, NAN]})


@pytest.mark.parametrize(
    "events",
    [
        FRAME,
        FRAME.astype({"rating": "float32"}),
        FRAME.astype({"rating": object}),
        [(3, 5, 4.0), (3, 6, NAN)],
        [(3, 6, np.float32("nan"))],
        {"user": [3], "item": [6], "rating": [NAN]},
        pl.DataFrame({"user": [3], "item": [6], "rating": [NAN]}),
        pa.table({"user": [3], "item": [6], "rating": pa.array([NAN], from_pandas=False)}),
    ],
)
def test_a_rating_that_is_no_number_takes_nothing_back(live: RatingModel, events: Any) -> None:
    """Where a computation went wrong nobody asked for a deletion."""
    live.observe([(3, 5, 1.0), (3, 6, 1.0)])
    before = live.artifact.interactions.sha256()
    with pytest.raises(
        DataError, match=r"^Row \d \(from 0\) .* has nan in column 'rating'"
    ) as caught:
        live.observe(events)
    assert str(caught.value).count(". ") == 0, "one sentence"
    assert live.artifact.interactions.sha256() == before


UNRATED = [
    FRAME.astype({"rating": "Float64"}),
    pd.DataFrame({"user": [3], "item": [6], "rating": pd.Series([None], dtype=object)}),
    pl.DataFrame({"user": [3], "item": [6], "rating": [None]}),
    pl.DataFrame({"user": [3], "item": [6], "rating": [None], "removed": [False]}),
    [(3, 6, None)],
]


@pytest.mark.parametrize("events", UNRATED)
def test_an_event_without_a_rating_is_refused_and_removes_nothing(
    live: RatingModel, events: Any
) -> None:
    live.observe([(3, 6, 1.0)])
    before = live.snapshot().interactions.sha256()
    message = r"user 3 and item 6 in a frame has no rating; .* a column 'removed', model.remove or"
    with pytest.raises(DataError, match=message):
        live.observe(events)
    assert live.snapshot().interactions.sha256() == before


@pytest.mark.parametrize("removed", [[False, True], ["no", "yes"], [0, 1], ["", "TRUE"]])
def test_a_column_says_which_events_are_removals(live: RatingModel, removed: list[Any]) -> None:
    live.observe([(3, 6, 1.0)])
    events = {"user": [3, 3], "item": [5, 6], "rating": [2.0, None], "removed": removed}
    observed = live.observe(pl.DataFrame(events))
    assert (observed.added + observed.changed, observed.removed) == (1, 1)
    assert live.observe(pd.DataFrame({"user": [3], "item": [5], "removed": [True]})).removed == 1


@pytest.mark.parametrize(
    "pairs",
    [
        [(3, 6), (3, 6), (3, 99)],
        pd.DataFrame({"user": [3], "item": [6], "rating": [NAN]}),
        Interactions.from_frame({"user": [3], "item": [6], "rating": [4.0]}),
    ],
)
def test_remove_takes_interactions_back(live: RatingModel, pairs: Any) -> None:
    asked = {"user": [3, 4], "item": [7, 6]}
    live.remove([(3, 6)])
    before = live.predict(asked)
    live.observe([(3, 6, 1.0)])
    assert not live.predict(asked).equals(before)
    assert live.remove(pairs).removed == 1
    assert live.predict(asked).equals(before)
    assert live.remove(pairs).removed == 0


@pytest.mark.parametrize(
    "events",
    [
        [],
        pl.DataFrame({"user": [], "item": [], "rating": []}),
        pd.DataFrame({"user": [], "item": []}),
    ],
)
def test_a_day_without_events_is_fine(live: RatingModel, events: Any) -> None:
    before = live.snapshot().interactions.sha256()
    for observed in (live.observe(events), live.remove(events)):
        assert (observed.added, observed.changed, observed.removed) == (0, 0, 0)
    assert live.snapshot().interactions.sha256() == before


def test_metadata_is_updated_without_events_and_a_wrong_type_changes_nothing(
    live: RatingModel,
) -> None:
    note = live.update_items({"item": ["5"], "title": ["Renamed"], "price": [1.5]})
    assert note == "the items frame has metadata of 1 of 60 items."
    assert shown(live, 5) == "Renamed"
    before = live.snapshot().interactions.n_interactions
    wrong = {"item": [5], "price": ["free"]}
    with pytest.raises(DataError, match="'price' of the items frame holds String"):
        live.observe(Interactions.from_frame(EVENTS, items=wrong))
    assert live.snapshot().interactions.n_interactions == before
    assert live.recommend(9, 60, where=pl.col("price") < 2, exclude_seen=False)[
        "item"
    ].to_list() == [5]
