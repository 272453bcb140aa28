"""The optimiser's pass: compiled against the reference in float64, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops import reference
from cfuica.ops.adam import adam_step
from cfuica.ops.tables import RowGradient
from tests.ops.shapes import EXAMPLES, LABELS, SEEDS


def run_adam(
    table, mean, square, grad, *, rows=None, share=False, penalty=0.0, scale=1.0, limit=np.inf,
    rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-4,
):  # fmt: skip
    """One step in place; None: no gradient. Returns the squared norm of the stored parameters."""
    gradient = None if grad is None else RowGradient(rows, torch.as_tensor(grad), 0.0, 0.0)
    numbers = (penalty, scale, limit, rate, beta1, beta2, epsilon)
    names = ("penalty", "scale", "limit", "rate", "beta1", "beta2", "epsilon")
    return adam_step(
        table, mean, square, gradient, share=share, **dict(zip(names, numbers, strict=True))
    )


def zeros(*shape):
    """A table and its moments."""
    return tuple(torch.zeros(3, *shape))


@EXAMPLES
@given(
    n=st.integers(1, 6),
    labels=LABELS,
    hidden=st.integers(1, 40),
    groups=st.one_of(st.none(), st.just("all"), st.integers(0, 6)),
    share=st.booleans(),
    penalty=st.sampled_from([0.0, 1e-4, 0.3]),
    scale=st.sampled_from([1.0, 0.37]),
    limit=st.sampled_from([np.inf, 1.0, 0.05]),
    seed=SEEDS,
)
def test_three_steps_equal_the_reference_on_the_stored_columns(
    n, labels, hidden, groups, share, penalty, scale, limit, seed
):
    """Compiled, by the reference in float64, and by its formula: with gradients of some rows, of
    all rows or of none. A row without one still has its penalty and its moments."""
    rng = np.random.default_rng(seed)
    shape = n, labels, hidden
    stored = torch.from_numpy(rng.normal(0, 0.5, shape))
    used = reference.accumulate(stored) if share else stored
    compiled = [each.float() for each in (used, *torch.zeros(2, *shape))]
    by_reference = [used.clone(), *torch.zeros(2, *shape, dtype=torch.float64)]
    mean, square = torch.zeros(2, *shape, dtype=torch.float64)
    for step in range(1, 4):
        rows = rng.permutation(n)[:groups] if isinstance(groups, int) else None
        grad = torch.zeros(shape, dtype=torch.float64)
        values = rng.normal(size=(n if rows is None else len(rows), labels, hidden))
        values = torch.from_numpy(values.astype(np.float32))
        if groups is not None:
            grad[slice(None) if rows is None else rows] = values.double()
        rate = 0.01 * (1 - 0.99**step) ** 0.5 / (1 - 0.8**step)
        numbers = {"rate": rate, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-2}
        grad = (scale * (grad + 2 * penalty * stored)).clamp(-limit, limit)
        stored = reference.adam(stored, mean, square, grad, **numbers)
        used = reference.accumulate(stored) if share else stored
        for (table, *moments), near in ((compiled, 1e-5), (by_reference, 1e-9)):
            squares = run_adam(
                table, *moments, None if groups is None else values.to(table.dtype), rows=rows,
                share=share, penalty=penalty, scale=scale, limit=limit, **numbers,
            )  # fmt: skip
            np.testing.assert_allclose(table, used, rtol=near, atol=near)
            for found, expected in zip(moments, (mean, square), strict=True):
                np.testing.assert_allclose(found, expected, rtol=10 * near, atol=near)
            assert squares == pytest.approx(float(stored.square().sum()), rel=10 * near, abs=1e-6)


def test_the_first_step_by_hand():
    """m = 0.1 g and v = 0.001 g^2, and epsilon stays outside the bias correction (NOTES)."""
    table, mean, square = zeros(1, 1, 1)
    table.fill_(2.0)
    lr, grad = 1e-3, 0.5
    rate = lr * (1 - 0.999) ** 0.5 / (1 - 0.9)
    squares = run_adam(table, mean, square, np.float32([[[grad]]]), rate=rate)
    expected = 2.0 - rate * 0.1 * grad / ((0.001 * grad**2) ** 0.5 + 1e-4)
    assert table.item() == pytest.approx(expected, rel=1e-7)
    assert mean.item() == pytest.approx(0.05)
    assert square.item() == pytest.approx(0.00025, rel=2e-5)  # 1 - 0.999 in float32
    assert squares == pytest.approx(expected**2)


def test_a_small_gradient_moves_less_than_torchs_adam_would():
    """Where sqrt(v) is near epsilon the two forms differ: at the first step 32-fold."""
    grad, lr, epsilon = 1e-6, 1e-3, 1e-4
    table, mean, square = zeros(1, 1, 1)
    rate = lr * (1 - 0.999) ** 0.5 / (1 - 0.9)
    run_adam(table, mean, square, np.float32([[[grad]]]), rate=rate)
    # torch: lr * (m / 0.1) / (sqrt(v / 0.001) + eps) with m = 0.1 grad, v = 0.001 grad^2.
    by_torch = -lr * grad / (grad + epsilon)
    assert by_torch / table.item() == pytest.approx(0.001**-0.5, rel=0.02)


def test_limits_scale_first_and_clip_then():
    """A gradient of (4, -0.1) with scale 1/2 and limit 1 is (1, -0.05)."""
    table, mean, square = zeros(1, 1, 2)
    grad = np.float32([[[4.0, -0.1]]])
    run_adam(table, mean, square, grad, scale=0.5, limit=1.0, beta1=0.0)
    np.testing.assert_allclose(mean[0, 0], [1.0, -0.05], rtol=1e-6)


@pytest.mark.parametrize("limit", [np.inf, 1.0])
def test_not_a_number_stays_visible(limit):
    table, mean, square = zeros(1, 2, 17)
    grad = np.zeros((1, 2, 17), np.float32)
    grad[0, 1, [0, 8, 16]] = np.nan
    run_adam(table, mean, square, grad, limit=limit)
    assert np.array_equal(np.isnan(table.numpy()), np.isnan(grad))
