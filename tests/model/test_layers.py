"""Learned decay, residual layers, and rows whose bits depend on no other row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model.layers import LearnedDecay, MemberLayers, ResidualLayer
from cfuica.model.network import BilinearInteraction, Side


def random_layer(hidden: int, units: int, seed: int = 0) -> ResidualLayer:
    layer, generator = ResidualLayer(hidden, units), torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    return layer


def test_units_begin_with_decays_from_short_to_long():
    decay = LearnedDecay(100, members=2)
    decay_h, scale_h = (each.detach().double() for each in decay())
    times_h = -1 / torch.log(decay_h)
    assert times_h[0] == pytest.approx(0.3, rel=1e-3)
    assert times_h[49] == pytest.approx(200, rel=1e-2)
    assert torch.equal(times_h[:50], times_h[50:])
    # What f reads has one variance whatever the decay: 9 / (1 - decay^2) of it is undone.
    np.testing.assert_allclose(scale_h**2 / (1 - decay_h**2), 9.0, rtol=1e-2)


def test_a_residual_layer_is_its_formula_and_begins_as_the_identity():
    layer = random_layer(3, 4)
    hidden_qh, keep_qu = torch.randn(5, 3), torch.randn(5, 4)
    inner_qu = torch.relu(hidden_qh @ layer.into + layer.bias)
    torch.testing.assert_close(layer(hidden_qh), hidden_qh + inner_qu @ layer.back)
    torch.testing.assert_close(
        layer(hidden_qh, keep_qu), hidden_qh + (inner_qu * keep_qu) @ layer.back
    )
    fresh = ResidualLayer(3, 4)
    fresh.initialise(torch.Generator().manual_seed(0))
    assert torch.equal(fresh(hidden_qh), hidden_qh)
    bound = (6 / 7) ** 0.5
    assert 0.5 * bound < fresh.into.abs().max() <= bound


def test_the_layers_of_members_read_their_own_units():
    layers = MemberLayers([random_layer(3, 4, seed) for seed in range(2)])
    hidden_qh = torch.randn(5, 6)
    parts = [layer(own) for layer, own in zip(layers, hidden_qh.split(3, dim=1), strict=True)]
    torch.testing.assert_close(layers(hidden_qh), torch.cat(parts, 1))


def units_of(name: str, hidden: int, units: int, seed: int):
    """A function of hidden vectors (Q, H) in inference."""
    if name == "bilinear":
        bilinear = BilinearInteraction(hidden_users=units, hidden_items=hidden, labels=3)
        torch.nn.init.normal_(bilinear.A, generator=torch.Generator().manual_seed(seed))
        return bilinear.query_rows
    members = 1 + (name == "members")
    layers = MemberLayers([random_layer(hidden // members, units, n) for n in range(members)])
    return Side(2, 1, hidden, layer=layers).hidden


@pytest.mark.parametrize("name", ["residual", "members", "bilinear"])
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 70),
    hidden=st.sampled_from([2, 4, 16, 30, 128]),
    units=st.sampled_from([1, 7, 64, 129]),
    seed=st.integers(0, 999),
)
def test_the_bits_of_a_row_do_not_depend_on_the_other_rows(name, rows, hidden, units, seed):
    """In inference a row may be computed alone, among others, and at any place."""
    layer = units_of(name, hidden, units, seed)
    rng = np.random.default_rng(seed)
    hidden_qh = torch.from_numpy(rng.normal(size=(rows, hidden)).astype(np.float32))
    with torch.no_grad():
        together = layer(hidden_qh)
        order = rng.permutation(rows)[: rng.integers(1, rows + 1)]
        assert torch.equal(layer(hidden_qh[order]), together[order])
        assert torch.equal(layer(hidden_qh[:1]), together[:1])
    torch.testing.assert_close(layer(hidden_qh), together, rtol=1e-4, atol=1e-4)
