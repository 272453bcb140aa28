"""Someone to predict for: a user of the state, or a visitor with a history of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class History:
    """What a visitor did."""

    items: np.ndarray
    """(n,) int32 indices, distinct; newest last, where that is read"""
    labels: np.ndarray
    """(n,) uint8; all 0 where ratings are not read"""


@dataclass(frozen=True, eq=False)
class Person:
    """What the model knows of someone, as it was when they were asked for."""

    user: int | None
    """index in the state, None for a visitor"""
    row: int
    """table row of the users side"""
    items: np.ndarray
    """(n,) int32 history, ascending"""
    labels: np.ndarray
    """(n,) uint8"""
    sums_h: np.ndarray
    """(H_I,) float64: c + the rows of W of the history; empty where there is no items side"""
