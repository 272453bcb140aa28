"""Pairs whose rating is known: what a model is validated and tested on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RatedPairs:
    """P pairs as indices, ordered by user and then by item, with their true ratings."""

    users_p: NDArray[np.int32]
    items_p: NDArray[np.int32]
    labels_p: NDArray[np.uint8]
    """(P,) the label that each rating falls under"""
    ratings_p: NDArray[np.float64]
    """(P,) the ratings themselves, which a binned label only stands near"""

    @property
    def n(self) -> int:
        """P."""
        return int(self.labels_p.size)
