"""One side's initial values and what it lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfuica.data.matrix import Csr
from cfuica.model.side import Side
from cfuica.ops import reference

MEMBERS, LABELS, HIDDEN = 40, 5, 24


def initial(*, share, seed=0):
    return Side.initial(
        MEMBERS,
        LABELS,
        HIDDEN,
        activation="tanh",
        share=share,
        generator=torch.Generator().manual_seed(seed),
    )


@pytest.mark.parametrize("share", [True, False])
def test_stored_columns_start_glorot_uniform_and_biases_zero(share):
    side = initial(share=share)
    bound = (6.0 / ((MEMBERS + HIDDEN) * LABELS)) ** 0.5
    for table_nkh in (side.encoder_nkh, side.decoder_nkh):
        stored = reference.differences(table_nkh) if share else table_nkh
        assert float(stored.abs().max()) <= bound * (1 + 1e-5)
        assert float(stored.abs().max()) > 0.99 * bound
        # The variance of a uniform draw, label by label; 960 draws each.
        np.testing.assert_allclose(stored.var((0, 2)).numpy(), bound**2 / 3, rtol=0.15)
        np.testing.assert_allclose(stored.mean((0, 2)).numpy(), 0, atol=0.08 * bound)
    assert not side.encoder_bias_h.any()
    assert not side.decoder_bias_nk.any()


def test_initial_values_follow_the_generator_and_the_two_tables_differ():
    assert torch.equal(initial(share=True).encoder_nkh, initial(share=True).encoder_nkh)
    assert not torch.equal(initial(share=True).encoder_nkh, initial(share=True, seed=1).encoder_nkh)
    side = initial(share=True)
    assert not torch.equal(side.encoder_nkh, side.decoder_nkh)


def test_parameter_count_is_that_of_w_c_v_and_b():
    side = initial(share=True)
    assert sorted(side.tensors()) == [
        "decoder_bias_nk",
        "decoder_nkh",
        "encoder_bias_h",
        "encoder_nkh",
    ]
    rows = MEMBERS + 1  # and the shared row
    count = sum(tensor.numel() for tensor in side.tensors().values())
    assert count == 2 * rows * LABELS * HIDDEN + HIDDEN + rows * LABELS


def test_a_query_without_context_is_encoded_from_c_alone():
    side = initial(share=True)
    side.encoder_bias_h.copy_(torch.linspace(-2, 2, HIDDEN))
    bag = Csr(np.array([0, 0, 1], np.int64), np.array([7], np.int32))
    hidden = side.encode(bag)
    assert torch.equal(hidden.sums_qh[0], side.encoder_bias_h)
    assert torch.allclose(hidden.values_qh[0], torch.tanh(side.encoder_bias_h), atol=1e-6)
    row = side.encoder_nkh[7 // LABELS, 7 % LABELS]
    assert torch.allclose(hidden.sums_qh[1], side.encoder_bias_h + row)


def test_the_shared_row_becomes_the_mean_of_the_given_rows():
    side = initial(share=True)
    before = {name: tensor.clone() for name, tensor in side.tensors().items()}
    indices = torch.tensor([3, 5, 39])
    side.share_the_mean(indices, ("encoder_nkh",))
    assert side.shared_row == MEMBERS
    torch.testing.assert_close(side.encoder_nkh[-1], before["encoder_nkh"][indices].mean(0))
    before["encoder_nkh"][-1] = side.encoder_nkh[-1]
    assert all(torch.equal(tensor, before[name]) for name, tensor in side.tensors().items())
