"""Several networks as one wide one."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from cfuica.model.network import Network, Side
from cfuica.settings import RankingSettings
from cfuica.training.ranking_task import RankingTask, _shape
from cfuica.training.rating_task import pair_contexts
from cfuica.training.trainer import merge
from tests.model.reference import Reference, matrix_of, own_rows, random_cells, randomised
from tests.training.histories import timeline_of


@pytest.mark.parametrize("hidden", [{"users": 3, "items": 2}, {"users": 4}, {"items": 1}])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu"])
def test_merged_logits_are_the_mean_of_those_of_the_ensemble(hidden, activation):
    networks = [
        Reference.random(6, 7, 3, hidden, activation=activation, seed=seed).model()
        for seed in range(3)
    ]
    matrix = matrix_of(random_cells(6, 7, 3, 25), 6, 7, 3)
    users_p, items_p = (each.ravel().astype(np.int32) for each in np.indices((6, 7)))
    pairs, contexts = pair_contexts(matrix, users_p, items_p, own_rows(matrix))

    def logits(network):
        return network(pairs, network.encode(contexts)).detach().numpy()

    before = [copy.deepcopy(network.state_dict()) for network in networks]
    expected = np.mean([logits(network) for network in networks], axis=0)
    rows = {"users": 7, "items": 8}
    wide = Network(
        {
            side: Side(rows[side], 3, 3 * units, activation=activation)
            for side, units in hidden.items()
        }
    )
    assert merge(networks, wide) is wide
    np.testing.assert_allclose(logits(wide), expected, rtol=1e-4, atol=1e-5)
    for network, tensors in zip(networks, before, strict=True):
        found = network.state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_merged_logits_with_decay_and_residual_layers_are_the_mean_too():
    timeline = timeline_of(12, 9, 50, seed=0)
    settings = RankingSettings(
        hidden_users=3, hidden_items=4, learned_decay=True, residual_units=5, batch_users=6
    )
    task = RankingTask.of(timeline, settings)
    networks = [randomised(task.new_network(0), seed) for seed in range(2)]
    block = task.blocks(0).draw(0)

    def logits(network):
        return network(block.pairs, network.encode(block.contexts)).detach().numpy()

    expected = np.mean([logits(network) for network in networks], axis=0)
    wide = merge(networks, _shape(timeline, settings, members=2))
    assert block.pairs.size > 10
    np.testing.assert_allclose(logits(wide), expected, rtol=1e-4, atol=1e-5)
