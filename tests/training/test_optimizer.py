"""Adam on a whole network: the norm of its gradient, the limits, every parameter's step, and its
state; the moving average of the weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from cfuica.model.network import Network
from cfuica.settings import RatingSettings
from cfuica.training.optimizer import Adam, MovingAverage
from tests.model.reference import randomised
from tests.training.cases import (
    KINDS,
    gradients_of,
    in_double,
    make_case,
    rating_loss_of,
    stored_of,
    task_of,
)


def is_penalised(name):
    return name.split(".")[1] in ("W", "V")


def whole_gradient(network, l2):
    """The gradient of the loss plus l2 times the squares of stored W and V, by name."""
    stored = stored_of(network)
    return {
        name: grad + (2 * l2 * stored[name] if is_penalised(name) else 0.0)
        for name, grad in gradients_of(network).items()
    }


def norm_of(gradient):
    return float(np.sqrt(sum(np.square(grad).sum() for grad in gradient.values())))


@pytest.mark.parametrize("l2", [0.0, 1e-4, 0.2])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("sides", ["both", "users", "items"])
@pytest.mark.parametrize("powers", [(0.0, 0.0), (1.0, 0.5)])
@pytest.mark.parametrize("cold_start", [False, True])
def test_the_norm_is_that_of_the_explicit_gradient(sides, share, l2, powers, cold_start):
    """Before the first step and after several, when the steps themselves have counted."""
    case = make_case(sides=sides, share=share, powers=powers, cold_start=cold_start, seed=4)
    network = case.truth.model()
    optimizer = Adam(network, RatingSettings(share_labels=share, l2=l2))
    for _ in range(4):
        rating_loss_of(network, case.block).backward()
        expected = norm_of(whole_gradient(network, l2))
        assert optimizer.gradient_norm() == pytest.approx(expected, rel=1e-4)
        assert optimizer.step(0.05) == pytest.approx(expected, rel=1e-4)
        assert not any(grad.any() for grad in gradients_of(network).values())


@pytest.mark.parametrize("kind", KINDS)
def test_where_gradients_of_two_batches_meet_norm_and_step_are_those_of_their_sum(kind):
    """Two backward passes, one step: as of the sum of both losses in double precision."""
    task, number = task_of(kind, l2=0.05, max_norm=0.5, max_entry=0.05)
    network = randomised(task.new_network(number), 0, 0.3)
    double = in_double(network)
    blocks = [task.blocks(number).draw(step) for step in (0, 1)]
    for block in blocks:
        total, count = task.loss(network, block)
        (total / count).backward()
    sum(total / count for total, count in (task.loss(double, each) for each in blocks)).backward()
    optimizers = [Adam(each, task.settings) for each in (network, double)]
    expected = norm_of(whole_gradient(double, 0.05))
    alone = norm_of(gradients_of(network))
    assert (
        sum(t.gradient.squares for t in network.tables.values() if t.gradient) <= 1.001 * alone**2
    )
    for optimizer in optimizers:
        assert optimizer.gradient_norm() == pytest.approx(expected, rel=1e-4)
        assert expected > task.settings.max_norm, "the case must limit the norm"
        optimizer.step(0.05)
    found, wanted = stored_of(network), stored_of(double)
    before = stored_of(randomised(task.new_network(number), 0, 0.3))
    for name, tensor in wanted.items():
        # Against the length of the step: one that is left out must fail.
        moved = np.linalg.norm(tensor - before[name])
        assert np.linalg.norm(found[name] - tensor) <= 0.01 * moved + 1e-7, name


def test_measure_takes_the_norm_anew_after_parameters_were_set_from_outside():
    case = make_case(seed=4)
    network = case.truth.model()
    optimizer = Adam(network, RatingSettings(l2=0.2))
    best, before = copy.deepcopy(network.state_dict()), optimizer.gradient_norm()
    for _ in range(3):
        rating_loss_of(network, case.block).backward()
        optimizer.step(0.3)
    network.load_state_dict(best)
    assert optimizer.gradient_norm() != pytest.approx(before, rel=1e-3)
    optimizer.measure()
    assert optimizer.gradient_norm() == pytest.approx(before, rel=1e-6)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    ("max_norm", "max_entry"), [(None, None), (5.0, 1.0), (0.5, None), (None, 0.03), (0.5, 0.03)]
)
def test_every_parameter_takes_the_step_of_the_notes(share, max_norm, max_entry):
    """lr * sqrt(1-b2^t)/(1-b1^t) * m / (sqrt(v) + eps): the norm limited first, then entries."""
    case = make_case(share=share, seed=4)
    settings = RatingSettings(
        share_labels=share, l2=0.05, beta1=0.8, beta2=0.95, epsilon=1e-3,
        max_norm=max_norm, max_entry=max_entry,
    )  # fmt: skip
    network = case.truth.model()
    optimizer = Adam(network, settings)
    stored = stored_of(network)
    mean = {key: np.zeros_like(value) for key, value in stored.items()}
    square = {key: np.zeros_like(value) for key, value in stored.items()}
    limited = False
    for step, learning_rate in enumerate([0.02, 0.02, 0.005, 0.005], start=1):
        (2 * rating_loss_of(network, case.block)).backward()
        gradient = whole_gradient(network, settings.l2)
        norm = norm_of(gradient)
        scale = min(1.0, max_norm / norm) if max_norm else 1.0
        limited |= scale < 1
        for key, grad in gradient.items():
            grad = scale * grad
            if max_entry:
                limited |= bool((np.abs(grad) > max_entry).any())
                grad = np.clip(grad, -max_entry, max_entry)
            mean[key] = 0.8 * mean[key] + 0.2 * grad
            square[key] = 0.95 * square[key] + 0.05 * grad**2
            rate = learning_rate * (1 - 0.95**step) ** 0.5 / (1 - 0.8**step)
            stored[key] = stored[key] - rate * mean[key] / (np.sqrt(square[key]) + 1e-3)
        assert optimizer.step(learning_rate) == pytest.approx(norm, rel=1e-3)
        found = stored_of(network)
        for key, expected in stored.items():
            np.testing.assert_allclose(found[key], expected, rtol=1e-3, atol=1e-4, err_msg=key)
    assert limited == (max_norm is not None or max_entry is not None)


def test_the_bilinear_interaction_has_its_own_rate():
    task, number = task_of("cold start", max_norm=None, max_entry=None)
    network = randomised(task.new_network(number), 0)
    optimizer = Adam(network, task.settings)
    total, count = task.loss(network, task.blocks(number).draw(0))
    (total / count).backward()
    grad, before = network.bilinear.A.grad.clone(), network.bilinear.A.detach().clone()
    optimizer.step(0.05)
    # Adam's first step, in the form of the published experiments.
    rate = 0.05 * task.settings.bilinear_rate * (1 - 0.999) ** 0.5 / (1 - 0.9)
    expected = before - rate * 0.1 * grad / ((0.001**0.5) * grad.abs() + task.settings.epsilon)
    torch.testing.assert_close(network.bilinear.A.detach(), expected, rtol=1e-4, atol=1e-6)


def test_rows_outside_the_block_still_have_the_penalty_and_their_moments():
    case = make_case(seed=4)
    network = case.truth.model()
    optimizer = Adam(network, RatingSettings(l2=0.1))
    outside = np.setdiff1d(np.arange(5), case.users)
    assert outside.size
    before = stored_of(network)["users.V.values"][outside]
    rating_loss_of(network, case.block).backward()
    optimizer.step(0.01)
    after = stored_of(network)["users.V.values"][outside]
    large = np.abs(before) > 0.05
    assert (np.abs(after)[large] < np.abs(before)[large]).all()


def test_biases_are_not_penalised():
    network = make_case(seed=4).truth.model()
    before = stored_of(network)
    Adam(network, RatingSettings(l2=0.1)).step(0.01)
    for name, value in stored_of(network).items():
        moved = not np.allclose(value, before[name], rtol=0, atol=1e-7)
        assert moved == is_penalised(name)


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# The moving average.


def constant(value: float) -> Network:
    settings = RatingSettings(hidden_users=2, hidden_items=3)
    network = Network.of(settings, {"users": 4, "items": 3}, 2)
    for tensor in network.state_dict().values():
        tensor.fill_(value)
    return network


@examples(deadline=None)
@given(
    span=st.floats(0.01, 1),
    values=st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=40),
    strides=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    saved_after=st.integers(0, 40),
)
def test_the_average_is_that_of_its_definition(span, values, strides, saved_after):
    """With strides above 1, of parameters that stay as they are between two updates; and also where
    a fresh average goes on from the state of the first."""
    average, expected, step = MovingAverage(constant(9.0), span), 9.0, 0
    for place, value in enumerate(values):
        if place == saved_after:
            state = copy.deepcopy(average.state_dict())
            average = MovingAverage(constant(7.0), span)
            average.load_state_dict(state)
        for _ in range(strides[place % len(strides)]):
            step += 1
            newest = min(1, 1 / (span * step))
            expected = (1 - newest) * expected + newest * value
        average.update(constant(value), step)
    for tensor in average.network.state_dict().values():
        torch.testing.assert_close(tensor, torch.full_like(tensor, expected), rtol=0, atol=1e-5)


def test_the_parameters_that_are_averaged_stay_as_they_are():
    network = constant(1.0)
    average = MovingAverage(network, 1.0)
    average.update(network, 1)
    average.update(constant(3.0), 2)
    assert equal(network.state_dict(), constant(1.0).state_dict())
    assert equal(average.network.state_dict(), constant(2.0).state_dict())
