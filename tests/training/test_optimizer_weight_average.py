"""The moving average of the parameters against its definition."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from cfuica.model.network import Network
from cfuica.training.optimizer import MovingAverage
from tests.training.test_trainer import equal


def tiny_model(value: float) -> Network:
    hidden = {"users": 2, "items": 3}
    model = Network.initial(n_users=3, n_items=2, n_labels=2, hidden=hidden)
    for tensor in model.tensors().values():
        tensor.fill_(value)
    return model


@examples(deadline=None)
@given(
    span=st.floats(0.01, 1),
    values=st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=40),
    strides=st.lists(st.integers(1, 12), min_size=1, max_size=5),
)
def test_the_average_is_that_of_its_definition(
    span: float, values: list[float], strides: list[int]
) -> None:
    """With strides above 1, of parameters that stay as they are between two updates."""
    following, expected, step = MovingAverage(tiny_model(9.0), span), 9.0, 0
    for place, value in enumerate(values):
        for _ in range(strides[place % len(strides)]):
            step += 1
            newest = min(1, 1 / (span * step))
            expected = (1 - newest) * expected + newest * value
        following.update(tiny_model(value), step)
    for tensor in following.model.tensors().values():
        torch.testing.assert_close(tensor, torch.full_like(tensor, expected), rtol=0, atol=1e-5)


def test_the_parameters_that_are_averaged_stay_as_they_are() -> None:
    model = tiny_model(1.0)
    following = MovingAverage(model, 1.0)
    following.update(model, 1)
    following.update(tiny_model(3.0), 2)
    assert equal(model.tensors(), tiny_model(1.0).tensors())
    assert equal(following.model.tensors(), tiny_model(2.0).tensors())
