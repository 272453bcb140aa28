"""Drawing minibatches: the estimator of the paper's Section "Learning", and the variant that the
authors' experiments used.

Both draw block number `step` from the key (seed, step) alone, so neither prefetching nor
resuming can change it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cfuica.data.matrix import BehaviourMatrix
from cfuica.errors import SettingsError
from cfuica.learning.block import Block, cut_block
from cfuica.model.pairs import SideName
from cfuica.settings import CommonSettings, Settings

# numpy's hypergeometric draws want populations below this.
HYPERGEOMETRIC_LIMIT = 10**9
# The expected size of a short context is that of the whole times a factor between e^-6 and 1,
# uniform in its logarithm.
LOG_SHORTEST = 6.0


class Estimator(Protocol):
    """Draws block number `step`."""

    def draw(self, step: int) -> Block: ...


def make_estimator(
    matrix: BehaviourMatrix, settings: Settings, *, short_contexts: float = 0.0
) -> Estimator:
    """The estimator that the settings name; `short_contexts` see `_Base`."""
    kind = StrictEstimator if settings.estimator == "strict" else PublishedEstimator
    return kind(
        matrix,
        batch_users=settings.batch_users,
        batch_items=settings.batch_items,
        sides=side_names(settings),
        seed=settings.seed,
        smallest_context=settings.smallest_context,
        short_contexts=short_contexts,
    )


def side_names(settings: CommonSettings) -> tuple[SideName, ...]:
    """The sides that the settings' model has."""
    return ("users", "items") if settings.sides == "both" else (settings.sides,)


def hidden_units(settings: CommonSettings) -> dict[SideName, int]:
    """The hidden units of each of them."""
    units: dict[SideName, int] = {"users": settings.hidden_users, "items": settings.hidden_items}
    return {side: units[side] for side in side_names(settings)}


class _Base:
    """`short_contexts` is the share of queries whose context is cut down to any smaller size."""

    def __init__(
        self,
        matrix: BehaviourMatrix,
        *,
        batch_users: int,
        batch_items: int,
        sides: tuple[SideName, ...] = ("users", "items"),
        seed: int = 0,
        smallest_context: float = 0.2,
        short_contexts: float = 0.0,
    ) -> None:
        self.matrix = matrix
        self.batch_users = batch_users
        self.batch_items = batch_items
        self.sides = sides
        self.seed = seed
        self.smallest_context = smallest_context
        self.short_contexts = short_contexts

    def _generator(self, step: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, step]))

    def _keep(self, keep: float, queries: int, rng: np.random.Generator) -> float | np.ndarray:
        """The chance of a context's behaviours to be kept: one for all, or each query's own."""
        if self.short_contexts == 0:
            return keep
        is_short = rng.random(queries) < self.short_contexts
        return keep * np.exp(-LOG_SHORTEST * rng.random(queries) * is_short)


class StrictEstimator(_Base):
    """Eqn. (12): the scaled sum of a block's costs has the objective, Eqn. (8), as expectation.

    Draw the place r of a pair in a random ordering of all N * M entries; then y and z, how many
    entries of its row and of its column come before it; then the sets of y items and z users
    whose behaviours are context; then B_U users and B_I items from the others (all of them where
    fewer remain).
    """

    def draw(self, step: int) -> Block:
        n_users, n_items = self.matrix.n_users, self.matrix.n_items
        rng = self._generator(step)
        y, z = draw_context_sizes(n_users, n_items, rng)
        open_users, users = _context_and_batch(n_users, z, self.batch_users, rng)
        open_items, items = _context_and_batch(n_items, y, self.batch_items, rng)
        return cut_block(
            self.matrix,
            users,
            items,
            sides=self.sides,
            open_users=open_users,
            open_items=open_items,
            keep_users=self._keep(1.0, len(items), rng),
            keep_items=self._keep(1.0, len(users), rng),
            key=step,
            scale=n_users * n_items / (len(users) * len(items)),
        )


def draw_context_sizes(n_users: int, n_items: int, rng: np.random.Generator) -> tuple[int, int]:
    """(y, z): context items and context users of a pair at a uniform place r of an ordering.

    Given r, the r - 1 earlier entries are a uniform subset of the N * M - 1 others, of which
    M - 1 lie in the pair's row and N - 1 in its column.
    """
    entries = n_users * n_items
    if entries < HYPERGEOMETRIC_LIMIT:
        r = int(rng.integers(1, entries + 1))
        rest = entries - n_users - n_items + 1
        y, z, _ = rng.multivariate_hypergeometric(
            [n_items - 1, n_users - 1, rest], r - 1, method="marginals"
        )
        return int(y), int(z)
    # The same law with r integrated out: order the entries by independent uniform times; given
    # the pair's own time, each other entry is earlier with that chance.
    time = rng.random()
    return int(rng.binomial(n_items - 1, time)), int(rng.binomial(n_users - 1, time))


def _context_and_batch(
    size: int, context: int, batch: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A uniform subset of `context` of `size` members as a mask, and up to `batch` of the rest."""
    order = rng.permutation(size).astype(np.int32)
    is_open = np.zeros(size, bool)
    is_open[order[:context]] = True
    return is_open, order[context : context + batch]


class PublishedEstimator(_Base):
    """The authors' experiments: a random block, its complement as context, thinned by coins.

    Per axis of n members a context size is drawn between a fifth of n (`smallest_context`) and n
    minus a fifth (or minus the batch, where that is smaller); the batch shrinks where fewer
    members would remain; each behaviour outside the block is kept with the chance
    size / (n - batch).
    """

    def draw(self, step: int) -> Block:
        rng = self._generator(step)
        users, open_users, keep_users = self._axis(self.matrix.n_users, self.batch_users, rng)
        items, open_items, keep_items = self._axis(self.matrix.n_items, self.batch_items, rng)
        return cut_block(
            self.matrix,
            users,
            items,
            sides=self.sides,
            open_users=open_users,
            open_items=open_items,
            keep_users=self._keep(keep_users, len(items), rng),
            keep_items=self._keep(keep_items, len(users), rng),
            key=int(rng.integers(0, 2**63)),
            scale=self.matrix.n_users * self.matrix.n_items / (len(users) * len(items)),
        )

    def _axis(
        self, size: int, batch: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, float]:
        if size < 2:
            raise SettingsError(
                f"Training needs at least 2 users and 2 items, and the data has {size} of one of "
                f"them; give more data."
            )
        fifth = int(0.2 * size)
        smallest = int(self.smallest_context * size)
        context = int(rng.integers(smallest, max(size - min(fifth, batch), smallest + 1)))
        chosen = rng.permutation(size)[: max(1, min(batch, size - context))].astype(np.int32)
        is_open = np.ones(size, bool)
        is_open[chosen] = False
        return chosen, is_open, context / max(size - len(chosen), 1)
