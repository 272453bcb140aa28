"""How a sum of behaviours is scaled by their number.

The paper adds up rows of W, so what enters f grows with the number of behaviours: one who rated
twenty items and one who rated two thousand are read on different scales, and as data keep coming
in, f saturates. With a power of 1 the sum is divided by the number of its addends (plus a few, so
that one behaviour alone is not taken for the whole truth) and f reads something like their mean;
with a power of 0 it is the paper's sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# What is added to the number: that of a network of those who are known, who have parameters of
# their own, and that of strangers, of whom a few ratings must not be taken for the whole truth.
# Both were chosen on validation data; 40 made strangers better at every length of their history.
OFFSET, STRANGERS_OFFSET = 10.0, 40.0


@dataclass(frozen=True)
class Gain:
    """What the sum of n behaviours is multiplied by: ((typical + offset) / (n + offset)) ** power.

    `typical` is a number of behaviours at which the sum stays as it is, so that initial values and
    rates mean the same for every power.
    """

    power: float = 0.0
    typical: float = 0.0
    offset: float = OFFSET

    @classmethod
    def for_rows(cls, power: float, offsets: np.ndarray, offset: float = OFFSET) -> Gain:
        """The gain for contexts like these compressed rows: the mean row is typical."""
        sizes = np.diff(offsets)
        used = sizes[sizes > 0]
        return cls(power, float(used.mean()) if power and used.size else 0.0, offset)

    @classmethod
    def restored(cls, power: float, typical: float, offset: float = OFFSET) -> Gain:
        """The gain of a saved model; a ValueError where it cannot be one."""
        if not 0.0 <= typical < math.inf:
            raise ValueError(f"the typical size {typical} is no number of behaviours")
        return cls(power, float(typical), offset)

    def of(self, sizes: np.ndarray) -> np.ndarray:
        """Gains (Q,) float32 for sums of so many behaviours (Q,)."""
        if self.power == 0:
            return np.ones(len(sizes), np.float32)
        gains: np.ndarray = ((self.typical + self.offset) / (sizes + self.offset)) ** self.power
        return gains.astype(np.float32)


NO_GAIN = Gain()
