"""Which users or items are alike."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.artifact import BaseArtifact
from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError
from cfuica.inference.recommend import Ranking
from cfuica.inference.similar import Similarity, similar_table
from cfuica.inference.similar import similar as similar_by
from cfuica.live.live_model import Catalogue
from tests.inference.plain import SIDE_SETS, World
from tests.model.reference import NONLINEARITY

SIDES = ("users", "items")
OTHER = {"users": "items", "items": "users"}


def similar(state, axis: str, indices: np.ndarray, n: int = 10, **options) -> Ranking:
    return similar_by(Similarity.of_state(state, axis), state.support(axis), indices, n, **options)


class Named(Catalogue):
    """The users and items of a state by ids that begin with "id-", and titles of the items."""

    def __init__(self, state) -> None:
        self.state = state
        ids = {
            axis: Vocabulary(pl.Series([f"id-{at}" for at in range(state.size(axis))]))
            for axis in SIDES
        }
        titles = pl.DataFrame({"title": [f"Title {at}" for at in range(state.size("items"))]})
        super().__init__(BaseArtifact(**ids, rows={}, item_metadata=titles))

    def support(self, axis) -> np.ndarray:
        return self.state.support(axis)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        return self.state.collected().triplets()[:2]


def table_of(state, axis: str, asked: np.ndarray, n: int = 10, **options) -> pl.DataFrame:
    ids = pl.Series([f"id-{at}" for at in asked])
    similarity = Similarity.of_state(state, axis)
    return similar_table(Named(state), similarity, axis, asked, n, query_ids=ids, **options)


def interactions(world: World, axis: str, member: int) -> list[tuple[int, int]]:
    """(member of the other axis, label) of one."""
    own, other = (0, 1) if axis == "users" else (1, 0)
    return [(pair[other], label) for pair, label in world.cells.items() if pair[own] == member]


def plain_vectors(world: World, axis: str) -> dict[int, np.ndarray]:
    """The vector of each one that has one, in float64."""
    rows, side = world.rows, OTHER[axis]
    if side not in world.truth.sides:
        table_nkh = world.truth.used(axis, "W")
        grad_k = np.arange(world.n_labels) - (world.n_labels - 1) / 2
        shared = len(table_nkh) - 1
        return {
            member: sum(grad_k[label] * table_nkh[row, label] for label in range(world.n_labels))
            for member, row in enumerate(rows[axis])
            if row != shared
        }
    vectors = {}
    for member in range(len(rows[axis])):
        if context := interactions(world, axis, member):
            sums_h = world.truth.used(side, "c").copy()
            for other, label in context:
                sums_h += world.truth.used(side, "W")[rows[side][other], label]
            vectors[member] = NONLINEARITY[world.truth.activation](sums_h)
    return vectors


def plain_scores(world: World, axis: str, member: int, min_support: int) -> dict[int, float]:
    vectors = plain_vectors(world, axis)
    if member not in vectors:
        return {}
    mean_h = np.mean(list(vectors.values()), axis=0)
    own_h = vectors[member] - mean_h
    return {
        other: float(
            own_h @ (vector_h - mean_h)
            / max(np.linalg.norm(own_h) * np.linalg.norm(vector_h - mean_h), 1e-30)
        )
        for other, vector_h in vectors.items()
        if other != member and len(interactions(world, axis, other)) >= min_support
    }  # fmt: skip


def is_comparable(state, axis: str) -> np.ndarray:
    return Similarity.of_state(state, axis).is_comparable_m


def of_row(found: Ranking, row: int) -> tuple[list[int], np.ndarray]:
    at = found.rows == row
    assert found.ranks[at].tolist() == list(range(1, 1 + at.sum()))
    return found.items[at].tolist(), found.scores[at]


@settings(max_examples=60, deadline=None)
@given(
    axis=st.sampled_from(SIDES),
    sides=st.sampled_from(list(SIDE_SETS)),
    observed=st.integers(0, 40),
    cold_start=st.integers(0, 3),
    activation=st.sampled_from(["tanh", "sigmoid"]),
    n=st.integers(1, 9),
    min_support=st.integers(0, 6),
    seed=st.integers(0, 2**16),
    data=st.data(),
)
def test_are_the_highest_cosines_of_centred_vectors(
    axis, sides, observed, cold_start, activation, n, min_support, seed, data
):
    world = World.random(
        observed=observed, sides=sides, cold_start=cold_start, activation=activation, seed=seed
    )
    size = len(world.rows[axis])
    asked = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=5)), np.int64)
    if len(plain_vectors(world, axis)) < 3:
        return  # two are opposite to their mean, and one is the mean: rounding decides
    found = similar(world.state(), axis, asked, n, min_support=min_support)
    assert is_comparable(world.state(), axis)[asked].tolist() == [
        member in plain_vectors(world, axis) for member in asked.tolist()
    ]
    for row, member in enumerate(asked.tolist()):
        truth = plain_scores(world, axis, member, min_support)
        others, scores = of_row(found, row)
        assert len(others) == len(set(others)) == min(n, len(truth))
        assert (np.diff(scores) <= 0).all()
        for place, other in enumerate(others):
            assert scores[place] == pytest.approx(truth[other], abs=1e-3)
        left = [score for other, score in truth.items() if other not in others]
        assert not left or not others or max(left) <= scores[-1] + 1e-3


@pytest.mark.parametrize("axis", SIDES)
def test_users_and_items_are_treated_alike(axis):
    """The transposed world with its sides swapped has the same neighbours on the other axis."""
    world = World.random(observed=25, seed=2)
    swapped = World(
        type(world.truth)({OTHER[side]: own for side, own in world.truth.sides.items()}),
        {(item, user): label for (user, item), label in world.cells.items()},
        {OTHER[name]: rows for name, rows in world.rows.items()},
        world.n_labels,
    )
    all_rows = np.arange(len(world.rows[axis]))
    found = similar(world.state(), axis, all_rows, 3, min_support=1)
    mirrored = similar(swapped.state(), OTHER[axis], all_rows, 3, min_support=1)
    for name in ("rows", "ranks", "items", "scores"):
        np.testing.assert_array_equal(getattr(found, name), getattr(mirrored, name))
    comparable = is_comparable(world.state(), axis), is_comparable(swapped.state(), OTHER[axis])
    np.testing.assert_array_equal(*comparable)


@pytest.mark.parametrize("axis", SIDES)
def test_twins_are_most_similar_and_in_order_of_index(axis):
    world = World.random(n_users=9, n_items=9, observed=0, cold_start=0)
    pairs = {(0, 0): 1, (0, 1): 2, (4, 0): 3, (4, 2): 0}
    for twin in (2, 3, 7, 8):
        pairs |= {(twin, 1): 2, (twin, 5): 0, (twin, 6): 3}
    world.cells = pairs if axis == "users" else {(b, a): label for (a, b), label in pairs.items()}
    others, scores = of_row(similar(world.state(), axis, np.array([7]), 3, min_support=3), 0)
    assert others == [2, 3, 8]
    np.testing.assert_allclose(scores, 1, atol=1e-6)
    assert (scores <= 1).all()


def test_many_at_once_are_the_same_as_one_at_a_time():
    world = World.random(n_users=300, n_items=40, observed=3000, seed=1)
    state = world.state()
    whole = similar(state, "users", np.arange(300), 4)
    for user in (0, 255, 256, 299):
        others, scores = of_row(whole, user)
        alone, alone_scores = of_row(similar(state, "users", np.array([user]), 4), 0)
        assert others == alone
        np.testing.assert_array_equal(scores, alone_scores)


@settings(max_examples=30, deadline=None)
@given(
    axis=st.sampled_from(SIDES), sides=st.sampled_from(list(SIDE_SETS)), seed=st.integers(0, 2**16)
)
def test_scores_do_not_depend_on_where_anybody_is(axis, sides, seed):
    """The same world in another order of users and items gives the same bits."""
    world = World.random(observed=30, sides=sides, cold_start=1, seed=seed)
    rng = np.random.default_rng(seed)
    to = {name: rng.permutation(len(rows)) for name, rows in world.rows.items()}
    moved = World(
        world.truth,
        {
            (int(to["users"][u]), int(to["items"][i])): label
            for (u, i), label in world.cells.items()
        },
        {name: rows[np.argsort(to[name])] for name, rows in world.rows.items()},
        world.n_labels,
    )
    all_rows = np.arange(len(world.rows[axis]))
    found = similar(world.state(), axis, all_rows, 4, min_support=1)
    again = similar(moved.state(), axis, to[axis], 4, min_support=1, in_order=to[axis])
    for name in ("rows", "ranks", "scores"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    comparable = is_comparable(moved.state(), axis)[to[axis]], is_comparable(world.state(), axis)
    np.testing.assert_array_equal(*comparable)
    np.testing.assert_array_equal(again.items, to[axis][found.items])


def test_a_new_user_has_neighbours_after_the_first_interaction():
    world = World.random(observed=25, seed=2)
    state = world.state()
    item = state.add("items")
    assert not is_comparable(state, "items")[item]
    assert not len(similar(state, "items", np.array([item])).items)
    state.change(0, item, 2)
    found = similar(state, "items", np.array([item]), 3, min_support=1)
    assert is_comparable(state, "items")[item]
    assert len(found.items) == 3


class TestTable:
    def test_has_external_ids_and_titles(self):
        state = World.random(observed=25, seed=2).state()
        asked = np.array([1, 0])
        found = similar(state, "items", asked, 2, min_support=1)
        table = table_of(state, "items", asked, 2, min_support=1)
        assert table.columns == ["item", "rank", "similar", "score", "title"]
        assert table["item"].to_list() == ["id-1", "id-1", "id-0", "id-0"]
        assert table["rank"].to_list() == [1, 2, 1, 2]
        assert table["similar"].to_list() == [f"id-{index}" for index in found.items]
        assert table["title"].to_list() == [f"Title {index}" for index in found.items]
        np.testing.assert_array_equal(table["score"], found.scores)
        users = table_of(state, "users", asked)
        assert users.columns == ["user", "rank", "similar", "score"]

    def test_of_several_those_without_ratings_are_left_out(self):
        world = World.random(observed=0)
        world.cells = {(user, item): 1 + user % 2 for user in range(6) for item in range(5)}
        table = table_of(world.state(), "items", np.array([6, 0]), 2)
        assert table["item"].unique().to_list() == ["id-0"]

    @pytest.mark.parametrize(
        ("sides", "asked", "message"),
        [
            ("both", [6], "item 'id-6' .* has no interactions"),
            ("items", [1], "item 'id-1' .* was not trained on"),
        ],
    )
    def test_nobody_to_compare_is_explained(self, sides, asked, message):
        world = World.random(observed=0, sides=sides, cold_start=0)
        world.cells = {(0, 0): 1, (1, 0): 1}
        world.rows["items"][1] = len(world.rows["items"])
        with pytest.raises(DataError, match=message):
            table_of(world.state(), "items", np.array(asked))
