"""The network against a second reading of the paper (`reference.py`), and its parameters."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model.layers import MemberLayers, ResidualLayer
from cfuica.model.network import Keep, LengthNormalisation, Network, Side
from cfuica.ops import reference
from cfuica.ops.tables import Bags, Pairs
from cfuica.settings import RankingSettings, RatingSettings
from tests.model.reference import Reference, pairs_of, random_cells, randomised, softmax

HIDDEN = {
    "both": {"users": 3, "items": 5},
    "users": {"users": 4},
    "items": {"items": 1},
}
ROWS, LABELS, UNITS = 41, 5, 24


def network_of(rows: dict[str, int], n_labels: int, seed: int = 0, **changes: object) -> Network:
    settings = RatingSettings(**{"hidden_users": 5, "hidden_items": 6, **changes})
    return Network.of(settings, rows, n_labels).initialise(seed)


def test_the_reference_itself_by_hand():
    """One hidden unit, two labels, one interaction in each sum."""
    users = {
        "W": np.array([[[0.0], [0.0]], [[0.5], [2.0]]]),  # user 1 with label 1 (0-based) adds 2
        "c": np.array([-1.0]),
        "V": np.array([[[3.0], [-1.0]], [[9.0], [9.0]]]),
        "b": np.array([[0.1, 0.2], [9.0, 9.0]]),
    }
    items = {
        "W": np.array([[[0.0], [0.0]], [[-4.0], [7.0]]]),  # item 1 with label 0 adds -4
        "c": np.array([5.0]),
        "V": np.array([[[1.0], [2.0]], [[9.0], [9.0]]]),
        "b": np.array([[0.0, -0.3], [9.0, 9.0]]),
    }
    model = Reference({"users": users, "items": items}, activation="relu")
    # h^U = relu(-1 + 2) = 1, h^I = relu(5 - 4) = 1
    expected = np.array([3.0 + 0.1 + 1.0 + 0.0, -1.0 + 0.2 + 2.0 - 0.3])
    before = {(1, 0): 1, (0, 1): 0, (1, 1): 0}  # (1, 1) shares neither user nor item
    np.testing.assert_allclose(model.conditional((0, 0), before), softmax(expected))
    # With sharing, label 1 uses the sum of both stored columns: h^U = relu(-1 + 2.5) = 1.5.
    model.share = True
    expected = np.array([3 * 1.5 + 0.1 + 1.0, (3 - 1) * 1.5 + 0.3 + (1 + 2) - 0.3])
    np.testing.assert_allclose(model.conditional((0, 0), before), softmax(expected))


def bags_of(contexts: list[list[tuple[int, int]]], n_labels: int) -> Bags:
    """For each query a list of (row, label)."""
    offsets = np.cumsum([0, *map(len, contexts)]).astype(np.int64)
    entries = [row * n_labels + label for context in contexts for row, label in context]
    return Bags(offsets, np.array(entries, np.int32))


@settings(max_examples=40, deadline=None)
@given(
    n_labels=st.sampled_from([1, 2, 3, 5]),
    sides=st.sampled_from(list(HIDDEN)),
    activation=st.sampled_from(["tanh", "sigmoid", "relu"]),
    share=st.booleans(),
    observed=st.integers(0, 14),
    seed=st.integers(0, 2**16),
)
def test_logits_equal_a_second_reading_of_the_paper(
    n_labels, sides, activation, share, observed, seed
):
    n_users, n_items = 4, 5
    cells = random_cells(n_users, n_items, n_labels, observed, seed)
    truth = Reference.random(
        n_users, n_items, n_labels, HIDDEN[sides], activation=activation, share=share, seed=seed
    )
    every = [(user, item) for user in range(n_users) for item in range(n_items)]
    pairs = pairs_of(*np.array(every, np.int32).T)
    contexts = {
        "users": [[(u, k) for (u, i), k in cells.items() if i == item] for item in range(n_items)],
        "items": [[(i, k) for (u, i), k in cells.items() if u == user] for user in range(n_users)],
    }
    bags = {name: bags_of(lists, n_labels) for name, lists in contexts.items()}
    model = truth.model()
    logits_pk = model(pairs, model.encode(bags)).detach().numpy()
    expected = [
        truth.logits(
            (user, item),
            {cell: k for cell, k in cells.items() if cell[1] == item},
            {cell: k for cell, k in cells.items() if cell[0] == user},
        )
        for user, item in every
    ]
    np.testing.assert_allclose(logits_pk, expected, rtol=1e-4, atol=1e-4)
    assert model.n_labels == n_labels


@pytest.mark.parametrize("sides", list(HIDDEN))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factors_are_the_logits_but_for_the_bias_of_the_user(sides, dtype):
    """Of a whole catalogue, in the precision of the network."""
    network = Reference.random(4, 5, 1, HIDDEN[sides], seed=3).model().to(dtype)
    users, items = np.arange(4, dtype=np.int32), np.array([4, 0, 2], np.int32)
    contexts = {
        "users": bags_of([[(1, 0)], [], [(0, 0), (3, 0)]], 1),
        "items": bags_of([[(2, 0)], [(1, 0), (4, 0)], [], [(0, 0)]], 1),
    }
    hidden = network.encode(contexts)
    # One position for each user.
    queries_qh, items_mh, by_user_um = network.factors(users, items, hidden, 4)
    assert {each.dtype for each in (queries_qh, items_mh, by_user_um)} == {dtype}
    found = queries_qh @ items_mh.T + by_user_um
    user_p, item_p = (each.ravel().astype(np.int32) for each in np.indices((4, 3)))
    expected = network(Pairs.between(users, items, user_p, item_p), hidden).view(4, 3)
    if network.users is not None:
        expected = expected - network.users.b.values[:4, 0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_parameters_have_the_names_of_the_paper_by_side():
    network = network_of({"users": 4, "items": 5}, 2)
    assert {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()} == {
        "users.W.values": (4, 2, 5),
        "users.c": (5,),
        "users.V.values": (4, 2, 5),
        "users.b.values": (4, 2, 1),
        "items.W.values": (5, 2, 6),
        "items.c": (6,),
        "items.V.values": (5, 2, 6),
        "items.b.values": (5, 2, 1),
    }
    assert [name for name, _ in network.named_parameters()] == ["users.c", "items.c"]
    assert list(network.tables) == [f"{s}.{key}" for s in ("users", "items") for key in "WVb"]


def test_initial_values_follow_the_seed_and_not_the_length_normalisation():
    rows = {"users": 4, "items": 5}
    one, same, other = (network_of(rows, 2, seed).state_dict() for seed in (7, 7, 8))
    normalised = network_of(rows, 2, 7, length_normalisation=1.0).state_dict()
    for name, tensor in one.items():
        assert torch.equal(tensor, same[name])
        assert torch.equal(tensor, normalised[name])
        assert torch.equal(tensor, other[name]) == (not tensor.any()) == (name[6] in "cb")


@pytest.mark.parametrize("share", [True, False])
def test_stored_columns_start_glorot_uniform_and_biases_and_the_shared_row_zero(share):
    side = Side(ROWS, LABELS, UNITS, share=share)
    side.initialise(torch.Generator().manual_seed(0))
    bound = (6.0 / ((ROWS - 1 + UNITS) * LABELS)) ** 0.5
    for table in (side.W, side.V):
        used = table.values[:-1]
        stored = reference.differences(used) if share else used
        assert 0.99 * bound < float(stored.abs().max()) <= bound * (1 + 1e-5)
        # The variance of a uniform draw, label by label; 960 draws each.
        np.testing.assert_allclose(stored.var((0, 2)).numpy(), bound**2 / 3, rtol=0.15)
        np.testing.assert_allclose(stored.mean((0, 2)).numpy(), 0, atol=0.08 * bound)
        assert not table.values[-1].any()
    assert not torch.equal(side.W.values, side.V.values)
    assert not side.c.any()
    assert not side.b.values.any()


def test_sums_are_normalised_but_c_is_not():
    side = Side(4, 3, 5, length_norm=LengthNormalisation(1.0, 10.0))
    side.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        side.c.copy_(torch.linspace(-1, 1, 5))
    rows_rh = side.W.values.flatten(0, 1)
    bags = Bags(np.array([0, 0, 1, 4], np.int64), np.array([7, 0, 4, 8], np.int32))
    expected_qh = torch.stack(
        [
            torch.zeros(5),
            20 / 11 * rows_rh[7],
            20 / 13 * (rows_rh[0] + rows_rh[4] + rows_rh[8]),
        ]
    )
    sums_qh = side.sums(bags)
    torch.testing.assert_close(sums_qh, expected_qh)
    torch.testing.assert_close(side.hidden(sums_qh), torch.tanh(expected_qh + side.c))


def test_dropout_masks_the_hidden_units_and_those_of_the_residual_layer():
    layer = MemberLayers([ResidualLayer(5, 4)])
    side = randomised(Side(3, 1, 5, layer=layer), 0)
    rng = np.random.default_rng(0)
    sums_qh, hidden_qh, layer_qu = (
        rng.normal(size=shape).astype(np.float32) for shape in ((6, 5), (6, 5), (6, 4))
    )
    sums_qh = torch.from_numpy(sums_qh)
    masked_qh = torch.tanh(sums_qh + side.c) * torch.from_numpy(hidden_qh)
    for mask, own in ((None, None), (layer_qu, torch.from_numpy(layer_qu))):
        found = side.hidden(sums_qh, Keep(hidden_qh, mask))
        torch.testing.assert_close(found, layer(masked_qh, own))


def test_the_shared_row_becomes_the_mean_of_the_given_rows():
    side = Side(ROWS, LABELS, UNITS, share=True)
    side.initialise(torch.Generator().manual_seed(0))
    before = copy.deepcopy(side.state_dict())
    rows = np.array([3, 5, 39])
    side.share_the_mean(rows, ("W",))
    assert side.shared_row == ROWS - 1
    torch.testing.assert_close(side.W.values[-1], before["W.values"][rows].mean(0))
    before["W.values"][-1] = side.W.values[-1]
    assert all(torch.equal(tensor, before[name]) for name, tensor in side.state_dict().items())


@pytest.mark.parametrize("sides", ["users", "items"])
def test_one_sided_networks_hold_one_side_only(sides):
    network = network_of({"users": 4, "items": 5}, 2, sides=sides)
    assert tuple(network.sides) == (sides,)
    assert {name.split(".")[0] for name in network.state_dict()} == {sides}


def test_parameters_are_around_83_percent_of_cf_nades_on_ml_1m():
    """The paper: with the same total of hidden units. The published setting is 500 + 500."""

    def count(**hidden: int) -> int:
        sides = {
            name: Side({"users": 6041, "items": 3953}[name], 5, units)
            for name, units in hidden.items()
        }
        return Network(sides).parameter_count()

    def ours(units: int) -> int:
        return count(users=units, items=units)

    def item_based_cf_nade(units: int) -> int:
        return count(users=2 * units)

    assert 0.82 <= ours(20) / item_based_cf_nade(20) <= 0.84

    # Counts are straight lines in H: from two small models to the published size.
    def at(units, counted):
        grad = (counted(4) - counted(2)) / 2
        assert counted(3) == counted(2) + grad
        return counted(2) + (units - 2) * grad

    ratio = at(500, ours) / at(500, item_based_cf_nade)
    assert ratio == pytest.approx(0.8276, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "cold_start"),
    [
        (RatingSettings(hidden_users=5, hidden_items=6), False),
        (RatingSettings(cold_start_units=3, bilinear_rate=0.1), True),
        (
            RankingSettings(hidden_users=5, hidden_items=6, learned_decay=True, residual_units=4),
            False,
        ),
    ],
)
def test_a_fresh_network_with_the_state_of_another_is_its_equal(settings, cold_start):
    rows, labels = {"users": 4, "items": 5}, 1 if isinstance(settings, RankingSettings) else 3

    def fresh() -> Network:
        return Network.of(settings, rows, labels, cold_start=cold_start)

    network, again = randomised(fresh(), 0), fresh()
    state = copy.deepcopy(network.state_dict())
    again.load_state_dict(state)
    contexts = {
        "users": bags_of([[(0, 0)], [(3, 0), (1, 0)]], labels),
        "items": bags_of([[(4, 0)], []], labels),
    }
    pairs = pairs_of(np.array([0, 1, 1]), np.array([1, 0, 1]))
    outcomes = [each(pairs, each.encode(contexts)) for each in (network, again)]
    assert torch.equal(*outcomes)
    # Copied, not shared.
    for tensor in network.state_dict().values():
        tensor.zero_()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.state_dict().items())
    assert again.parameter_count() == sum(tensor.numel() for tensor in state.values())
