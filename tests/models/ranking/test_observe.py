"""What a ranking model takes over from what it observes, beside the interactions themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.models.co_autoregressive import RankingModel
from cfuica.models.recommender import load
from tests.live.ranking_world import fresh

ABOUT = {"item": [10, 2, 9999], "title": ["The New One", "Another Name", "Nowhere"]}


def shown(model: RankingModel, item: int) -> str | None:
    title: str | None = model.recommend(9, 1, items=[item], exclude_seen=False)["title"][0]
    return title


def test_titles_of_new_items_and_new_titles_are_taken_over(tmp_path: Path) -> None:
    model = fresh("decay")
    before = shown(model, 3)
    model.observe(Interactions.from_frame({"user": [3, 4], "item": [10, 2]}, items=ABOUT))
    again = load(model.save(tmp_path / "model"))
    for one in (model, again):
        assert shown(one, 10) == "The New One"
        assert one.explain(9, 10).title == "The New One"
        assert (shown(one, 2), shown(one, 3)) == ("Another Name", before)
        assert 9999 not in one.items.ids


def test_a_rating_that_is_no_number_takes_nothing_back() -> None:
    model = fresh("decay")
    before = model.artifact
    nan = float("nan")
    for events in ([(3, 6, nan)], [(3, 6, np.float32("nan")), (3, 5, 1.0)],
                   pd.DataFrame({"user": [3], "item": [6], "rating": [nan]})):  # fmt: skip
        with pytest.raises(DataError, match=r"nan|NaN"):
            model.observe(events)
    assert model.artifact is before


def test_an_event_without_a_rating_is_an_interaction_and_removes_nothing(
    live: RankingModel,
) -> None:
    """As in training; a removal says so."""
    for events in ([(1, 99, None)], pl.DataFrame({"user": [2], "item": [99], "rating": [None]})):
        observed = live.observe(events)
        assert (observed.added, observed.removed) == (1, 0)
    assert live.observe(pl.DataFrame({"user": [2], "item": [99], "removed": [True]})).removed == 1
    assert live.remove([(1, 99)]).removed == 1
