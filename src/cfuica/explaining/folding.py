"""Which labels are told apart where other people are counted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Fewer people than this are not counted apart, so that nobody is told by the rating they gave.
FEWEST_RATERS = 5


def fold(counts_k: NDArray[np.integer]) -> list[int]:
    """The first label of each group of neighbouring labels, ascending; the first is label 0.

    `counts_k` (K) are the raters of each label. Every group has at least `FEWEST_RATERS` of them,
    or there is one group only. The smallest group is folded first, into the smaller one of its
    neighbours; of equal ones, the one with lower labels.
    """
    starts = list(range(len(counts_k)))
    counts = [int(count) for count in counts_k]
    while len(counts) > 1 and min(counts) < FEWEST_RATERS:
        at = counts.index(min(counts))
        neighbours = [place for place in (at - 1, at + 1) if 0 <= place < len(counts)]
        into = min(neighbours, key=lambda place: counts[place])
        lower, upper = min(at, into), max(at, into)
        counts[lower] += counts.pop(upper)
        starts.pop(upper)
    return starts


def may_tell(people: int) -> bool:
    """Whether anything may be told of so many: not of a few, who are fewer than enough."""
    return not 0 < people < FEWEST_RATERS


def too_few(did: str) -> str:
    """Why nothing is told of those who did something to the item, for sentences."""
    return f"fewer than {FEWEST_RATERS} others {did} the item"
