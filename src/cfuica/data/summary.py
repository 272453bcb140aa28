"""Statistics of a table of interactions: counts, ratings, long tail, times.

`cfuica data show` prints them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.columns import EventCounts, date_of
from cfuica.data.table import Interactions
from cfuica.errors import DataError

FEW = 5  # Users and items with fewer interactions than this are counted separately.
TOP_SHARES = (0.01, 0.05, 0.1, 0.2)
MOST_BARS = 20  # More distinct ratings than this are binned into as many ranges.


@dataclass(frozen=True)
class Bar:
    """How many ratings lie from `low` to `high` (the same where a bar is one value)."""

    low: float
    high: float
    count: int

    @property
    def label(self) -> str:
        return f"{self.low:g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"


@dataclass(frozen=True, eq=False)
class Counts:
    """Interactions of each user, or of each item: (n,) in descending order, none of them 0."""

    counts: NDArray[np.int64]

    @classmethod
    def of(cls, ids: pl.Series) -> Counts:
        counts = ids.value_counts(name="count")["count"].to_numpy().astype(np.int64)
        return cls(np.sort(counts)[::-1])

    @property
    def size(self) -> int:
        return self.counts.size

    @property
    def few(self) -> int:
        """How many have fewer interactions than FEW."""
        return int(np.count_nonzero(self.counts < FEW))

    def quantiles(self) -> dict[str, int]:
        """Minimum, quartiles and maximum, without interpolation."""
        shares = {"min": 0.0, "25%": 0.25, "50%": 0.5, "75%": 0.75, "max": 1.0}
        values = np.quantile(self.counts, list(shares.values()), method="inverted_cdf")
        return dict(zip(shares, map(int, values), strict=True))

    def top_share(self, share: float) -> float:
        """The share of all interactions that the top share (at least one) of them has."""
        top = max(round(share * self.size), 1)
        return float(self.counts[:top].sum() / self.counts.sum())

    def long_tail(self, points: int = 200) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(top shares, the share of all interactions that each has), from 0."""
        total = np.concatenate([[0], np.cumsum(self.counts)])
        places = np.unique(np.linspace(0, self.size, points).astype(np.int64))
        return places / self.size, total[places] / total[-1]

    def as_json(self) -> dict[str, Any]:
        top = {f"{share:.0%}": self.top_share(share) for share in TOP_SHARES}
        return {**self.quantiles(), f"fewer_than_{FEW}": self.few, "share_of_the_top": top}


@dataclass(frozen=True, eq=False)
class Summary:
    """The statistics that `cfuica data show` prints."""

    source: str
    events: EventCounts  # The rows of the source; interactions are what remains of them.
    interactions: int
    per_user: Counts
    per_item: Counts
    item_space: int  # Size of the item vocabulary, which may have items without interactions.
    bars: tuple[Bar, ...]  # The ratings by value; empty where there are none.
    without_rating: int
    span: tuple[int, int] | None  # First and last time in seconds since 1970; None without times.
    # Share of the interactions with the same timestamp as another one of the same user.
    ties: float | None
    repeats_dropped: int
    notes: tuple[str, ...]

    @classmethod
    def of(cls, table: Interactions) -> Summary:
        frame = table.frame
        if "removed" in frame.columns:
            frame = frame.filter(~frame["removed"])
            if frame.is_empty():
                raise DataError(
                    f"{table.source} has only rows that remove interactions, and none to show; "
                    f"give a table that has some."
                )
        rated = frame["rating"].drop_nulls() if "rating" in frame.columns else None
        times = frame["timestamp"].to_numpy() if table.has_times else None
        return cls(
            source=table.source,
            events=table.events or EventCounts.of(table.frame),
            interactions=frame.height,
            per_user=Counts.of(frame["user"]),
            per_item=Counts.of(frame["item"]),
            item_space=table.item_ids.size,
            bars=() if rated is None else _bars(rated),
            without_rating=frame.height - (0 if rated is None else rated.len()),
            span=None if times is None else (int(times.min()), int(times.max())),
            ties=None if times is None else _ties(frame),
            repeats_dropped=table.repeats_dropped,
            notes=table.source_notes,
        )

    @property
    def density(self) -> float:
        """Share of observed pairs among all pairs of the users and items that occur."""
        return self.interactions / (self.per_user.size * self.per_item.size)

    def as_json(self) -> dict[str, Any]:
        first, last = map(date_of, self.span) if self.span else (None, None)
        return {
            "source": self.source,
            "rows": self.events.rows,
            "rows_by_type": dict(self.events.by_type),
            "rows_that_remove": self.events.removed,
            "sum_of_weights": self.events.weight,
            "interactions": self.interactions,
            "users": self.per_user.size,
            "items": self.per_item.size,
            "item_space": self.item_space,
            "density": self.density,
            "ratings": [asdict(bar) for bar in self.bars],
            "without_rating": self.without_rating,
            "per_user": self.per_user.as_json(),
            "per_item": self.per_item.as_json(),
            "first": first,
            "last": last,
            "ties": self.ties,
            "repeats_dropped": self.repeats_dropped,
            "notes": list(self.notes),
        }


def _bars(ratings: pl.Series) -> tuple[Bar, ...]:
    counted = ratings.value_counts(name="count").sort(ratings.name)
    values, counts = counted[ratings.name].to_numpy(), counted["count"].to_numpy()
    lows, highs = values, values
    if values.size > MOST_BARS:
        # Equal widths, by shares because high - low may overflow; rounding may swap close edges.
        share = np.linspace(0, 1, MOST_BARS + 1)
        edges = np.sort(values[0] * (1 - share) + values[-1] * share)
        lows, highs = edges[:-1], edges[1:]
        # The last range includes its upper end.
        ranges = np.searchsorted(edges[1:-1], values, side="right")
        counts = np.bincount(ranges, weights=counts, minlength=MOST_BARS)
    bars = zip(lows, highs, counts, strict=True)
    return tuple(Bar(float(low), float(high), int(count)) for low, high, count in bars)


def _ties(frame: pl.DataFrame) -> float:
    """By hashes, which take less memory than grouping by user and time."""
    second = pl.col("user").hash(seed=1) ^ pl.col("timestamp").hash(seed=2)
    return float(frame.select(second.is_duplicated().mean()).item())
