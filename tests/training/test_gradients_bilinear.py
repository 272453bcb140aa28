"""The gradient of the bilinear interaction and of what it passes on, against autograd and finite
differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model.network import Network
from cfuica.ops import reference
from cfuica.settings import RatingSettings
from cfuica.training.autograd import autograd_loss_and_gradients
from cfuica.training.batches import Block, Dropout, hidden_units, make_estimator
from cfuica.training.gradients import GradientBuffers, block_loss_and_gradients
from cfuica.training.optimizer import Adam
from cfuica.training.rating_task import new_model, train
from tests.model.reference import matrix_of, random_cells

N_USERS, N_ITEMS, K = 12, 9, 3
SMALL = RatingSettings(
    hidden_users=5,
    hidden_items=4,
    batch_users=5,
    batch_items=4,
    bilinear_rate=0.1,
    schedule="planned",
    max_steps=4,
    learning_rate=0.05,
)


def problem(changed: RatingSettings, seed: int) -> tuple[Network, Block]:
    """A model with numbers everywhere, and a block."""
    matrix = matrix_of(random_cells(N_USERS, N_ITEMS, K, 80, seed), N_USERS, N_ITEMS, K)
    model = new_model(matrix, changed, cold_start=True)
    rng = np.random.default_rng(seed)
    for tensor in model.tensors().values():
        tensor.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(tensor.shape))))
    estimator = make_estimator(matrix, changed)
    if changed.dropout:
        estimator = Dropout(estimator, changed.dropout, hidden_units(changed), seed)
    return model, estimator.draw(seed)


def gradients_of(model: Network, block: Block, share: bool = True):
    return block_loss_and_gradients(
        model, block, factor=0.3, ordinal_weight=0.6, share=share, buffers=GradientBuffers()
    )


@settings(max_examples=40, deadline=None)
@given(
    activation=st.sampled_from(["tanh", "sigmoid", "relu"]),
    dropout=st.sampled_from([0.0, 0.4]),
    length_normalisation=st.sampled_from([0.0, 0.7]),
    share=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_gradient_is_that_of_autograd(activation, dropout, length_normalisation, share, seed):
    changed = SMALL.replaced(
        activation=activation, dropout=dropout, length_normalisation=length_normalisation
    )
    model, block = problem(changed, seed)
    loss, found = gradients_of(model, block, share)
    expected_loss, expected = autograd_loss_and_gradients(
        model, block, factor=0.3, ordinal_weight=0.6, share=share
    )
    assert loss == pytest.approx(expected_loss, rel=1e-4)
    close = {"rtol": 2e-3, "atol": 2e-5}
    for side in found:
        ours, theirs = found[side], expected[side]
        np.testing.assert_allclose(ours.encoder_nkh, theirs.encoder_nkh, **close)
        np.testing.assert_allclose(ours.encoder_bias_h, theirs.encoder_bias_h, **close)
        assert ours.squares == pytest.approx(theirs.squares, rel=1e-3, abs=1e-6)
        assert ours.inner == pytest.approx(theirs.inner, rel=1e-3, abs=1e-4)
    np.testing.assert_allclose(found["items"].bilinear_hku, expected["items"].bilinear_hku, **close)


def test_the_gradient_of_the_bilinear_interaction_is_that_of_finite_differences():
    model, block = problem(SMALL, 5)
    _, found = gradients_of(model, block)
    table, step = model.bilinear.table_hku, 1e-2
    rng = np.random.default_rng(0)
    for _ in range(10):
        at = tuple(int(rng.integers(size)) for size in table.shape)
        before = float(table[at])
        costs = []
        for sign in (1, -1):
            table[at] = before + sign * step
            costs.append(gradients_of(model, block)[0])
        table[at] = before
        grad = (costs[0] - costs[1]) / (2 * step)
        assert float(found["items"].bilinear_hku[at]) == pytest.approx(grad, rel=2e-2, abs=2e-4)


def test_the_free_norm_counts_the_bilinear_interaction_and_its_step_has_its_own_rate():
    model, block = problem(SMALL, 3)
    optimiser = Adam(model, SMALL.replaced(l2=0.1, max_norm=None, max_entry=None))
    _, gradients = gradients_of(model, block)
    grad = gradients["items"].bilinear_hku.clone()
    whole = float(grad.double().square().sum())
    for name, side in model.sides.items():
        own = gradients[name]
        for key, of_block in (("encoder_nkh", None), ("decoder_nkh", own.decoder_gkh)):
            table = getattr(side, key)
            dense = own.encoder_nkh if of_block is None else torch.zeros_like(table)
            if of_block is not None:
                rows = own.group_of_row >= 0
                dense[torch.from_numpy(rows)] = of_block[own.group_of_row[rows]]
            stored = reference.differences(table)
            whole += float((dense + 0.2 * stored).double().square().sum())
        whole += float(own.encoder_bias_h.double().square().sum())
        whole += float(own.decoder_bias_gk.double().square().sum())
    assert optimiser.gradient_norm(gradients) == pytest.approx(whole**0.5, rel=1e-3)
    before = model.bilinear.table_hku.clone()
    optimiser.step(gradients, 0.05)
    # Adam's first step, in the form of the published experiments.
    rate = 0.05 * SMALL.bilinear_rate * (1 - 0.999) ** 0.5 / (1 - 0.9)
    expected = before - rate * 0.1 * grad / ((0.001**0.5) * grad.abs() + SMALL.epsilon)
    np.testing.assert_allclose(model.bilinear.table_hku, expected, rtol=1e-4, atol=1e-6)


def test_the_cold_start_network_has_a_bilinear_interaction_where_the_settings_say_so():
    matrix = matrix_of(random_cells(N_USERS, N_ITEMS, K, 80), N_USERS, N_ITEMS, K)
    values_k = np.arange(1, K + 1, dtype=np.float32)
    fitted = train(matrix, SMALL.replaced(cold_start_units=3), values_k)
    assert fitted.model.bilinear is None
    assert fitted.cold_start.bilinear.table_hku.shape == (3, K, 3)
    assert fitted.cold_start.bilinear.table_hku.abs().max() > 0
    for without in (
        SMALL.replaced(cold_start_units=3, bilinear_rate=0),
        SMALL.replaced(sides="users", cold_start_units=3),
    ):
        assert train(matrix, without, values_k).cold_start.bilinear is None
