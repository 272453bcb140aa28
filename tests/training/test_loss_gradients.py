"""The loss of a block and its gradients: compiled ops against float64 autograd of the references,
and finite differences of a second reading of the paper, in the space of the stored parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cfuica.model.network import Network
from cfuica.settings import RankingSettings, RatingSettings
from cfuica.training import trainer
from cfuica.training.ranking_task import RankingTask
from cfuica.training.rating_task import RatingTask
from cfuica.training.trainer import _NetworkTraining
from tests.model.reference import matrix_of, random_cells, randomised
from tests.training.cases import (
    KINDS,
    SIDES,
    clear,
    gradients_of,
    in_double,
    make_case,
    rating_loss_of,
    stored_of,
    task_of,
)
from tests.training.histories import timeline_of

POWERS = st.sampled_from([0.0, 0.5, 1.0])


def held_to_double(network: Network, loss_of, near: float = 1e-4) -> None:
    """Loss, gradients, squared norms and inner products of a network are those that it has in
    double precision."""
    double = in_double(network)
    losses = []
    for each in (network, double):
        losses.append(loss_of(each))
        assert (losses[-1].dtype, losses[-1].shape) == (torch.float64, ())
        losses[-1].backward()
    found, expected = (loss.item() for loss in losses)
    assert found == pytest.approx(expected, rel=near, abs=near)
    grads, wanted = gradients_of(network), gradients_of(double)
    stored = stored_of(double)
    assert grads.keys() == wanted.keys() == stored.keys()
    for name, grad in wanted.items():
        # With label sharing an entry is a sum over labels: rounded as its largest addends are.
        atol = near * (0.1 + np.abs(grad).max(initial=0))
        np.testing.assert_allclose(grads[name], grad, rtol=near, atol=atol, err_msg=name)
    for name, table in network.tables.items():
        grad, slot = wanted[f"{name}.values"], table.gradient
        if slot is None:
            assert not grad.any()
            continue
        assert slot.squares == pytest.approx(np.square(grad).sum(), rel=10 * near, abs=1e-6)
        products = grad * stored[f"{name}.values"]
        size = np.abs(products).sum()
        assert slot.inner == pytest.approx(products.sum(), abs=near * (1 + size))


@settings(max_examples=60, deadline=None)
@given(
    n_users=st.integers(2, 7),
    n_items=st.integers(2, 7),
    n_labels=st.sampled_from([1, 2, 3, 5, 10]),
    hidden=st.tuples(st.integers(1, 19), st.integers(1, 19)),
    sides=st.sampled_from(list(SIDES)),
    observed=st.integers(0, 40),
    batch=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    activation=st.sampled_from(["tanh", "sigmoid", "relu"]),
    share=st.booleans(),
    overlap=st.booleans(),
    dropout=st.sampled_from([0.0, 0.3]),
    powers=st.tuples(POWERS, POWERS),
    cold_start=st.booleans(),
    ordinal_weight=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 2**16),
)
def test_rating_gradients_equal_those_of_the_references(ordinal_weight, **sizes):
    case = make_case(**sizes, spread=0.4)
    held_to_double(
        case.truth.model(), lambda network: rating_loss_of(network, case.block, ordinal_weight)
    )


@settings(max_examples=40, deadline=None)
@given(
    activation=st.sampled_from(["tanh", "sigmoid", "relu"]),
    dropout=st.sampled_from([0.0, 0.4]),
    length_normalisation=st.sampled_from([0.0, 0.7]),
    share_labels=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_gradients_with_a_bilinear_interaction_equal_those_of_the_references(seed, **changes):
    rating = RatingSettings(
        batch_users=5, batch_items=4, cold_start_units=4, bilinear_rate=0.1, seed=seed
    ).replaced(**changes)
    task = RatingTask.of(matrix_of(random_cells(12, 9, 3, 80, seed), 12, 9, 3), rating)
    network = randomised(task.new_network(1), seed)
    assert network.bilinear is not None
    block = task.blocks(1).draw(seed)
    held_to_double(network, lambda each: task.loss(each, block)[0], near=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    sides=st.sampled_from(["both", "items", "users"]),
    loss=st.sampled_from(["softmax", "sampled-softmax", "bernoulli"]),
    ordering=st.sampled_from(["chronological", "inverse", "uniform", "global-time", "masked"]),
    ties=st.sampled_from(["together", "apart"]),
    learned_decay=st.booleans(),
    activation=st.sampled_from(["tanh", "relu"]),
    residual_units=st.sampled_from([0, 6]),
    batch_items=st.sampled_from([None, 2, 4]),
    seed=st.integers(0, 99),
)
@example(  # every item is a target of the minibatch, and no other is drawn
    sides="both", loss="sampled-softmax", ordering="chronological", ties="together",
    learned_decay=False, activation="tanh", residual_units=0, batch_items=None, seed=72,
)  # fmt: skip
def test_ranking_gradients_equal_those_of_the_references(
    ordering, learned_decay, residual_units, batch_items, **changes
):
    if ordering == "masked":
        changes["loss"], batch_items = "bernoulli", batch_items or 2
    ranking = RankingSettings(
        hidden_users=5, hidden_items=7, batch_users=6, drop_interactions=0.2, drop_users=0.2,
        dropout=0.3, softmax_candidates=4, ordering=ordering,
        learned_decay=learned_decay and ordering not in ("uniform", "masked"),
        residual_units=0 if changes["sides"] == "users" else residual_units,
        batch_items=batch_items if changes["loss"] == "bernoulli" else None, **changes,
    )  # fmt: skip
    task = RankingTask.of(timeline_of(12, 9, 50, seed=changes["seed"]), ranking)
    network = randomised(task.new_network(0), changes["seed"], 0.3)
    block = task.blocks(0).draw(changes["seed"])
    held_to_double(network, lambda each: task.loss(each, block)[0], near=1e-3)


def finite_difference(of, tensor, place, step):
    """The derivative of `of()` by one entry of a tensor or array."""
    before, values = tensor[place].item(), []
    for sign in (1, -1):
        tensor[place] = before + sign * step
        values.append(float(of()))
    tensor[place] = before
    return (values[0] - values[1]) / (2 * step)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("sides", list(SIDES))
@pytest.mark.parametrize(
    ("activation", "ordinal_weight", "powers", "cold_start"),
    [
        ("tanh", 1.0, (0.0, 0.0), False),
        ("sigmoid", 0.3, (1.0, 0.5), False),
        ("relu", 0.0, (0.0, 0.0), True),
        ("tanh", 0.5, (0.5, 1.0), True),
    ],
)
def test_gradients_equal_finite_differences_of_a_second_reading_of_the_paper(
    sides, share, activation, ordinal_weight, powers, cold_start
):
    """Every entry of stored W, c, V and b of both sides; label sharing by cumulative sums."""
    case = make_case(
        sides=sides, share=share, activation=activation, powers=powers, cold_start=cold_start,
        seed=4,
    )  # fmt: skip
    network = case.truth.model()
    total = rating_loss_of(network, case.block, ordinal_weight)
    total.backward()
    assert case.block.pairs.size >= 4
    assert total.item() == pytest.approx(case.defined_loss(ordinal_weight), rel=1e-5)
    found = gradients_of(network)
    for side, parameters in case.truth.sides.items():
        for letter, stored in parameters.items():
            name = f"{side}.{letter}" if letter == "c" else f"{side}.{letter}.values"
            grads = np.empty_like(stored)
            for place in np.ndindex(stored.shape):
                grads[place] = finite_difference(
                    lambda: case.defined_loss(ordinal_weight), stored, place, 1e-5
                )
            assert np.abs(grads).max() > 1e-3, "the case must be able to show an error"
            np.testing.assert_allclose(
                found[name].reshape(stored.shape), grads, rtol=1e-3, atol=2e-5, err_msg=name
            )


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_finite_differences(kind):
    """The largest entry by every parameter, in double precision."""
    task, number = task_of(kind)
    network = in_double(randomised(task.new_network(number), 1, 0.3))
    block = task.blocks(number).draw(1)
    task.loss(network, block)[0].backward()
    found = gradients_of(network)
    shares = {f"{name}.values" for name, table in network.tables.items() if table.share}
    for name, tensor in network.state_dict().items():
        if name in shares:  # by stored columns, which the test above differentiates by
            continue
        place = np.unravel_index(np.abs(found[name]).argmax(), found[name].shape)
        with torch.no_grad():
            expected = finite_difference(lambda: task.loss(network, block)[0], tensor, place, 1e-6)
        assert found[name][place] == pytest.approx(expected, rel=1e-5, abs=1e-8), name


def test_a_block_without_interactions_has_zero_loss_and_gradients():
    case = make_case(observed=0)
    network = case.truth.model()
    total = rating_loss_of(network, case.block)
    total.backward()
    assert total.item() == 0.0
    assert not any(grad.any() for grad in gradients_of(network).values())
    assert {(t.gradient.squares, t.gradient.inner) for t in network.tables.values()} == {(0, 0)}


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_leave_the_parameters_alone(kind):
    task, number = task_of(kind)
    network = randomised(task.new_network(number), 0)
    before = stored_of(network)
    task.loss(network, task.blocks(number).draw(0))[0].backward()
    assert all(np.array_equal(own, before[name]) for name, own in stored_of(network).items())


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_threads_changes_no_bit_of_losses_and_slots(kind, monkeypatch):
    """With torch's own threads as they are: its dense layers may depend on them."""
    task, number = task_of(kind, batch_users=14)
    network, block = randomised(task.new_network(number), 0), task.blocks(number).draw(0)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setenv("CFUICA_THREADS", str(threads))
        clear(network)
        total, _ = task.loss(network, block)
        total.backward()
        slots = [(t.gradient.squares, t.gradient.inner) for t in network.tables.values()
                 if t.gradient]  # fmt: skip
        found.append([total.item(), slots, *(g.tobytes() for g in gradients_of(network).values())])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_multiple_of_the_count_divides_the_gradients(kind, monkeypatch):
    """As with several ranks, whose losses are divided by the count of all."""
    task, number = task_of(kind)
    block, found = task.blocks(number).draw(0), []
    for factor in (1.0, 4.0):
        monkeypatch.setattr(trainer, "global_count", lambda count: factor * count)  # noqa: B023
        run = _NetworkTraining(task, number, [], 0.0)
        randomised(run.network, 0)
        monkeypatch.setattr(run.optimizer, "step", lambda rate: 0.0)  # the gradients stay
        loss, _ = run.minibatch(block, 0.0)
        grads = gradients_of(run.network)
        found.append((loss, grads))
        total, count = task.loss(run.network, block)
        assert loss == pytest.approx(total.item() / (factor * count), rel=1e-12)
    (loss, grads), (quarter, quarters) = found
    assert loss == pytest.approx(4 * quarter, rel=1e-12)
    assert any(grad.any() for grad in grads.values())
    for name, grad in grads.items():
        np.testing.assert_allclose(4 * quarters[name], grad, rtol=1e-5, atol=1e-8, err_msg=name)
