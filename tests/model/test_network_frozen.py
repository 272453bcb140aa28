"""What is frozen stays as it is, and everything else still trains."""

from __future__ import annotations

import copy

import pytest
import torch

from cfuica.ops import reference
from cfuica.settings import RankingSettings, RatingSettings
from cfuica.training.optimizer import Adam
from cfuica.training.ranking_task import RankingTask
from cfuica.training.rating_task import RatingTask
from tests.model.reference import matrix_of, random_cells, randomised
from tests.training.histories import timeline_of

RATING = RatingSettings(
    hidden_users=5, hidden_items=4, batch_users=8, batch_items=8, cold_start_units=3,
    bilinear_rate=0.5, dropout=0.2, l2=0.01,
)  # fmt: skip
RANKING = RankingSettings(
    hidden_users=5, hidden_items=4, batch_users=8, learned_decay=True, residual_units=3, l2=0.01,
)  # fmt: skip
TASKS = {
    "rating": RatingTask.of(matrix_of(random_cells(20, 15, 3, 150), 20, 15, 3), RATING),
    "ranking": RankingTask.of(timeline_of(20, 15, 150, seed=0), RANKING),
}
# The bias of a user is the same for all items.
UNUSED = {"rating": set(), "ranking": {"users.b.values"}}
CASES = pytest.mark.parametrize(("name", "number"), [("rating", 0), ("rating", 1), ("ranking", 0)])


def moved_by_a_step(task, number, freeze):
    """The names of the parameters that a step changes, and the norm of its gradient."""
    network = randomised(task.new_network(number), 0)
    freeze(network)
    before = copy.deepcopy(network.state_dict())
    optimizer = Adam(network, task.settings)
    total, count = task.loss(network, task.blocks(number).draw(0))
    (total / count).backward()
    norm = optimizer.step(0.05)
    after = network.state_dict()
    return {name for name in before if not torch.equal(before[name], after[name])}, norm, network


@CASES
def test_with_all_ordinary_parameters_frozen_the_tables_still_train(name, number):
    task = TASKS[name]
    found, _, network = moved_by_a_step(task, number, lambda network: network.requires_grad_(False))
    assert found == {f"{table}.values" for table in network.tables} - UNUSED[name]


@CASES
def test_a_frozen_table_alone_stays(name, number):
    task = TASKS[name]
    everything, _, network = moved_by_a_step(task, number, lambda network: None)
    assert everything == set(network.state_dict()) - UNUSED[name]
    for table in network.tables:
        found, _, _ = moved_by_a_step(task, number, lambda own: own.tables[table].freeze())  # noqa: B023
        assert everything - found == {f"{table}.values"} - UNUSED[name]


@CASES
def test_a_frozen_table_adds_nothing_to_the_gradients_norm(name, number):
    """Neither a gradient nor a penalty, in the first step as in later ones."""
    task = TASKS[name]

    def freeze(network):
        for side in network.sides.values():
            side.V.freeze()

    _, norm, network = moved_by_a_step(task, number, freeze)
    # A penalty on tables that cannot move is no part of any gradient.
    optimizer = Adam(network, task.settings)
    stored = [
        reference.differences(side.W.values) if side.W.share else side.W.values
        for side in network.sides.values()
    ]
    free = sum(float(each.double().square().sum()) for each in stored)
    assert optimizer.gradient_norm() == pytest.approx(2 * task.settings.l2 * free**0.5, rel=1e-4)
    optimizer.step(1e-9)
    assert optimizer.gradient_norm() == pytest.approx(2 * task.settings.l2 * free**0.5, rel=1e-3)
    assert norm > 0
