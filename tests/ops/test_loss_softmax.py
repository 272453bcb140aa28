"""The softmax over a catalogue: compiled against the reference and torch's own log_softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import loss
from cfuica.ops.loss import CatalogueTargets, catalogue_softmax
from cfuica.ops.tables import Grouping
from tests.ops.compare import equals_reference
from tests.ops.shapes import SEEDS


def targets_of(
    positions: list[int],
    targets: list[list[int]],
    seen: list[list[int]] | None = None,
    correction_m: np.ndarray | None = None,
) -> CatalogueTargets:
    """`positions` of each user; the target columns and the masked ones of each position."""
    seen = seen or [[] for _ in targets]
    sizes, seen_sizes = ([len(own) for own in lists] for lists in (targets, seen))
    columns = np.array([column for own in targets for column in own], np.int32)
    # The pairs are listed in another order than the positions.
    order = np.random.default_rng(0).permutation(len(columns)).astype(np.int32)
    listed = np.empty_like(columns)
    listed[order] = columns
    stop_q = np.cumsum(seen_sizes, dtype=np.int64)
    return CatalogueTargets(
        np.append(0, np.cumsum(positions)).astype(np.int64),
        listed,
        Grouping(np.append(0, np.cumsum(sizes)).astype(np.int64), order),
        np.array([column for own in seen for column in own], np.int32),
        stop_q - seen_sizes,
        stop_q,
        correction_m,
    )


def factors_of(queries: int, columns: int, users: int, hidden: int, seed: int, spread: float = 1.0):
    """queries_qh, items_mh and by_user_um."""
    rng = np.random.default_rng(seed)
    shapes = (queries, hidden), (columns, hidden), (users, columns)
    return [(spread * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


@settings(max_examples=80, deadline=None)
@given(
    positions=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    columns=st.integers(2, 40),
    hidden=st.integers(0, 7),
    spread=st.sampled_from([0.1, 1.0, 3.0]),
    is_sampled=st.booleans(),
    is_weighted=st.booleans(),
    n_seen=st.integers(0, 20),
    chunk=st.sampled_from([2, 256]),
    seed=SEEDS,
)
def test_loss_and_gradients_equal_the_reference(
    positions, columns, hidden, spread, is_sampled, is_weighted, n_seen, chunk, seed
):
    rng = np.random.default_rng(seed)
    queries = sum(positions)

    def drawn(most: int) -> list[list[int]]:
        return [rng.choice(columns, rng.integers(0, most + 1), False).tolist() for _ in
                range(queries)]  # fmt: skip

    correction_m = None
    if is_sampled:
        correction_m = rng.choice([-np.inf, 0.7], columns).astype(np.float32)
        correction_m[rng.integers(columns)] = 0.7  # something is drawn
    targets = targets_of(
        positions, drawn(min(3, columns)), drawn(min(n_seen, columns)), correction_m
    )
    if is_weighted:
        weights = rng.uniform(0.1, 3, len(targets.columns)).astype(np.float32)
        targets = replace(targets, weights=weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "CHUNK", chunk)
        equals_reference(
            lambda *factors: catalogue_softmax(*factors, targets),
            inputs=factors_of(queries, columns, len(positions), hidden, seed, spread),
            near=1e-4,
        )


def defined(queries_qh, items_mh, by_user_um, user_q, targets, seen, correction_m):
    """Position by position, by torch's log_softmax."""
    total = torch.zeros((), dtype=torch.float64)
    for q, own in enumerate(targets):
        row_m = queries_qh[q] @ items_mh.T + by_user_um[user_q[q]]
        add_m = torch.from_numpy(correction_m).double()
        add_m[seen[q]] = -torch.inf
        add_m[own] = 0.0
        for column in own:
            total = total - torch.log_softmax(row_m + add_m, 0)[column]
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_and_corrections_are_for_all_columns_but_the_targets(dtype):
    """Targets that are masked or not drawn, one position with two, and one with none."""
    targets, seen = [[0, 3], [], [2], [4]], [[3, 1], [0, 1, 2, 3, 4], [], [4, 4]]
    correction_m = np.array([-np.inf, 0.7, -np.inf, 0.7, 0.7], np.float32)
    leaves = [
        torch.from_numpy(each).to(dtype).requires_grad_() for each in factors_of(4, 5, 2, 3, 0)
    ]
    total = catalogue_softmax(*leaves, targets_of([2, 2], targets, seen, correction_m))
    assert (total.dtype, total.shape) == (torch.float64, ())
    found = torch.autograd.grad(total, leaves)
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    expected = defined(*doubles, [0, 0, 1, 1], targets, seen, correction_m)
    assert float(total.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    for grad, wanted in zip(found, torch.autograd.grad(expected, doubles), strict=True):
        np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=1e-6)


def test_the_loss_may_be_differentiated_twice_from_the_same_graph():
    leaves = [torch.from_numpy(each).requires_grad_() for each in factors_of(2, 4, 1, 3, 0)]
    total = 0.5 * catalogue_softmax(*leaves, targets_of([2], [[1], [0]]))
    first, second = (
        [grad.clone() for grad in torch.autograd.grad(total, leaves, retain_graph=True)]
        for _ in range(2)
    )
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("ops", ["compiled", "reference"])
def test_a_target_of_weight_two_counts_as_two_targets(ops, monkeypatch):
    if ops == "reference":
        monkeypatch.setenv("CFUICA_OPS", "reference")
    factors = factors_of(3, 5, 1, 4, 0)

    def gradients(targets, weights):
        leaves = [torch.from_numpy(each).requires_grad_() for each in factors]
        own = replace(targets_of([3], targets), weights=weights)
        total = catalogue_softmax(*leaves, own)
        return [float(total.detach()), *torch.autograd.grad(total, leaves)]

    order = targets_of([3], [[1], [0], []]).by_position.order
    weights = np.empty(2, np.float32)
    weights[order] = [1, 2]
    one, two = gradients([[1], [], []], None), gradients([[], [0], []], None)
    for found, a, b in zip(gradients([[1], [0], []], weights), one, two, strict=True):
        np.testing.assert_allclose(found, a + 2 * b, rtol=1e-5, atol=1e-6)


def of_logits(logits_m, target, **changes):
    """The loss of one position with these logits, and its gradient by them."""
    queries_qh, items_mh = torch.zeros(1, 1), torch.zeros(len(logits_m), 1)
    by_user_um = torch.from_numpy(np.asarray(logits_m, np.float32))[None].requires_grad_()
    targets = replace(targets_of([1], [target]), **changes)
    total = catalogue_softmax(queries_qh, items_mh, by_user_um, targets)
    return float(total.detach()), torch.autograd.grad(total, by_user_um)[0][0].numpy()


def test_exponentials_are_right_to_float32_over_their_whole_range():
    x = np.linspace(-86, 0, 10_001, dtype=np.float32)
    _, grad_m = of_logits(x, [x.size - 1])
    expected = torch.softmax(torch.from_numpy(x).double(), 0)
    np.testing.assert_allclose(grad_m[:-1], expected[:-1], rtol=3e-6)


def test_huge_logits_overflow_nothing():
    total, grad_m = of_logits([1e4, -1e4, 9.999e3], [0])
    assert total == pytest.approx(np.log1p(np.exp(-1.0)), rel=1e-3)
    assert np.isfinite(grad_m).all()


def test_a_position_without_a_target_has_no_loss_and_no_gradient():
    total, grad_m = of_logits(np.ones(4), [])
    assert total == 0
    assert not grad_m.any()
