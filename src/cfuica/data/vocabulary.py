"""External ids and ratings as indices, and back.

`Vocabulary` maps the user ids or item ids of some data to 0..n-1. Ids are strings or integers and
keep the type that the data has. `LiveVocabulary` is that of a model in use, whose ids come and go.

`LabelScale` has the ordered labels that the rating model predicts a distribution over. Ratings with
few distinct values are a label each. Ratings with many (a slider) are binned, and the
value of a label is the mean of the training ratings in its bin. So the mean of a predicted
distribution is an expected rating on the scale of the data.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from cfuica.errors import DataError
from cfuica.forks import polars_is_lost


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Id `ids[i]` has index i; the ids are unique and sorted, and keep the caller's type."""

    ids: pl.Series

    @classmethod
    def from_ids(cls, ids: pl.Series) -> Vocabulary:
        """The distinct ids: integers in numerical order, strings in lexicographical order."""
        ids = as_ids(ids)
        if ids.null_count():
            raise DataError(
                f"{ids.null_count()} of {ids.len()} ids in column '{ids.name}' are missing; "
                f"every interaction needs a user and an item."
            )
        return cls(ids.unique().sort().rename("id"))

    def __repr__(self) -> str:
        first, last = (self.ids[:3].to_list(), self.ids[3:][-1:].to_list())
        shown = ", ".join(map(repr, first)) + (", ..., " if self.size > 4 else ", " if last else "")
        return f"Vocabulary({self.size:,} ids: {shown}{''.join(map(repr, last))})"

    @property
    def size(self) -> int:
        """How many ids there are."""
        return self.ids.len()

    def encode(self, ids: pl.Series) -> NDArray[np.int32]:
        """(n,) indices of n ids; -1 where an id is unknown.

        Strings match integers by their text, because a command line can only pass "42".
        """
        asked, own = as_ids(ids), self.ids
        if asked.dtype != own.dtype:
            if asked.dtype.is_integer() and own.dtype.is_integer():
                # Not strict: an id that does not fit the type of the vocabulary is unknown.
                asked = asked.cast(own.dtype, strict=False)
            else:
                asked, own = asked.cast(pl.String), own.cast(pl.String)
        if polars_is_lost():
            index_of = dict(zip(own.to_list(), range(own.len()), strict=True))
            return np.array([index_of.get(one, -1) for one in asked.to_list()], np.int32)
        indices = pl.int_range(own.len(), dtype=pl.Int32, eager=True)
        return asked.replace_strict(own, indices, default=-1).to_numpy(writable=True)

    def decode(self, indices: ArrayLike) -> pl.Series:
        """The ids of (n,) indices within 0..size-1."""
        index = np.asarray(indices, dtype=np.int64)
        wrong = np.flatnonzero((index < 0) | (index >= self.size))
        if wrong.size:
            raise DataError(
                f"Index {index[wrong[0]]} at position {wrong[0]} belongs to no id: expected "
                f"0 to {self.size - 1}."
            )
        return self.ids.gather(pl.Series(index, dtype=pl.Int64))


def as_ids(ids: pl.Series) -> pl.Series:
    """Cast a column of ids to an integer or string type; refuse other values."""
    if ids.dtype.is_integer() or ids.dtype == pl.String:
        return ids
    if ids.dtype in (pl.Categorical, pl.Enum, pl.Null):
        return ids.cast(pl.String)
    if ids.dtype.is_float():
        # pandas turns a column of integers into floats at the first missing value.
        whole = ids.cast(pl.Int64, strict=False)
        changed = (whole.cast(ids.dtype) != ids).fill_null(False) | (
            whole.is_null() & ids.is_not_null() & ids.is_not_nan().fill_null(False)
        )
        if not changed.any():
            return whole
        raise DataError(
            f"Column '{ids.name}' holds the id {ids.filter(changed)[0]}, but ids are whole numbers "
            f"or text; cast the column to one of them."
        )
    raise DataError(
        f"Column '{ids.name}' has type {ids.dtype}, but ids are whole numbers or text; cast the "
        f"column to one of them."
    )


def _plain(ids: pl.Series) -> pl.Series:
    """Ids as text without what makes two forms of one: spaces, case, leading zeros, a final .0."""
    text = ids.cast(pl.String).str.strip_chars().str.to_lowercase()
    return text.str.replace(r"\.0+$", "").str.replace(r"^0+(.)", "$1")


# A label index takes one byte.
MAX_LABELS = 255
# Up to this many distinct ratings are a label each; more are binned.
MAX_DISTINCT = 20
DEFAULT_BINS = 20
# Predictions are 32-bit numbers, and the square of an error must be finite.
LARGEST = float(np.finfo(np.float32).max)
# From this many ratings on, finding the distinct ones is faster than looking up each.
_WORTH_SORTING = 10_000
# Ratings that are looked up at a time, to limit the memory of intermediate 8-byte indices.
_SLICE = 1 << 20

# So many ids are looked up one by one faster than together.
FEW = 16


class LiveVocabulary:
    """The ids of users or of items: those of the artifact first, then new ones in order of arrival.

    Between the two is the unknown index: an id that the model does not know is served with it, as a
    cold-start user or item without interactions.

    A *name* is an id in the type of this model's ids: a string, or a whole number. Strings match
    whole numbers by their text, as in `Vocabulary`.
    """

    def __init__(self, role: str, base: Vocabulary) -> None:
        self.role = role
        self._base = base
        self._added: dict[Any, int] = {}
        self._names: list[Any] = []
        """Of new ids, by index; None where forgotten."""
        self._gone: set[int] = set()
        """Forgotten indices of the artifact."""

    @property
    def unknown_index(self) -> int:
        """The index of every id that the model does not know."""
        return self._base.size

    @property
    def n_indices(self) -> int:
        """How many indices there are: those of forgotten ids and the unknown index too."""
        return self.unknown_index + 1 + len(self._names)

    @property
    def size(self) -> int:
        """How many ids the model knows."""
        return self._base.size + len(self._added) - len(self._gone)

    @property
    def example(self) -> str:
        """An id of the vocabulary, for error messages."""
        for index in range(self._base.size):
            if index not in self._gone:
                return f", such as {self._base.ids[index]!r}"
        return f", such as {next(iter(self._added))!r}" if self._added else ""

    def encode(self, ids: pl.Series) -> np.ndarray:
        """(n,) int32 indices of n ids; -1 where an id is unknown or forgotten."""
        if not len(ids):  # nothing of polars, which may start its threads
            return np.empty(0, np.int32)
        if len(ids) <= FEW:
            found = [-1 if name is None else self.find(name) for name in self.names(ids)]
            return np.array(found, np.int32)
        index = self._base.encode(ids)
        if self._gone:
            index[np.isin(index, list(self._gone))] = -1
        if self._added:
            unknown = np.flatnonzero(index < 0)
            names = self.names(ids.gather(unknown))
            index[unknown] = [self._added.get(name, -1) for name in names]
        return index

    def find(self, name: Any) -> int:
        """The index of one name, or -1; much faster than `encode`."""
        index = self._added.get(name)
        if index is not None:
            return index
        index = bisect_left(self._base.ids, name)
        is_there = index < self._base.size and self._base.ids[index] == name
        return index if is_there and index not in self._gone else -1

    def decode(self, indices: np.ndarray) -> pl.Series:
        """The ids of (n,) indices; null for the unknown index."""
        is_own = indices < self.unknown_index
        own = self._base.ids.gather(
            pl.Series(indices, dtype=pl.Int64).set(pl.Series(~is_own), None)
        )
        if is_own.all():
            return own
        new = np.flatnonzero(~is_own)
        names = [self._name(int(index)) for index in indices[new]]
        return own.cast(self._dtype).scatter(new, pl.Series(names, dtype=self._dtype))

    def names(self, ids: pl.Series) -> pl.Series:
        """The names of n ids, null where an id is of another type than this model's."""
        given = as_ids(ids)
        names = given.cast(self._dtype, strict=False)
        if given.dtype == pl.String and self._dtype != pl.String:
            # "007" is the text of no whole number, whatever it would be read as.
            names = names.set(~names.cast(pl.String).eq_missing(given), None)
        return names

    def name(self, one: str | int) -> Any:
        """The name of one id, None where it is of another type than this model's."""
        if self._dtype == pl.String:
            return str(one)
        if self._dtype == pl.Int64 and isinstance(one, int):
            return one
        return self.names(pl.Series(self.role, [one]))[0]

    def shown(self, ids: pl.Series) -> pl.Series:
        """Ids as results show them: in the type of this model's ids, where all of them fit it."""
        names = self.names(ids)
        return names if not names.null_count() else ids

    def other_form(self, one: Any) -> Any:
        """A known id that may be the unknown `one` in another form ("00001", "1.0", "AB" for "ab"),
        or None."""
        stored = self.decode(self.present())
        same = stored.filter(_plain(stored) == _plain(pl.Series([one]))[0])
        return same[0] if len(same) else None

    def check(self, ids: pl.Series) -> None:
        """Refuse ids of a type that this model does not have."""
        wrong = ids.filter(self.names(ids).is_null())
        if len(wrong):
            raise DataError(
                f"The {self.role} {wrong[0]!r} cannot be added: this model's {self.role} ids are "
                f"whole numbers{self.example}; use ids of the same type."
            )

    def add(self, names: Iterable[Any]) -> int:
        """Add names that are unknown, at the indices that follow; returns how many."""
        new = list(dict.fromkeys(names))
        first = self.n_indices
        self._added |= {name: first + at for at, name in enumerate(new)}
        self._names += new
        return len(new)

    def forget(self, index: int) -> None:
        """Make an id unknown; if it comes again, it is a new user or item."""
        if index < self.unknown_index:
            self._gone.add(index)
        else:
            del self._added[self._name(index)]
            self._names[index - self.unknown_index - 1] = None

    def present(self) -> np.ndarray:
        """(n,) int32: the indices of all known ids, in the order of the ids."""
        own = np.delete(np.arange(self._base.size, dtype=np.int32), list(self._gone))
        if not self._added:
            return own
        new = np.fromiter(self._added.values(), np.int32)
        indices = np.concatenate((own, new))
        ids = self.decode(indices)
        if polars_is_lost():
            names = ids.to_list()
            order = np.array(sorted(range(len(names)), key=names.__getitem__))
        else:
            order = ids.arg_sort().to_numpy()
        by_id: np.ndarray = indices[order]
        return by_id

    @property
    def _dtype(self) -> pl.DataType:
        """Wide enough for new ids."""
        stored = self._base.ids.dtype
        if stored == pl.UInt64:
            return pl.UInt64()
        return pl.Int64() if stored.is_integer() else pl.String()

    def _name(self, index: int) -> Any:
        if index == self.unknown_index:
            return None
        if index < self.unknown_index:
            return self._base.ids[index]
        return self._names[index - self.unknown_index - 1]


@dataclass(frozen=True)
class LabelScale:
    """K values in ascending order; label index k means `values[k]`."""

    values: tuple[float, ...]
    # K - 1 bin edges: label k holds the ratings edges[k - 1] <= rating < edges[k].
    edges: tuple[float, ...] | None = None
    # One sentence about the binning, for the log; empty without bins.
    note: str = field(default="", compare=False)

    @classmethod
    def of(
        cls, train: pl.Series, whole: pl.Series | None = None, *, bins: int = DEFAULT_BINS
    ) -> LabelScale:
        """The scale for training on the ratings `train`, a subset of `whole`.

        At most 20 distinct values in `whole` are a label each. More are put into at most `bins`
        bins of about equal mass, as far as ties allow. Edges and values then come from `train`
        alone, because nothing may be learned from the test set.
        """
        distinct = _distinct(train if whole is None else whole)
        if distinct.len() <= MAX_DISTINCT:
            return cls(tuple(distinct.to_list()))
        ordered = train.cast(pl.Float64).sort().to_numpy()
        # The position at which each distinct value ends.
        ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, ordered.size)
        _refuse_one_label(train.name, ordered[ends - 1])
        parts = np.split(ordered, _cuts(ends, bins))
        return cls(
            # Rounding must not take a mean out of its bin.
            tuple(float(np.clip(part.mean(), part[0], part[-1])) for part in parts),
            tuple(_between(part[-1], after[0]) for part, after in pairwise(parts)),
            f"{distinct.len():,} distinct ratings from {distinct[0]:g} to {distinct[-1]:g}: binned "
            f"into {len(parts)} labels of about equal mass as far as ties allow.",
        )

    @classmethod
    def restored(cls, values: list[float], edges: list[float] | None) -> LabelScale:
        """The scale of a saved model; an invalid one is a ValueError."""
        rows = [np.asarray(row, dtype=np.float64) for row in (values, edges or [])]
        if not all(_usable(row).all() and (np.diff(row) > 0).all() for row in rows):
            raise ValueError("the label scale is not finite and ascending")
        if (
            not 2 <= len(values) <= MAX_LABELS
            or (edges is not None) * (len(values) - 1) != rows[1].size
        ):
            raise ValueError(f"the label scale has {len(values)} values and {rows[1].size} edges")
        return cls(tuple(rows[0].tolist()), None if edges is None else tuple(rows[1].tolist()))

    @property
    def size(self) -> int:
        """K."""
        return len(self.values)

    @property
    def is_binned(self) -> bool:
        """Whether a label is a range of ratings."""
        return self.edges is not None

    def encode(
        self, ratings: pl.Series | ArrayLike, place: Callable[[int], str] = "at position {}".format
    ) -> NDArray[np.uint8]:
        """(n,) label indices of (n,) ratings.

        A rating that is none of the values is an error that names its `place`, a function of its
        number from 0. A binned scale accepts every rating; those beyond its ends go to the end
        bins.
        """
        if not isinstance(ratings, pl.Series):
            ratings = pl.Series(np.asarray(ratings, dtype=np.float64))
        rating = ratings.cast(pl.Float64).to_numpy()
        # Many ratings have few distinct values, and only these are checked.
        few = self.is_binned or rating.size < _WORTH_SORTING
        checked = rating if few else ratings.cast(pl.Float64).unique().to_numpy()
        if self._off(checked).any():
            at = int(np.argmax(self._off(rating)))
            shown = ", ".join(f"{value:g}" for value in self.values[:12])
            more = ", ..." if self.size > 12 else ""
            raise DataError(
                f"The rating {rating[at]:g} {place(at)} is not on the label scale ({shown}{more}); "
                f"use data with the same ratings as the training data."
            )
        label = np.empty(rating.size, dtype=np.uint8)
        for start in range(0, rating.size, _SLICE):
            part = slice(start, start + _SLICE)
            label[part] = self._nearest(rating[part])
        return label

    def values_array(self) -> NDArray[np.float32]:
        """(K,) the values, for the mean of a distribution over labels."""
        return np.asarray(self.values, dtype=np.float32)

    def _nearest(self, rating: NDArray[np.float64]) -> NDArray[np.int64]:
        """(n,) the label nearest to each rating."""
        middles = [_between(low, high) for low, high in pairwise(self.values)]
        return np.searchsorted(self.edges or middles, rating, side="right")

    def _off(self, rating: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(n,) which ratings are not on the scale."""
        if self.is_binned:
            return ~_usable(rating)
        nearest = np.asarray(self.values)[self._nearest(rating)]
        # Close rather than equal: 0.1 may have 32 bits in one file and 64 in another.
        close: NDArray[np.bool_] = np.isclose(nearest, rating, rtol=1e-6, atol=1e-9)
        return ~close


def _usable(ratings: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n,) which ratings are finite and no larger than a prediction can be."""
    usable: NDArray[np.bool_] = np.abs(ratings) <= LARGEST
    return usable


def _distinct(ratings: pl.Series) -> pl.Series:
    """The distinct ratings in ascending order, at least two, all of them usable."""
    values = ratings.cast(pl.Float64).unique().sort()
    usable = _usable(values.to_numpy())
    if not usable.all():
        found = values.filter(~usable)[0]
        raise DataError(
            f"Column '{ratings.name}' has the rating {found}, but a rating must be a finite number "
            f"from -{LARGEST:.2g} to {LARGEST:.2g}; remove or rescale such ratings."
        )
    _refuse_one_label(ratings.name, values.to_numpy())
    return values


def _refuse_one_label(name: str, distinct: NDArray[np.float64]) -> None:
    if distinct.size < 2:
        found = f"only the rating {distinct[0]:g}" if distinct.size else "no rating at all"
        raise DataError(
            f"Column '{name}' holds {found}, but one label leaves nothing to predict: "
            f"expected at least 2 distinct values; check that it is the rating column."
        )


def _cuts(ends: NDArray[np.int64], bins: int) -> list[int]:
    """Where to cut n ordered ratings into at most `bins` bins of about equal size.

    A distinct value is never cut in two, so cuts are among `ends`, the positions where the distinct
    values end, the last one at n: each is the one nearest to an equal share. Around values with
    more than a bin's share some cuts coincide; each bin saved halves the largest bin of several
    values. A bin of several values has at most n / bins ratings and those of its most frequent
    value.
    """
    inner, n = ends[:-1], int(ends[-1])
    cuts = {_nearest(inner, n * step / bins) for step in range(1, bins)}
    while len(cuts) < min(bins - 1, inner.size):
        edges = np.array([0, *sorted(cuts), n])
        first = np.searchsorted(inner, edges[:-1], side="right")
        last = np.searchsorted(inner, edges[1:])
        largest = np.argmax(np.where(first < last, np.diff(edges), 0))
        inside = inner[first[largest] : last[largest]]
        cuts.add(_nearest(inside, edges[largest : largest + 2].mean()))
    return sorted(cuts)


def _nearest(ascending: NDArray[np.int64], wanted: float) -> int:
    """The number nearest to `wanted`."""
    return int(ascending[np.argmin(np.abs(ascending - wanted))])


def _between(low: float, high: float) -> float:
    """The middle of low < high: above low, and not above high, however close they are."""
    middle = low / 2 + high / 2
    return float(middle) if low < middle <= high else float(high)
