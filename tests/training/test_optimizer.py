"""Adam on a whole model: the norm that comes for free, the limits, and every parameter's step."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.settings import RatingSettings
from cfuica.training.gradients import GradientBuffers, block_loss_and_gradients
from cfuica.training.optimizer import Adam
from tests.training.test_gradients import LETTERS, dense, make_case

PENALISED = "WV"


def stored_of(model, share):
    """{(side, letter): stored parameter} in float64, from the columns in use."""
    stored = {}
    for name, side in model.sides.items():
        for letter, key in LETTERS.items():
            used = getattr(side, key).double().numpy()
            if share and letter != "c":
                used = np.diff(used, axis=1, prepend=0)
            stored[name, letter] = used.copy()
    return stored


def whole_gradient(gradients, stored, l2):
    """{(side, letter): gradient of the cost plus l2 times the squares of stored W and V}."""
    return {
        (side, letter): grad + (2 * l2 * stored[side, letter] if letter in PENALISED else 0.0)
        for side in gradients
        for letter, grad in dense(gradients[side]).items()
    }


def norm_of(gradient):
    return float(np.sqrt(sum(np.square(grad).sum() for grad in gradient.values())))


def gradients_of(model, case, factor=1.0):
    _, gradients = block_loss_and_gradients(
        model,
        case.block,
        factor=factor,
        ordinal_weight=1.0,
        share=case.truth.share,
        buffers=GradientBuffers(),
    )
    return gradients


@pytest.mark.parametrize("l2", [0.0, 1e-4, 0.2])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("sides", ["both", "users", "items"])
@pytest.mark.parametrize("powers", [(0.0, 0.0), (1.0, 0.5)])
@pytest.mark.parametrize("cold_start", [False, True])
def test_the_free_norm_is_the_norm_of_the_explicit_gradient(sides, share, l2, powers, cold_start):
    """Before the first step and after several, when the step itself has kept the books."""
    case = make_case(sides=sides, share=share, powers=powers, cold_start=cold_start, seed=4)
    model = case.truth.model()
    optimiser = Adam(model, RatingSettings(share_labels=share, l2=l2))
    for _ in range(4):
        gradients = gradients_of(model, case)
        expected = norm_of(whole_gradient(gradients, stored_of(model, share), l2))
        assert optimiser.gradient_norm(gradients) == pytest.approx(expected, rel=1e-4)
        assert optimiser.step(gradients, 0.05) == pytest.approx(expected, rel=1e-4)


def test_measure_takes_the_norm_anew_after_parameters_were_set_from_outside():
    case = make_case(seed=4)
    model = case.truth.model()
    optimiser = Adam(model, RatingSettings(l2=0.2))
    best = {name: tensor.clone() for name, tensor in model.tensors().items()}
    before = optimiser.gradient_norm(gradients_of(model, case))
    for _ in range(3):
        optimiser.step(gradients_of(model, case), 0.3)
    for name, tensor in model.tensors().items():
        tensor.copy_(best[name])
    assert optimiser.gradient_norm(gradients_of(model, case)) != pytest.approx(before, rel=1e-3)
    optimiser.measure()
    assert optimiser.gradient_norm(gradients_of(model, case)) == pytest.approx(before, rel=1e-6)


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
    model = case.truth.model()
    optimiser = Adam(model, settings)
    stored = stored_of(model, share)
    mean = {key: np.zeros_like(value) for key, value in stored.items()}
    square = {key: np.zeros_like(value) for key, value in stored.items()}
    limited = False
    for step, learning_rate in enumerate([0.02, 0.02, 0.005, 0.005], start=1):
        gradients = gradients_of(model, case, factor=2.0)
        gradient = whole_gradient(gradients, stored, settings.l2)
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
        assert optimiser.step(gradients, learning_rate) == pytest.approx(norm, rel=1e-3)
        found = stored_of(model, share)
        for key, expected in stored.items():
            np.testing.assert_allclose(found[key], expected, rtol=1e-3, atol=1e-4, err_msg=str(key))
    assert limited == (max_norm is not None or max_entry is not None)


def test_rows_outside_the_block_still_have_the_penalty_and_their_moments():
    case = make_case(seed=4)
    model = case.truth.model()
    optimiser = Adam(model, RatingSettings(l2=0.1))
    outside = np.setdiff1d(np.arange(5), case.users)
    assert outside.size
    before = stored_of(model, True)["users", "V"][outside]
    optimiser.step(gradients_of(model, case), 0.01)
    after = stored_of(model, True)["users", "V"][outside]
    large = np.abs(before) > 0.05
    assert (np.abs(after)[large] < np.abs(before)[large]).all()


def test_biases_are_not_penalised():
    case = make_case(observed=0, seed=4)
    model = case.truth.model()
    optimiser = Adam(model, RatingSettings(l2=0.1))
    before = stored_of(model, True)
    optimiser.step(gradients_of(model, case), 0.01)
    after = stored_of(model, True)
    for (side, letter), value in after.items():
        moved = not np.allclose(value, before[side, letter], rtol=0, atol=1e-7)
        assert moved == (letter in PENALISED)


def test_moments_are_listed_by_the_parameters_names_and_are_the_live_ones():
    case = make_case(seed=4)
    model = case.truth.model()
    optimiser = Adam(model, RatingSettings())
    positions = optimiser.tensors()
    assert set(positions) == {
        f"{name}.{kind}" for name in model.tensors() for kind in ("mean", "square")
    }
    assert not any(tensor.any() for tensor in positions.values())
    optimiser.step(gradients_of(model, case), 0.01)
    assert optimiser.steps == 1
    for name, tensor in model.tensors().items():
        assert positions[f"{name}.mean"].numel() == tensor.numel()
        assert positions[f"{name}.mean"].any()
        assert positions[f"{name}.square"].any()
