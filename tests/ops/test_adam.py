"""The optimiser's pass, against `definition.adam` in float64 and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops import adam, reference
from tests.ops.shapes import EXAMPLES, LABELS


def run_adam(
    table_nkh, mean_nkh, square_nkh, grad_gkh, group_of_row, *, share, penalty=0.0, scale=1.0,
    limit=np.inf, rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-4,
):  # fmt: skip
    """One step in place. Returns the squared norm of each member's stored parameters."""
    squares_n = np.full(len(table_nkh), np.nan)
    numbers = (penalty, scale, limit, rate, beta1, beta2, epsilon)
    adam.adam(
        table_nkh,
        mean_nkh,
        square_nkh,
        grad_gkh,
        group_of_row,
        share,
        *map(np.float32, numbers),
        squares_n,
        0,
        len(table_nkh),
    )
    return squares_n


@EXAMPLES
@given(
    indices=st.integers(1, 6),
    labels=LABELS,
    hidden=st.integers(1, 40),
    groups=st.integers(0, 6),
    share=st.booleans(),
    penalty=st.sampled_from([0.0, 1e-4, 0.3]),
    scale=st.sampled_from([1.0, 0.37]),
    limit=st.sampled_from([np.inf, 1.0, 0.05]),
    seed=st.integers(0, 2**32 - 1),
)
def test_three_steps_equal_the_definition_on_the_stored_columns(
    indices, labels, hidden, groups, share, penalty, scale, limit, seed
):
    rng = np.random.default_rng(seed)
    shape = indices, labels, hidden
    groups = min(groups, indices)
    stored = torch.from_numpy(rng.normal(0, 0.5, shape))
    used = reference.accumulate(stored) if share else stored
    table_nkh = used.float().numpy().copy()
    mean_nkh, square_nkh = np.zeros((2, *shape), np.float32)
    mean, square = torch.zeros(2, *shape, dtype=torch.float64)
    for step in range(1, 4):
        grad_gkh = rng.normal(0, 1.0, (groups, labels, hidden)).astype(np.float32)
        group_of_row = np.full(indices, -1, np.int32)
        group_of_row[rng.permutation(indices)[:groups]] = np.arange(groups)
        rate = 0.01 * (1 - 0.99**step) ** 0.5 / (1 - 0.8**step)
        numbers = {"rate": rate, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-2}
        squares_n = run_adam(
            table_nkh, mean_nkh, square_nkh, grad_gkh, group_of_row,
            share=share, penalty=penalty, scale=scale, limit=limit, **numbers,
        )  # fmt: skip

        # A member without a group has gradient zero, and still its penalty and its moments.
        grad = torch.zeros(shape, dtype=torch.float64)
        has_group = group_of_row >= 0
        grad[has_group] = torch.from_numpy(grad_gkh[group_of_row[has_group]]).double()
        grad = (scale * (grad + 2 * penalty * stored)).clamp(-limit, limit)
        stored = reference.adam(stored, mean, square, grad, **numbers)

        used = reference.accumulate(stored) if share else stored
        np.testing.assert_allclose(table_nkh, used.numpy(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(mean_nkh, mean.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(square_nkh, square.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(squares_n, stored.square().sum((1, 2)), rtol=1e-4, atol=1e-6)


def test_the_first_step_by_hand():
    """m = 0.1 g and v = 0.001 g^2, and epsilon stays outside the bias correction (NOTES)."""
    table = np.float32([[[2.0]]])
    mean, square = np.zeros((2, 1, 1, 1), np.float32)
    lr, grad = 1e-3, 0.5
    rate = lr * (1 - 0.999) ** 0.5 / (1 - 0.9)
    squares = run_adam(
        table, mean, square, np.float32([[[grad]]]), np.int32([0]), share=False, rate=rate
    )
    expected = 2.0 - rate * 0.1 * grad / ((0.001 * grad**2) ** 0.5 + 1e-4)
    assert table[0, 0, 0] == pytest.approx(expected, rel=1e-7)
    assert mean[0, 0, 0] == pytest.approx(0.05)
    assert square[0, 0, 0] == pytest.approx(0.00025, rel=2e-5)  # 1 - 0.999 in float32
    assert squares[0] == pytest.approx(expected**2)


def test_a_small_gradient_moves_less_than_torchs_adam_would():
    """Where sqrt(v) is near epsilon the two forms differ: at the first step 32-fold."""
    grad, lr, epsilon = 1e-6, 1e-3, 1e-4
    table, mean, square = np.zeros((3, 1, 1, 1), np.float32)
    rate = lr * (1 - 0.999) ** 0.5 / (1 - 0.9)
    run_adam(table, mean, square, np.float32([[[grad]]]), np.int32([0]), share=False, rate=rate)
    # torch: lr * (m / 0.1) / (sqrt(v / 0.001) + eps) with m = 0.1 grad, v = 0.001 grad^2.
    by_torch = -lr * grad / (grad + epsilon)
    assert by_torch / table[0, 0, 0] == pytest.approx(0.001**-0.5, rel=0.02)


def test_limits_scale_first_and_clip_then():
    """A gradient of (4, -0.1) with scale 1/2 and limit 1 is (1, -0.05)."""
    table, mean, square = np.zeros((3, 1, 1, 2), np.float32)
    run_adam(
        table, mean, square, np.float32([[[4.0, -0.1]]]), np.int32([0]),
        share=False, scale=0.5, limit=1.0, beta1=0.0,
    )  # fmt: skip
    np.testing.assert_allclose(mean[0, 0], [1.0, -0.05], rtol=1e-6)


@pytest.mark.parametrize("limit", [np.inf, 1.0])
def test_not_a_number_stays_visible(limit):
    table, mean, square = np.zeros((3, 1, 2, 17), np.float32)
    grad = np.zeros((1, 2, 17), np.float32)
    grad[0, 1, [0, 8, 16]] = np.nan
    run_adam(table, mean, square, grad, np.int32([0]), share=False, limit=limit)
    assert np.array_equal(np.isnan(table), np.isnan(grad))


def test_accumulate_differences_and_stored_gradient_belong_together():
    rng = torch.Generator().manual_seed(0)
    stored = torch.rand(4, 5, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    used = reference.accumulate(stored)
    assert torch.allclose(used[:, 2], stored[:, :3].sum(1))
    assert torch.allclose(reference.differences(used), stored)
    grad = torch.rand(4, 5, 3, generator=rng, dtype=torch.float64)
    (by_autograd,) = torch.autograd.grad((used * grad).sum(), stored)
    assert torch.allclose(reference.stored_gradient(grad), by_autograd)
