"""The estimator of the paper's Section "Learning" has the objective as its expectation.

The exact objective, Eqn. (8), is computed on tiny matrices by going through all orderings of the
interactions. Two tests hold an estimator to it: one goes through everything its random generator
can do, one draws blocks and asks whether their mean lies within its standard error. Deliberately
wrong samplers must fail both.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from cfuica.ops.loss import rating_loss
from cfuica.settings import RatingSettings
from cfuica.training import batches
from cfuica.training.batches import (
    PublishedEstimator,
    StrictEstimator,
    cut_block,
    draw_context_sizes,
    make_estimator,
)
from tests.model.reference import Reference, matrix_of, nll, random_cells
from tests.training.blocks import cells_of, context_of, same
from tests.training.enumeration import expectation, outcomes

K = 2
DRAWS = 4000
ALL_SIDES = ("users", "items")


@dataclass
class World:
    """A tiny matrix with parameters so large that every context matters."""

    n_users: int
    n_items: int
    observed: int
    sides: tuple[str, ...] = ALL_SIDES
    seed: int = 0
    surprising: bool = False
    """Label 1 everywhere, expected if both contexts hold something and a shock if both are empty:
    so the two sizes matter together."""
    warm: dict = field(default_factory=dict, repr=False)

    def __post_init__(self):
        self.cells = random_cells(self.n_users, self.n_items, K, self.observed, self.seed)
        self.truth = Reference.random(
            self.n_users, self.n_items, K, dict.fromkeys(self.sides, 2), spread=2.0, seed=self.seed
        )
        if self.surprising:
            self.cells = dict.fromkeys(self.cells, 1)
            for side in self.truth.sides.values():
                for letter, mean in (("W", 3.0), ("c", -2.0), ("V", [[-2.0], [2.0]]), ("b", 0.0)):
                    side[letter] = mean + 0.1 * side[letter]
        self.matrix = matrix_of(self.cells, self.n_users, self.n_items, K)
        self.objective = self.truth.objective(self.cells)

    def estimate(self, block) -> float:
        """Scale times the sum of the block's losses, by the second reading of the paper."""
        key = (
            *(side.row_of_pair.tobytes() for side in (block.pairs.users, block.pairs.items)),
            *(context.entries.tobytes() for context in block.contexts.values()),
            *(context.offsets.tobytes() for context in block.contexts.values()),
        )
        if key not in self.warm:
            uuc, iic = (
                context_of(block, side, K) if side in self.sides else None for side in ALL_SIDES
            )
            self.warm[key] = sum(
                nll(
                    self.truth.logits(
                        (user, item),
                        {(u, item): k for u, k in uuc[item].items()} if uuc else {},
                        {(user, i): k for i, k in iic[user].items()} if iic else {},
                    ),
                    label,
                )
                for (user, item), label in cells_of(block).items()
            )
            network = self.truth.model()
            logits_pk = network(block.pairs, network.encode(block.contexts))
            by_ops = rating_loss(logits_pk, block.labels, 0.0).item()
            assert by_ops == pytest.approx(self.warm[key], rel=1e-4, abs=1e-5)
        return block.scale * self.warm[key]

    def sampler(self, kind, batch_users=2, batch_items=2, **options):
        return kind(
            self.matrix, batch_users=batch_users, batch_items=batch_items, sides=self.sides,
            **options,
        )  # fmt: skip


def z_score(world: World, sampler, draws: int = DRAWS) -> float:
    """How many standard errors the mean of the sampler's estimates is from the objective."""
    values = np.array([world.estimate(sampler.draw(step)) for step in range(draws)])
    return float((values.mean() - world.objective) / (values.std(ddof=1) / draws**0.5))


def exact_error(world: World, sampler) -> float:
    """The relative error of the sampler's expectation, with nothing left to chance."""

    def one(rng):
        sampler._generator = lambda step: rng
        return world.estimate(sampler.draw(0))

    return expectation(one) / world.objective - 1


# World, B_U and B_I: below and above what remains beside the context, so that the rule for small
# remainders ("all of them where fewer remain") has something to do.
RIGHT = [
    (World(2, 3, 6), 2, 2),
    (World(2, 3, 5, seed=1), 1, 1),
    (World(3, 3, 6, seed=2), 2, 2),
    (World(3, 3, 5, seed=3), 1, 3),
    (World(3, 2, 4, seed=4), 10, 10),
    (World(3, 3, 6, sides=("users",), seed=5), 2, 2),
    (World(3, 3, 6, sides=("items",), seed=5), 2, 2),
    (World(1, 4, 4, seed=6), 1, 2),
]


@pytest.mark.parametrize(("world", "batch_users", "batch_items"), RIGHT)
def test_the_strict_estimators_expectation_is_the_objective_exactly(
    world, batch_users, batch_items
):
    assert abs(exact_error(world, world.sampler(StrictEstimator, batch_users, batch_items))) < 1e-10


@pytest.mark.parametrize(("world", "batch_users", "batch_items"), RIGHT[:3])
def test_the_form_for_huge_matrices_has_the_same_expectation(
    monkeypatch, world, batch_users, batch_items
):
    monkeypatch.setattr(batches, "HYPERGEOMETRIC_LIMIT", 0)
    assert abs(exact_error(world, world.sampler(StrictEstimator, batch_users, batch_items))) < 1e-10


class Rewritten(StrictEstimator):
    """The strict estimator once more, in parts that the wrong ones replace. Itself right."""

    def sizes(self, rng):
        """(y, z)"""
        return draw_context_sizes(self.matrix.n_users, self.matrix.n_items, rng)

    def axis(self, size, context, batch, rng):
        """Context and batch of one axis."""
        order = rng.permutation(size)
        return order[:context], order[context : context + batch]

    def scale(self, users, items, pairs):
        return self.matrix.n_users * self.matrix.n_items / (len(users) * len(items))

    def draw(self, step):
        rng = self._generator(step)
        y, z = self.sizes(rng)
        open_users, users = self.axis(self.matrix.n_users, z, self.batch_users, rng)
        open_items, items = self.axis(self.matrix.n_items, y, self.batch_items, rng)
        block = cut_block(
            self.matrix,
            users.astype(np.int32),
            items.astype(np.int32),
            sides=self.sides,
            open_users=np.isin(np.arange(self.matrix.n_users), open_users),
            open_items=np.isin(np.arange(self.matrix.n_items), open_items),
            keep_users=1.0,
            keep_items=1.0,
            key=0,
            scale=1.0,
        )
        return replace(block, scale=self.scale(users, items, block.pairs.size))


class SizesIndependentOfR(Rewritten):
    """y and z uniform, each by itself: both have their right law, only not together."""

    def sizes(self, rng):
        return rng.integers(0, self.matrix.n_items), rng.integers(0, self.matrix.n_users)


class EverythingIsContext(Rewritten):
    """y and z at their largest: leave-one-out instead of all orderings."""

    def sizes(self, rng):
        return self.matrix.n_items - 1, self.matrix.n_users - 1


class SizesSwapped(Rewritten):
    """y users and z items."""

    def sizes(self, rng):
        y, z = super().sizes(rng)
        return min(z, self.matrix.n_items - 1), min(y, self.matrix.n_users - 1)


class ContextIncludesTheBatch(Rewritten):
    """The block's own users and items stand in the contexts too."""

    def axis(self, size, context, batch, rng):
        context, batch = super().axis(size, context, batch, rng)
        return np.concatenate([context, batch]), batch


class BatchFromAll(Rewritten):
    """The batch is drawn without regard to the context."""

    def axis(self, size, context, batch, rng):
        context, _ = super().axis(size, context, batch, rng)
        return context, rng.permutation(size)[:batch]


class BatchInOrderOfIds(Rewritten):
    """Of what remains beside the context, always the lowest ids."""

    def axis(self, size, context, batch, rng):
        order = rng.permutation(size)
        return order[:context], np.sort(order[context:])[:batch]


class ScaledByTheBatchAskedFor(Rewritten):
    """Forgets that fewer than B may remain."""

    def scale(self, users, items, pairs):
        entries = self.matrix.n_users * self.matrix.n_items
        return entries / (self.batch_users * self.batch_items)


class ScaledByInteractions(Rewritten):
    """N * M / D."""

    def scale(self, users, items, pairs):
        return self.matrix.n_users * self.matrix.n_items / self.matrix.n_interactions


class MeanInsteadOfSum(Rewritten):
    """D times the mean loss of the block: a ratio, as the published experiments have it."""

    def scale(self, users, items, pairs):
        return self.matrix.n_interactions / max(pairs, 1)


# Where each wrong sampler shows itself: interactions are few, batches exceed what remains, the two
# sizes matter together, or the axes differ much. The right one is right everywhere.
FEW = (World(2, 3, 4, seed=2), 1, 1)
LARGE_BATCH = (World(2, 3, 5, seed=2), 2, 3)
TOGETHER = (World(2, 3, 6, surprising=True), 2, 3)
ONE_ROW = (World(1, 4, 4), 1, 2)
WRONG = [
    (SizesIndependentOfR, TOGETHER),
    (EverythingIsContext, LARGE_BATCH),
    (SizesSwapped, ONE_ROW),
    (ContextIncludesTheBatch, LARGE_BATCH),
    (BatchFromAll, LARGE_BATCH),
    (BatchInOrderOfIds, FEW),
    (ScaledByTheBatchAskedFor, LARGE_BATCH),
    (ScaledByInteractions, LARGE_BATCH),
    (MeanInsteadOfSum, FEW),
]


TRIALS = [FEW, LARGE_BATCH, TOGETHER, ONE_ROW]


@pytest.mark.parametrize("trial", TRIALS)
def test_the_strict_estimators_mean_is_the_objective_within_its_standard_error(trial):
    world, batch_users, batch_items = trial
    assert abs(z_score(world, world.sampler(StrictEstimator, batch_users, batch_items))) < 4


@pytest.mark.parametrize("trial", TRIALS)
@pytest.mark.parametrize("kind", [StrictEstimator, Rewritten])
def test_the_right_estimators_expectation_is_right_where_the_wrong_ones_is_not(kind, trial):
    world, batch_users, batch_items = trial
    assert abs(exact_error(world, world.sampler(kind, batch_users, batch_items))) < 1e-10


@pytest.mark.parametrize(("kind", "trial"), WRONG)
def test_a_wrong_sampler_has_another_expectation(kind, trial):
    world, batch_users, batch_items = trial
    assert abs(exact_error(world, world.sampler(kind, batch_users, batch_items))) > 0.03


@pytest.mark.parametrize(("kind", "trial"), [*WRONG, (PublishedEstimator, TOGETHER)])
def test_a_wrong_sampler_fails_the_test_of_the_standard_error(kind, trial):
    world, batch_users, batch_items = trial
    assert abs(z_score(world, world.sampler(kind, batch_users, batch_items))) > 6


# The law of the context sizes.


def law_by_orderings(n_users, n_items):
    """{(y, z): chance} of the pair (0, 0), from all (N * M)! orderings of the entries."""
    entries = list(itertools.product(range(n_users), range(n_items)))
    count = Counter()
    for order in itertools.permutations(entries):
        before = order[: order.index((0, 0))]
        count[sum(u == 0 for u, _ in before), sum(i == 0 for _, i in before)] += 1
    return {sizes: times / count.total() for sizes, times in count.items()}


@pytest.mark.parametrize("limit", [10**9, 0], ids=["hypergeometric", "binomial"])
@pytest.mark.parametrize(("n_users", "n_items"), [(2, 3), (3, 2), (2, 2), (1, 5), (4, 1), (1, 1)])
def test_context_sizes_have_the_law_of_all_orderings(monkeypatch, n_users, n_items, limit):
    monkeypatch.setattr(batches, "HYPERGEOMETRIC_LIMIT", limit)
    law = Counter()
    for sizes, chance in outcomes(lambda rng: draw_context_sizes(n_users, n_items, rng)):
        law[sizes] += chance
    assert law == pytest.approx(law_by_orderings(n_users, n_items), abs=1e-12)


@pytest.mark.parametrize("limit", [10**9, 0], ids=["hypergeometric", "binomial"])
def test_drawn_context_sizes_follow_their_law(monkeypatch, limit):
    """The real generator on 4 x 5, against the law by its formula; also as plain integers."""
    n_users, n_items, draws = 4, 5, 8000
    law = Counter()
    for sizes, chance in outcomes(lambda rng: draw_context_sizes(n_users, n_items, rng)):
        law[sizes] += chance
    assert len(law) == n_users * n_items
    monkeypatch.setattr(batches, "HYPERGEOMETRIC_LIMIT", limit)
    rng = np.random.default_rng(0)
    count = Counter(draw_context_sizes(n_users, n_items, rng) for _ in range(draws))
    assert {type(value) for sizes in count for value in sizes} == {int}
    chi_square = sum((count[s] - draws * p) ** 2 / (draws * p) for s, p in law.items())
    assert set(count) <= set(law)
    assert chi_square < 50  # 19 degrees of freedom: a chance of 0.0001


@pytest.mark.parametrize("size", [(6040, 3952), (480_189, 17_770), (40_000, 25_000)])
def test_context_sizes_of_large_matrices_are_in_range(size):
    rng = np.random.default_rng(1)
    drawn = np.array([draw_context_sizes(*size, rng) for _ in range(200)])
    shares = drawn / (size[1] - 1, size[0] - 1)
    assert ((shares >= 0) & (shares <= 1)).all()
    # Both shares are near the pair's place among all entries, hence near each other.
    assert np.abs(shares[:, 0] - shares[:, 1]).max() < 0.05
    assert shares.std(0) == pytest.approx(12**-0.5, abs=0.05)


# What both estimators hold.


def test_settings_name_the_estimator():
    matrix = FEW[0].matrix
    for name, kind in (("strict", StrictEstimator), ("published", PublishedEstimator)):
        for sides, expected in (("both", ALL_SIDES), ("users", ("users",)), ("items", ("items",))):
            made = make_estimator(
                matrix,
                RatingSettings(estimator=name, sides=sides, batch_users=3, batch_items=4, seed=9),
            )
            assert type(made) is kind
            assert (made.batch_users, made.batch_items, made.seed) == (3, 4, 9)
            assert tuple(made.draw(0).contexts) == expected


# Short contexts, which the cold-start network is taught with.

MIDDLE = matrix_of(random_cells(40, 30, K, 800, seed=7), 40, 30, K)
BOTH = pytest.mark.parametrize("kind", [StrictEstimator, PublishedEstimator])


def middle(kind, short_contexts, seed=0):
    return kind(
        MIDDLE, batch_users=10, batch_items=10, seed=seed, short_contexts=short_contexts
    )  # fmt: skip


@BOTH
def test_without_short_contexts_nothing_is_drawn_for_them(kind):
    class Unaware(kind):
        def _keep(self, keep, queries, rows, rng):
            return keep

    unaware = Unaware(MIDDLE, batch_users=10, batch_items=10)
    for step in range(4):
        assert same(middle(kind, 0.0).draw(step), unaware.draw(step))
        assert not same(middle(kind, 0.5).draw(step), unaware.draw(step))


@BOTH
def test_short_contexts_are_parts_of_whole_ones_in_the_same_block(kind):
    for step in range(6):
        block, whole = middle(kind, 0.5).draw(step), middle(kind, 0.0).draw(step)
        assert cells_of(block) == cells_of(whole)
        for side in ALL_SIDES:
            for query, context in context_of(block, side, K).items():
                rows = MIDDLE.by_item if side == "users" else MIDDLE.by_user
                row = slice(rows.offsets[query], rows.offsets[query + 1])
                of_query = dict(zip(rows.indices[row], rows.labels[row], strict=True))
                assert context.items() <= of_query.items()
                assert not set(context) & set(getattr(block.pairs, side).rows.tolist())
        if kind is StrictEstimator:  # its whole contexts are those of the block without short ones
            for side in ALL_SIDES:
                short, all_of_it = (context_of(each, side, K) for each in (block, whole))
                assert all(short[q].items() <= all_of_it[q].items() for q in all_of_it)


@BOTH
def test_short_contexts_have_their_share_and_any_size_on_a_logarithmic_scale(kind, monkeypatch):
    """Each query has a chance of its own: the block's, or times e^-6 to 1, log-uniform."""
    drawn = []

    def spy(*arguments, keep_users, keep_items, **options):
        drawn.extend([keep_users, keep_items])
        return cut_block(*arguments, keep_users=keep_users, keep_items=keep_items, **options)

    monkeypatch.setattr(batches, "cut_block", spy)
    blocks = [middle(kind, 0.25, seed).draw(step) for seed in range(4) for step in range(200)]
    queries = [
        len(getattr(block.pairs, axis).rows) for block in blocks for axis in ("items", "users")
    ]
    assert [len(keep) for keep in drawn] == queries
    # The block's own chance is that of most of its queries.
    factors = np.concatenate([keep / keep.max() for keep in drawn])
    is_short = factors < 1
    assert is_short.mean() == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / len(factors)) ** 0.5)
    place = np.sort(-np.log(factors[is_short]) / 6)
    even = (np.arange(len(place)) + 0.5) / len(place)
    assert np.abs(place - even).max() < 1.95 / len(place) ** 0.5  # Kolmogorov: a chance of 0.001


@BOTH
def test_a_short_context_has_the_size_its_chance_says(kind):
    """Summed over many blocks: a share s of contexts shrinks to (1 - e^-6) / 6 of its size."""
    sizes = [
        sum(len(middle(kind, short, seed=1).draw(step).contexts[side].entries)
            for step in range(300) for side in ALL_SIDES)
        for short in (0.0, 0.5)
    ]  # fmt: skip
    assert sizes[1] / sizes[0] == pytest.approx(0.5 + 0.5 * (1 - np.exp(-6)) / 6, abs=0.03)
