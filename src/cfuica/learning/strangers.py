"""Blocks in which every pair has a stranger: what the strangers' network learns from.

The network of those who are known leans on their own rows of V and b, and learns little from a
history that these rows know already. One that has to answer for strangers as well learns more from
it, and less of those it knows. So strangers have a network of their own, of the
same form: in each of its pairs the user, the item or both have the shared row, and it learns to
read histories, short ones too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cfuica.learning.block import Block
from cfuica.learning.estimator import Estimator
from cfuica.model.pairs import Pairs

# Shares of pairs: a stranger rates a known item, a known user an item that is new, both are new.
STRANGE_USER, STRANGE_ITEM = 0.85, 0.1
# How many of the queries are encoded from a short part of their context.
SHORT_CONTEXTS = 0.15
_KINDS = 0x57A9  # keeps these draws apart from the blocks', which have the key (seed, step)


@dataclass(frozen=True)
class Strangers:
    """The blocks of an estimator, with strangers in them; block `step` stays a function of
    (seed, step)."""

    estimator: Estimator
    n_users: int
    n_items: int
    seed: int

    def draw(self, step: int) -> Block:
        block = self.estimator.draw(step)
        rng = np.random.Generator(np.random.PCG64([self.seed, step, _KINDS]))
        kind_p = rng.random(block.pairs.size)
        strange_item_p = kind_p >= STRANGE_USER
        strange_user_p = ~strange_item_p | (kind_p >= STRANGE_USER + STRANGE_ITEM)
        # A row of its own follows those of all members: the shared one.
        pairs = Pairs(
            users=block.pairs.users.with_strangers(strange_user_p, self.n_users),
            items=block.pairs.items.with_strangers(strange_item_p, self.n_items),
        )
        return replace(block, pairs=pairs)
