"""`Vocabulary`: the user ids or item ids of some data, mapped to indices 0..n-1 and back.

Ids are strings or integers and keep the type that the data has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from cfuica.errors import DataError


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
        if _is_dense(own, asked):
            return _looked_up(own.to_numpy(), asked.to_numpy())
        table = pl.DataFrame({"id": own}).with_row_index("index")
        rows = pl.DataFrame({"id": asked})
        found = rows.join(table, on="id", how="left", maintain_order="left")
        return found["index"].cast(pl.Int32).fill_null(-1).to_numpy().astype(np.int32)

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


def _is_dense(own: pl.Series, asked: pl.Series) -> bool:
    """Whether a lookup table from the smallest to the largest id is no larger than the data."""
    if not own.dtype.is_integer() or own.is_empty() or asked.null_count():
        return False
    return int(own[-1]) - int(own[0]) <= 4 * (own.len() + asked.len())


def _looked_up(own: NDArray[Any], asked: NDArray[Any]) -> NDArray[np.int32]:
    """(n,) positions of integers among ascending ones, else -1; by a table instead of a join."""
    table = np.full(int(own[-1]) - int(own[0]) + 1, -1, dtype=np.int32)
    nearest = asked.clip(own[0], own[-1])
    # In 64 bits, because the difference of two 8-bit ids may not fit into 8 bits.
    place, asked_place = (
        np.subtract(ids, own[0], dtype=np.int64, casting="unsafe") for ids in (own, nearest)
    )
    table[place] = np.arange(own.size, dtype=np.int32)
    return np.where(nearest == asked, table[asked_place], np.int32(-1))


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
