"""How far a kernel is from its definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from cfuica.doctor.problem import Problem

Differences = dict[str, float]
"""What a step finds: of each kernel, `module.function`, the largest difference from its definition;
of one that computes whole numbers, how much is wrong."""
Steps = dict[tuple[str, ...], "Callable[[Problem], Differences]"]
"""The kernels that are looked at in one pass, and the pass."""


def difference(found: Tensor | np.ndarray | float, expected: Tensor | np.ndarray | float) -> float:
    """The largest difference, as a share of the largest number expected."""
    one, other = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return float(np.abs(one - other).max() / np.abs(other).max())


def worst(differences: Iterable[float]) -> float:
    """The largest; not a number where any of them is none, which Python's max may pass over."""
    return float(np.max(list(differences)))


def unequal(*pairs: tuple[Any, Any]) -> float:
    """How many of the pairs of arrays are not the same."""
    return float(sum(not np.array_equal(found, expected) for found, expected in pairs))
