"""An op in its compiled form, held to float64 autograd of its reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from cfuica.ops import reference
from cfuica.ops.tables import RowTable

EVERY_ROW = "every row"  # The gradient of an op that lists no rows.


def run(
    op: Callable[..., Tensor],
    tables: Sequence[np.ndarray],
    inputs: Sequence[np.ndarray],
    dtype: torch.dtype,
    *,
    share: bool,
) -> tuple[Tensor, list[Tensor], list[RowTable]]:
    """The output, the gradients by the inputs, and the tables with their gradients."""
    own = [RowTable(torch.from_numpy(each).to(dtype), share=share) for each in tables]
    leaves = [torch.from_numpy(each).to(dtype).requires_grad_() for each in inputs]
    output = op(*own, *leaves)
    # In double precision an op runs by its reference; otherwise this would compare it to itself.
    assert type(output.grad_fn).__name__.startswith("_") == (dtype == torch.float32)
    if output.requires_grad:  # The reference of an op that reads no row has no gradient.
        weight = np.random.default_rng(0).normal(1, 0.5, tuple(output.shape)).astype(np.float32)
        output.backward(torch.from_numpy(np.asarray(weight)).to(output.dtype))
    grads = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
    return output.detach(), grads, own


def equals_reference(
    op: Callable[..., Tensor],
    tables: Sequence[np.ndarray] = (),
    inputs: Sequence[np.ndarray] = (),
    *,
    share: bool = False,
    rows: np.ndarray | str = EVERY_ROW,
    near: float = 2e-5,
) -> None:
    """Assert that output, gradients and what is in the tables' slots are those of the reference.

    `op` is called with the tables and the inputs; `rows` are those that the slots must list.
    """
    output, grads, own = run(op, tables, inputs, torch.float32, share=share)
    expected, expected_grads, theirs = run(op, tables, inputs, torch.float64, share=share)
    assert output.shape == expected.shape
    _close(output, expected, near)
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        _close(grad, expected_grad, near)
    for table, their in zip(own, theirs, strict=True):
        grad = their.dense_gradient()
        _close(table.dense_gradient(), grad, near)
        assert table.gradient is not None
        if isinstance(rows, str):
            assert table.gradient.rows is None
        else:
            assert np.array_equal(table.gradient.rows, rows)
        stored = reference.differences(their.values) if share else their.values
        products = grad * stored
        for slot in filter(None, (table.gradient, their.gradient)):
            assert slot.squares == pytest.approx(float(grad.square().sum()), rel=1e-4, abs=1e-8)
            size = float(products.abs().sum())
            assert slot.inner == pytest.approx(float(products.sum()), abs=1e-4 * size + 1e-7)


def _close(found: Tensor, expected: Tensor, near: float) -> None:
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    np.testing.assert_allclose(found.double(), expected, rtol=near, atol=near * (1 + scale))
