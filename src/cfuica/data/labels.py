"""The label scale: the ordered set of values that a rating takes in some data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from cfuica.errors import DataError

# A label index takes one byte.
MAX_LABELS = 255


@dataclass(frozen=True)
class LabelScale:
    """K values in ascending order; label index k means `values[k]`."""

    values: tuple[float, ...]

    @classmethod
    def from_ratings(cls, ratings: pl.Series) -> LabelScale:
        """Take the distinct values of a column of ratings as the scale."""
        values = ratings.cast(pl.Float64).unique().sort()
        if values.is_null().any() or not values.is_finite().all():
            raise DataError(
                f"Column '{ratings.name}' has missing or non-finite ratings; remove these rows."
            )
        if values.len() < 2:
            found = f"only the rating {values[0]:g}" if values.len() else "no rating at all"
            raise DataError(
                f"Column '{ratings.name}' holds {found}, and from one label there is nothing to "
                f"predict: expected at least 2 distinct values; check that it is the rating column."
            )
        if values.len() > MAX_LABELS:
            raise DataError(
                f"Column '{ratings.name}' holds {values.len()} distinct ratings, from "
                f"{values[0]:g} to {values[-1]:g}, but a scale has at most {MAX_LABELS}; round the "
                f"ratings to fewer values."
            )
        return cls(tuple(float(value) for value in values))

    @property
    def size(self) -> int:
        """K."""
        return len(self.values)

    def encode(self, ratings: pl.Series | ArrayLike) -> NDArray[np.uint8]:
        """(n,) label indices of (n,) ratings; a rating that is not on the scale is an error."""
        given = ratings.to_numpy() if isinstance(ratings, pl.Series) else ratings
        rating = np.asarray(given, dtype=np.float64)
        values = np.asarray(self.values, dtype=np.float64)
        middles = (values[1:] + values[:-1]) / 2
        label = np.searchsorted(middles, rating)
        # Close rather than equal: the same 0.1 may come as 32 bits from one file, 64 from another.
        off = np.flatnonzero(~np.isclose(values[label], rating, rtol=1e-6, atol=1e-9))
        if off.size:
            scale = ", ".join(f"{value:g}" for value in self.values[:12])
            more = ", ..." if self.size > 12 else ""
            raise DataError(
                f"The rating {rating[off[0]]:g} at position {off[0]} is not on the label scale "
                f"({scale}{more}); use data with the same ratings as the training data."
            )
        return label.astype(np.uint8)

    def values_array(self) -> NDArray[np.float32]:
        """(K,) the values, to take the mean of a distribution over labels."""
        return np.asarray(self.values, dtype=np.float32)
