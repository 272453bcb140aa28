"""What the bilinear interaction adds to the logits, and which networks have one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model.network import CONSTANT, Network
from cfuica.ops.tables import Pairs
from cfuica.settings import RatingSettings
from tests.model.reference import randomised

ROWS, K = {"users": 7, "items": 8}, 3
COLD = RatingSettings(cold_start_units=4, bilinear_rate=0.1)


def pairs_and_hidden(seed: int, pairs: int, queries: int) -> tuple[Pairs, dict[str, torch.Tensor]]:
    """Pairs between queries of both sides, and hidden vectors of these."""
    rng = np.random.default_rng(seed)
    users, items, user_p, item_p = (
        rng.integers(0, high, size).astype(np.int32)
        for high, size in ((7, queries), (8, queries), (queries, pairs), (queries, pairs))
    )
    hidden = {
        side: torch.from_numpy(rng.normal(size=(queries, 4)).astype(np.float32)) for side in ROWS
    }
    return Pairs.between(users, items, user_p, item_p), hidden


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.integers(0, 20), st.integers(1, 40), st.booleans())
def test_logits_have_the_bilinear_form_added(seed, n_pairs, queries, in_training):
    network = randomised(Network.of(COLD, ROWS, K, cold_start=True), seed)
    pairs, hidden = pairs_and_hidden(seed, n_pairs, queries)
    with torch.set_grad_enabled(in_training):
        plain_pk = Network(network.sides)(pairs, hidden)
        found_pk = (network(pairs, hidden) - plain_pk).detach()
    of_user = hidden["items"][pairs.items.query_of_pair].double()
    of_item = hidden["users"][pairs.users.query_of_pair].double()
    table_hku = network.bilinear.A.detach().double()
    expected_pk = torch.einsum("ph,hku,pu->pk", of_user, table_hku, of_item)
    np.testing.assert_allclose(found_pk, expected_pk, rtol=1e-4, atol=1e-4)


def test_it_begins_as_nothing_beside_a_constant_unit_of_each_side():
    """So that it contains a bias that is computed from one history alone."""
    network = Network.of(COLD, ROWS, K, cold_start=True).initialise(0)
    assert network.bilinear.A.shape == (4, K, 4)
    assert not network.bilinear.A.any()
    for side in network.sides.values():
        assert side.c[0] == CONSTANT
        assert not side.W.values[:, :, 0].any()
        assert side.W.values[:-1, :, 1:].all()
        assert not side.c[1:].any()


@pytest.mark.parametrize(
    ("changes", "cold_start"),
    [({}, False), ({"bilinear_rate": 0}, True), ({"sides": "users"}, True)],
)
def test_other_networks_have_none(changes, cold_start):
    assert Network.of(COLD.replaced(**changes), ROWS, K, cold_start=cold_start).bilinear is None
