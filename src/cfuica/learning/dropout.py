"""Dropout: in each minibatch every hidden unit of every query is left out with some chance.

What is left is scaled up, so that a sum over units keeps its expectation and prediction uses all
units as they are. Hidden units are the only thing that is drawn: W, V and the contexts stay whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cfuica.learning.block import Block
from cfuica.learning.estimator import Estimator
from cfuica.model.pairs import SideName

_DROPOUT = 0x0D20  # keeps these draws apart from the blocks', which have the key (seed, step)


@dataclass(frozen=True)
class Dropout:
    """Adds to the blocks of an estimator which units are kept; block `step` stays a function of
    (seed, step)."""

    estimator: Estimator
    chance: float
    hidden: dict[SideName, int]
    seed: int
    layer: int = 0
    """Units of the items side's extra layer."""

    def draw(self, step: int) -> Block:
        block = self.estimator.draw(step)
        rng = np.random.Generator(np.random.PCG64([self.seed, step, _DROPOUT]))
        scale = np.float32(1 / (1 - self.chance))

        def drawn(queries: int, units: int) -> np.ndarray:
            return (rng.random((queries, units), dtype=np.float32) >= self.chance) * scale

        keeps = {}
        for side, context in block.contexts.items():
            if side not in self.hidden:  # a history is there for its moments alone
                continue
            keeps[side] = drawn(context.bag.size, self.hidden[side])
        keep_qu = drawn(block.contexts["items"].bag.size, self.layer) if self.layer else None
        return replace(block, keeps=keeps, keep_layer_qu=keep_qu)
