"""Minibatches of the rating model: blocks of users x items, drawn from the interaction matrix.

A block holds the observed pairs between some users and some items, and their contexts. Two
estimators draw blocks: `StrictEstimator`, the paper's Section "Learning", and `PublishedEstimator`,
that of the authors' experiments. Block number `step` depends on the key (seed, step) alone, so
neither prefetching nor resuming can change it. `Prefetcher` draws the next block in a background
thread while the current one is computed.

`ColdStartMasking` makes the blocks of the cold-start network: in each pair the user, the item or
both have the shared row. A network for warm users and items relies on their own rows of V and b and
learns little from histories; the cold-start network, of the same form, has to learn to read them,
short ones included.

`Dropout` masks hidden units of every query. The others are scaled up, so that sums over units keep
their expectation and prediction uses all units unscaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from cfuica.data.matrix import InteractionMatrix, LabelledCsr
from cfuica.errors import SettingsError
from cfuica.model.network import Keep, hidden_units
from cfuica.model.shared_rows import SharedRows
from cfuica.ops import sampling
from cfuica.ops.loss import CatalogueTargets
from cfuica.ops.tables import Bags, Grouping, Histories, Pairs, SideName, with_cold
from cfuica.settings import RatingSettings


@dataclass(frozen=True, eq=False)
class Block:
    """One minibatch.

    labels (P) uint8, weights (P) float32 or None where all are 1. The sum of the pairs' losses
    times `scale` is an unbiased estimate of the objective (strict estimator). `keeps` are the
    dropout masks of each side.
    """

    pairs: Pairs
    labels: np.ndarray
    contexts: dict[SideName, Bags | Histories]
    scale: float
    keeps: dict[SideName, Keep] = field(default_factory=dict)
    targets: CatalogueTargets | None = None  # Softmax over items: the pairs as next items.
    weights: np.ndarray | None = None


def cut_block(
    matrix: InteractionMatrix,
    users: np.ndarray,
    items: np.ndarray,
    *,
    sides: tuple[SideName, ...],
    open_users: np.ndarray,
    open_items: np.ndarray,
    keep_users: float | np.ndarray,
    keep_items: float | np.ndarray,
    key: int,
    scale: float,
    shared: Mapping[SideName, SharedRows] | None = None,
) -> Block:
    """The block of `users` x `items` (int32 indices).

    Contexts are the interactions with open users and items (bool masks over all), each kept with
    its side's chance: one for all, or one for each query of the side (an item of the block for the
    users side). `key` decides these coins. `shared` are the rows of W that users or items
    share.
    """
    shared = shared or {}
    position_of_item = np.full(matrix.n_items, -1, np.int32)
    position_of_item[items] = np.arange(len(items), dtype=np.int32)
    seen = matrix.by_user
    user_of_pair, item_of_pair, labels = sampling.observed_pairs(
        seen.offsets, seen.indices, seen.labels, users, position_of_item
    )
    pairs = Pairs.between(users, items, user_of_pair, item_of_pair)

    # The users side encodes items, from users; the items side encodes users, from items.
    contexts: dict[SideName, Bags | Histories] = {}
    if "users" in sides:
        contexts["users"] = _context(
            matrix.by_item, items, open_users, keep_users, key, matrix.n_users, matrix.n_labels,
            shared.get("users"),
        )  # fmt: skip
    if "items" in sides:
        contexts["items"] = _context(
            matrix.by_user, users, open_items, keep_items, ~key, matrix.n_items, matrix.n_labels,
            shared.get("items"),
        )  # fmt: skip
    return Block(pairs, labels, contexts, scale)


def _context(
    rows: LabelledCsr,
    queries: np.ndarray,
    open_indices: np.ndarray,
    keep: float | np.ndarray,
    key: int,
    n_indices: int,
    n_labels: int,
    shared: SharedRows | None,
) -> Bags:
    offsets, entries = sampling.contexts(
        rows.offsets,
        rows.indices,
        rows.labels,
        queries,
        open_indices,
        np.broadcast_to(np.float64(keep), len(queries)),
        np.uint64(key & 0xFFFFFFFFFFFFFFFF),
        n_labels,
    )
    table_rows = n_indices + 1  # the last is the shared row
    if shared is not None:
        table_rows, entries = shared.n_table_rows, shared.entries(entries, n_labels)
    readers = Grouping(*sampling.transpose(offsets, entries, table_rows * n_labels))
    return Bags(offsets, entries, readers)


# The largest population of numpy's hypergeometric draws.
HYPERGEOMETRIC_LIMIT = 10**9
# The expected size of a short context is that of the whole times a factor between e^-6 and 1,
# uniform in its logarithm.
LOG_SHORTEST = 6.0


class Estimator(Protocol):
    """Draws block number `step`."""

    def draw(self, step: int) -> Block: ...


def make_estimator(
    matrix: InteractionMatrix,
    settings: RatingSettings,
    *,
    short_contexts: float = 0.0,
    shared: Mapping[SideName, SharedRows] | None = None,
) -> Estimator:
    """The estimator that the settings name; `short_contexts` see `_Base`, `shared` see
    `cut_block`."""
    kind = StrictEstimator if settings.estimator == "strict" else PublishedEstimator
    return kind(
        matrix,
        batch_users=settings.batch_users,
        batch_items=settings.batch_items,
        sides=tuple(hidden_units(settings)),
        seed=settings.seed,
        smallest_context=settings.smallest_context,
        max_context=settings.max_context,
        short_contexts=short_contexts,
        shared=shared,
    )


@dataclass(frozen=True)
class _Base:
    """`short_contexts` is the share of queries whose context is cut down to any smaller size."""

    matrix: InteractionMatrix
    batch_users: int
    batch_items: int
    sides: tuple[SideName, ...] = ("users", "items")
    seed: int = 0
    smallest_context: float = 0.2
    max_context: int | None = None
    short_contexts: float = 0.0
    shared: Mapping[SideName, SharedRows] | None = None

    def _generator(self, step: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, step]))

    def _keep(
        self, keep: float, queries: np.ndarray, rows: LabelledCsr, rng: np.random.Generator
    ) -> float | np.ndarray:
        """The chance of a context's interactions to be kept: one for all, or each query's own."""
        chance: float | np.ndarray = keep
        if self.max_context is not None:
            chance = np.minimum(keep, self.max_context / np.maximum(rows.sizes[queries], 1))
        if self.short_contexts == 0:
            return chance
        is_short = rng.random(len(queries)) < self.short_contexts
        return chance * np.exp(-LOG_SHORTEST * rng.random(len(queries)) * is_short)


class StrictEstimator(_Base):
    """Eqn. (12): the scaled sum of a block's losses has the objective, Eqn. (8), as expectation.

    Draw the place r of a pair in a random ordering of all N * M entries; then y and z, how many
    entries of its row and of its column come before it; then the sets of y items and z users
    whose interactions are context; then B_U users and B_I items from the others (all of them where
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
            keep_users=self._keep(1.0, items, self.matrix.by_item, rng),
            keep_items=self._keep(1.0, users, self.matrix.by_user, rng),
            key=step,
            scale=n_users * n_items / (len(users) * len(items)),
            shared=self.shared,
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
    """A uniform subset of `context` of `size` indices as a mask, and up to `batch` of the rest."""
    order = rng.permutation(size).astype(np.int32)
    is_open = np.zeros(size, bool)
    is_open[order[:context]] = True
    return is_open, order[context : context + batch]


class PublishedEstimator(_Base):
    """The authors' experiments: a random block, its complement as context, thinned by coins.

    For n users, and for n items, a context size is drawn between a fifth of n (`smallest_context`)
    and n minus a fifth (or minus the batch, where that is smaller). The batch shrinks where fewer
    would remain. Each interaction outside the block is kept with the chance size / (n - batch).
    """

    def draw(self, step: int) -> Block:
        rng = self._generator(step)
        users, open_users, keep_users = self._batch(self.matrix.n_users, self.batch_users, rng)
        items, open_items, keep_items = self._batch(self.matrix.n_items, self.batch_items, rng)
        return cut_block(
            self.matrix,
            users,
            items,
            sides=self.sides,
            open_users=open_users,
            open_items=open_items,
            keep_users=self._keep(keep_users, items, self.matrix.by_item, rng),
            keep_items=self._keep(keep_items, users, self.matrix.by_user, rng),
            key=int(rng.integers(0, 2**63)),
            scale=self.matrix.n_users * self.matrix.n_items / (len(users) * len(items)),
            shared=self.shared,
        )

    def _batch(
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


class Prefetcher:
    """Hands out blocks in order. A block depends on (seed, step) only, so drawing ahead of time
    cannot change it."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cfuica-draw")
        self._ahead: tuple[int, Future[Block]] | None = None

    def take(self, step: int) -> Block:
        """Block number `step`; starts drawing the one after it."""
        if self._ahead is not None and self._ahead[0] == step:
            block = self._ahead[1].result()
        else:
            block = self._estimator.draw(step)
        self._ahead = (step + 1, self._thread.submit(self._estimator.draw, step + 1))
        return block

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


# Shares of the pairs with a cold-start user only and with a cold-start item only; in the others
# both are cold.
COLD_USER, COLD_ITEM = 0.85, 0.1
# The share of the queries whose context is cut down.
SHORT_CONTEXTS = 0.15
_KINDS = 0x57A9  # separates these draws from the blocks', which have the key (seed, step)


@dataclass(frozen=True)
class ColdStartMasking:
    """The blocks of an estimator with the shared row in every pair; block `step` stays a function
    of (seed, step)."""

    estimator: Estimator
    shared_rows: Mapping[SideName, int]
    seed: int

    def draw(self, step: int) -> Block:
        block = self.estimator.draw(step)
        rng = np.random.Generator(np.random.PCG64([self.seed, step, _KINDS]))
        kind_p = rng.random(block.pairs.size)
        cold_item_p = kind_p >= COLD_USER
        cold_user_p = ~cold_item_p | (kind_p >= COLD_USER + COLD_ITEM)
        pairs = Pairs(
            users=with_cold(block.pairs.users, cold_user_p, self.shared_rows["users"]),
            items=with_cold(block.pairs.items, cold_item_p, self.shared_rows["items"]),
        )
        return replace(block, pairs=pairs)


_DROPOUT = 0x0D20  # separates these draws from the blocks', which have the key (seed, step)


@dataclass(frozen=True)
class Dropout:
    """The blocks of an estimator with dropout masks; block `step` stays a function of (seed,
    step)."""

    estimator: Estimator
    chance: float
    hidden: dict[SideName, int]
    seed: int
    layer: int = 0  # Units of the items side's residual layer.

    def draw(self, step: int) -> Block:
        block = self.estimator.draw(step)
        rng = np.random.Generator(np.random.PCG64([self.seed, step, _DROPOUT]))
        scale = np.float32(1 / (1 - self.chance))

        def drawn(queries: int, units: int) -> np.ndarray:
            return (rng.random((queries, units), dtype=np.float32) >= self.chance) * scale

        # Histories without an items side only list positions.
        masks = {
            side: drawn(context.n_rows, self.hidden[side])
            for side, context in block.contexts.items()
            if side in self.hidden
        }
        keeps = {side: Keep(mask) for side, mask in masks.items()}
        if self.layer and "items" in keeps:
            layer_qu = drawn(block.contexts["items"].n_rows, self.layer)
            keeps["items"] = Keep(masks["items"], layer_qu)
        return replace(block, keeps=keeps)
