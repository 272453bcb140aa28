"""Several models as one wide one."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.model.prediction import PairContexts, Ranker
from cfuica.training.ensemble import merge
from cfuica.training.orderings import whole_histories
from tests.model.reference import Reference, matrix_of, random_cells
from tests.training.histories import model_of, timeline_of


@pytest.mark.parametrize("hidden", [{"users": 3, "items": 2}, {"users": 4}, {"items": 1}])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu"])
def test_merged_logits_are_the_mean_of_those_of_the_ensemble(hidden, activation):
    models = [
        Reference.random(6, 7, 3, hidden, activation=activation, seed=seed).model()
        for seed in range(3)
    ]
    matrix = matrix_of(random_cells(6, 7, 3, 25), 6, 7, 3)
    users_p, items_p = (axis.ravel().astype(np.int32) for axis in np.indices((6, 7)))
    pair_contexts = PairContexts.of(matrix, users_p, items_p)

    def logits(model):
        return model.logits(pair_contexts.pairs, model.hidden(pair_contexts.bags)).numpy()

    before = [
        {name: tensor.clone() for name, tensor in model.tensors().items()} for model in models
    ]
    merged = merge(models)
    expected = np.mean([logits(model) for model in models], axis=0)
    np.testing.assert_allclose(logits(merged), expected, rtol=1e-4, atol=1e-5)
    for side, units in hidden.items():
        assert merged.sides[side].encoder_nkh.shape[2] == 3 * units
    for model, tensors in zip(models, before, strict=True):
        assert all(tensor.equal(tensors[name]) for name, tensor in model.tensors().items())


def test_one_model_merges_into_itself():
    model = Reference.random(3, 3, 2, {"users": 2}).model()
    assert merge([model]) is model


def test_merged_scores_with_extra_layers_are_the_mean_of_the_parts():
    timeline = timeline_of(12, 9, 50, seed=0)
    users = np.arange(12, dtype=np.int32)
    histories = whole_histories(timeline, users)
    models = [
        model_of(timeline, {"users": 3, "items": 4}, seed=seed, learns_decay=True, layer_units=5)
        for seed in range(2)
    ]

    def scores(model):
        return Ranker.of(model, histories, timeline.by_item(), users).scores(users)

    expected = np.mean([scores(model) for model in models], axis=0)
    np.testing.assert_allclose(scores(merge(models)), expected, rtol=1e-4, atol=1e-5)
