"""What crosses the bilinear interaction, and models that have one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model import layers
from cfuica.model.layers import BilinearInteraction
from cfuica.model.network import Network
from cfuica.model.pairs import Pairs

N_USERS, N_ITEMS, K = 6, 7, 3


def with_bilinear(seed: int, *, hidden_users: int = 4, hidden_items: int = 5) -> Network:
    """A model with numbers everywhere."""
    model = Network.initial(
        n_users=N_USERS,
        n_items=N_ITEMS,
        n_labels=K,
        hidden={"users": hidden_users, "items": hidden_items},
        with_bilinear=True,
    )
    rng = np.random.default_rng(seed)
    for tensor in model.tensors().values():
        tensor.copy_(torch.from_numpy(rng.normal(0, 0.7, tuple(tensor.shape))))
    return model


def targets_and_hidden(
    seed: int, pairs: int, queries: int
) -> tuple[Pairs, dict[str, torch.Tensor]]:
    """Pairs between queries of both sides, and hidden vectors of these."""
    rng = np.random.default_rng(seed)
    between = Pairs.between(
        rng.integers(0, N_USERS, queries).astype(np.int32),
        rng.integers(0, N_ITEMS, queries).astype(np.int32),
        rng.integers(0, queries, pairs).astype(np.int32),
        rng.integers(0, queries, pairs).astype(np.int32),
    )
    sizes = {"users": 4, "items": 5}
    return between, {
        side: torch.from_numpy(rng.normal(size=(queries, units)).astype(np.float32))
        for side, units in sizes.items()
    }


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.integers(0, 20), st.integers(1, 6), st.integers(1, 4))
def test_logits_have_the_bilinear_form_added(seed, n_pairs, queries, at_a_time):
    model = with_bilinear(seed)
    pairs, hidden = targets_and_hidden(seed, n_pairs, queries)
    plain_pk = Network(model.sides).logits(pairs, hidden)
    with pytest.MonkeyPatch.context() as patch:
        # So few bytes that the rows are made a few at a time.
        patch.setattr(layers, "_BYTES_AT_A_TIME", at_a_time * 4 * K * 4)
        found_pk = model.logits(pairs, hidden) - plain_pk
    table_hku = model.bilinear.table_hku.double()
    for p in range(n_pairs):
        of_user = hidden["items"][pairs.items.query_of_pair[p]].double()
        of_item = hidden["users"][pairs.users.query_of_pair[p]].double()
        expected_k = torch.einsum("h,hku,u->k", of_user, table_hku, of_item)
        np.testing.assert_allclose(found_pk[p], expected_k, rtol=1e-4, atol=1e-4)


def test_an_initial_bilinear_interaction_adds_nothing():
    model = with_bilinear(0)
    model.bilinear.table_hku.zero_()
    pairs, hidden = targets_and_hidden(1, 9, 4)
    plain_pk = Network(model.sides).logits(pairs, hidden)
    assert torch.equal(model.logits(pairs, hidden), plain_pk)
    fresh = BilinearInteraction.initial(hidden_users=4, hidden_items=5, labels=K)
    assert fresh.table_hku.shape == model.bilinear.table_hku.shape
    assert not fresh.table_hku.any()


def test_the_bilinear_interaction_is_among_the_tensors_and_comes_back():
    model = with_bilinear(3)
    tensors = model.tensors()
    assert tensors["bilinear"] is model.bilinear.table_hku
    again = Network.of_tensors(tensors, "tanh")
    pairs, hidden = targets_and_hidden(2, 9, 4)
    assert torch.equal(again.logits(pairs, hidden), model.logits(pairs, hidden))
    assert model.parameter_count() == sum(tensor.numel() for tensor in tensors.values())
    assert torch.equal(model.to("cpu").bilinear.table_hku, model.bilinear.table_hku)


def test_a_network_of_one_side_has_no_bilinear_interaction():
    model = Network.initial(
        n_users=2, n_items=2, n_labels=2, hidden={"users": 3}, with_bilinear=True
    )
    assert model.bilinear is None
