"""The numbers of a table, against counting by hand."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.datasets import resolve
from cfuica.data.summary import MOST_BARS, Counts, Summary
from cfuica.data.table import Interactions
from tests.conftest import find_data


def table_of(**columns: object) -> Interactions:
    return Interactions(pl.DataFrame(columns))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 8), st.integers(1, 5), st.integers(0, 3)),
        min_size=1,
        max_size=40,
        unique_by=lambda row: row[:2],
    )
)
def test_every_number_is_what_counting_gives(rows: list[tuple[int, int, int, int]]) -> None:
    users, items, ratings, times = zip(*rows, strict=True)
    summary = Summary.of(
        table_of(user=users, item=items, rating=[float(r) for r in ratings], timestamp=times)
    )
    n = len(rows)
    assert summary.interactions == n
    assert (summary.per_user.size, summary.per_item.size) == (len(set(users)), len(set(items)))
    assert summary.density == pytest.approx(n / (len(set(users)) * len(set(items))))
    assert {bar.low: bar.count for bar in summary.bars} == Counter(ratings)
    assert all(bar.low == bar.high for bar in summary.bars)
    assert summary.span == (min(times), max(times))
    moments = Counter(zip(users, times, strict=True))
    tied = sum(moments[user, time] > 1 for user, time in zip(users, times, strict=True))
    assert summary.ties == pytest.approx(tied / n)
    for counts, ids in ((summary.per_user, users), (summary.per_item, items)):
        by_hand = sorted(Counter(ids).values(), reverse=True)
        assert counts.counts.tolist() == by_hand
        assert counts.few == sum(count < 5 for count in by_hand)
        quantiles = counts.quantiles()
        assert (quantiles["min"], quantiles["max"]) == (by_hand[-1], by_hand[0])
        assert set(quantiles.values()) <= set(by_hand)
    json.dumps(summary.as_json())


def test_quarters_and_the_top_by_hand() -> None:
    counts = Counts(np.array([50, 20, 10, 10, 4, 2, 1, 1, 1, 1]))
    assert counts.quantiles() == {"min": 1, "25%": 1, "50%": 2, "75%": 10, "max": 50}
    assert counts.few == 6
    assert counts.top_share(0.01) == 0.5  # at least one
    assert counts.top_share(0.2) == counts.top_share(0.16) == 0.7
    top, share = counts.long_tail(points=3)
    assert top.tolist() == [0.0, 0.5, 1.0]
    assert share.tolist() == [0.0, 0.94, 1.0]


def test_a_long_tail_is_drawn_with_few_points() -> None:
    top, share = Counts(np.arange(100_000, 0, -1)).long_tail()
    assert top.size == share.size == 200
    assert np.all(np.diff(share) > 0)


def test_interactions_without_a_rating_are_counted_apart() -> None:
    summary = Summary.of(table_of(user=[1, 1, 2], item=[1, 2, 1], rating=[4.0, None, None]))
    assert summary.without_rating == 2
    assert [(bar.label, bar.count) for bar in summary.bars] == [("4", 1)]
    implicit = Summary.of(table_of(user=[1, 1, 2], item=[1, 2, 1]))
    assert (implicit.without_rating, implicit.bars) == (3, ())
    assert (implicit.span, implicit.ties) == (None, None)
    assert implicit.as_json()["first"] is None


def test_many_distinct_ratings_are_gathered_into_ranges() -> None:
    ratings = np.linspace(0, 100, 1001)
    ids = np.arange(1001)
    bars = Summary.of(table_of(user=ids, item=ids, rating=ratings)).bars
    assert len(bars) == MOST_BARS
    assert sum(bar.count for bar in bars) == 1001
    assert (bars[0].label, bars[-1].label) == ("0 to 5", "95 to 100")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("low", "high"), [(-1.7e308, 1.7e308), (0.0, 1e-322), (1.0, 1.0 + 1e-14)])
def test_ratings_of_any_size_are_gathered(low: float, high: float) -> None:
    rng = np.random.default_rng(0)
    share = rng.random(200)
    ratings = np.append(low * (1 - share) + high * share, [low, high])
    ids = range(ratings.size)
    bars = Summary.of(table_of(user=ids, item=ids, rating=ratings)).bars
    assert sum(bar.count for bar in bars) == ratings.size
    assert (bars[0].low, bars[-1].high) == (low, high)


def test_what_reading_dropped_and_noted_is_in_the_summary() -> None:
    frame = pl.DataFrame({"user": [1, 1, 1, 2], "item": [1, 1, 1, 1], "rating": [1.0, 2, 3, 4]})
    summary = Summary.of(Interactions.from_frame(frame))
    assert (summary.interactions, summary.repeats_dropped) == (2, 2)
    assert summary.notes[0].startswith("2 earlier interactions")


def test_listed_items_without_interactions_are_counted_apart() -> None:
    table = resolve("demo")
    assert Summary.of(table).item_space == table.item_ids.size
    unseen = Interactions(table.frame.filter(pl.col("item") > 3), item_space=table.item_space)
    summary = Summary.of(unseen)
    assert summary.item_space - summary.per_item.size >= 3


def test_movielens_is_full_of_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFUICA_DATA", str(find_data("ml-1m").parent))
    summary = Summary.of(resolve("ml-1m"))
    assert (summary.interactions, summary.per_user.size, summary.per_item.size) == (
        1_000_209,
        6040,
        3706,
    )
    assert summary.ties == pytest.approx(0.774, abs=0.001)
