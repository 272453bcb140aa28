"""The dense forms compute what the trainer computes; only then is it fair to race them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cfuica.data.matrix import InteractionMatrix
from cfuica.reproduction.dense import DenseAuthors, DenseBest
from cfuica.settings import RatingSettings
from cfuica.training.batches import Block
from cfuica.training.optimizer import Adam
from cfuica.training.rating_task import RatingTask
from tests.model.reference import randomised
from tests.training.cases import clear, gradients_of, rating_loss_of, stored_of


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """These matrices are tiny: waking a second thread losses more than it helps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"share_labels": False},
    {"sides": "users"},
    {"sides": "items", "activation": "sigmoid"},
    {"ordinal_weight": 0.3, "activation": "relu"},
    {"estimator": "strict", "max_norm": None, "max_entry": None},
    {"max_norm": 0.01, "max_entry": 1e-4},
    {"l2": 0.0},
    {"length_normalisation": 0.7},
    {"length_normalisation": 1.0, "share_labels": False},
]


def _matrix() -> InteractionMatrix:
    rng = np.random.default_rng(5)
    users, items = np.nonzero(rng.random((40, 30)) < 0.3)
    return InteractionMatrix.from_triplets(
        users, items, rng.integers(0, 5, users.size), n_users=40, n_items=30, n_labels=5
    )


def _settings(changes: dict[str, Any]) -> RatingSettings:
    small = {"hidden_users": 7, "hidden_items": 9, "batch_users": 16, "batch_items": 12}
    return RatingSettings(**{**small, **changes})


class _Case:
    """One network and the blocks to step on; every form starts from the same parameters."""

    def __init__(self, changes: dict[str, Any]) -> None:
        matrix = _matrix()
        self.settings = _settings(changes)
        task = RatingTask.of(matrix, self.settings)
        # Biases start at zero, where several mistakes cannot be seen.
        self.network = randomised(task.new_network(0), 1, 0.2)
        drawn = [task.blocks(0).draw(step) for step in range(20)]
        # Blocks of different sizes that have pairs and contexts.
        self.blocks = [block for block in drawn if block.pairs.size > 20][:3]
        assert len(self.blocks) == 3

    def backward(self, block: Block) -> float:
        """The loss of a block, whose gradients are then in the network."""
        loss = factor(block) * rating_loss_of(self.network, block, self.settings.ordinal_weight)
        loss.backward()
        return loss.item()


def factor(block: Block) -> float:
    return 1.0 / block.pairs.size


def _named(form: DenseAuthors | DenseBest) -> dict[str, Tensor]:
    """The form's leaves by the names of the network's state dict."""
    return {
        f"{name}.{key}{'' if key == 'c' else '.values'}": leaf
        for name, leaves in form.sides.items()
        for key, leaf in leaves.items()
    }


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_authors_form_takes_the_same_steps_as_the_trainer(changes: dict[str, Any]) -> None:
    case = _Case(changes)
    authors = DenseAuthors(case.network, case.settings)
    optimizer = Adam(case.network, case.settings)
    before = stored_of(case.network)
    for block in case.blocks:
        loss = case.backward(block)
        optimizer.step(case.settings.learning_rate)
        assert authors.step(block, factor(block)) == pytest.approx(loss, rel=1e-4)
    after, dense = stored_of(case.network), _named(authors)
    for name, own in after.items():
        # Against the length of the step, not of the parameter: a step left out must fail.
        moved = np.linalg.norm(own - before[name])
        assert moved > 0
        found = dense[name].detach().numpy().reshape(own.shape)
        assert np.linalg.norm(found - own) < 0.01 * moved, name


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_best_form_has_the_same_loss_and_gradients(changes: dict[str, Any]) -> None:
    case = _Case(changes)
    best = DenseBest(case.network, case.settings)
    for block in case.blocks:  # the second and third reuse the memory of the first
        clear(case.network)
        loss = case.backward(block)
        dense = best.loss(block, factor(block))
        assert float(dense.detach()) == pytest.approx(loss, rel=1e-4)
        ours, leaves = gradients_of(case.network), _named(best)
        assert ours.keys() == leaves.keys()
        grads = torch.autograd.grad(dense, list(leaves.values()))
        for name, grad in zip(leaves, grads, strict=True):
            own = ours[name].reshape(grad.shape)
            np.testing.assert_allclose(own, grad, rtol=1e-3, atol=1e-6, err_msg=name)


def test_the_best_form_moves_as_its_adam_says() -> None:
    """Fused Adam scales epsilon by the bias correction, so it is held to torch's plain Adam."""
    case = _Case({"max_norm": 0.05, "l2": 1e-2})
    settings, block = case.settings, case.blocks[0]
    best, reference = DenseBest(case.network, settings), DenseBest(case.network, settings)
    leaves = list(_named(reference).values())
    plain = [
        torch.optim.Adam(
            [leaf],
            lr=settings.learning_rate,
            eps=settings.epsilon,
            weight_decay=2 * settings.l2 if leaf.ndim == 3 else 0.0,
        )
        for leaf in leaves
    ]
    for _ in range(2):
        reference.loss(block, factor(block)).backward()
        norm = sum(float(leaf.grad.square().sum()) for leaf in leaves if leaf.grad is not None)
        for leaf, optimiser in zip(leaves, plain, strict=True):
            assert leaf.grad is not None
            leaf.grad *= 0.05 / norm**0.5
            optimiser.step()
            optimiser.zero_grad()
        best.step(block, factor(block))
    for name, leaf in _named(best).items():
        torch.testing.assert_close(leaf, _named(reference)[name], rtol=1e-4, atol=1e-5, msg=name)


def test_both_forms_learn() -> None:
    case = _Case({"learning_rate": 1e-2})
    block = case.blocks[0]
    for form in (DenseAuthors(case.network, case.settings), DenseBest(case.network, case.settings)):
        losses = [form.step(block, factor(block)) for _ in range(10)]
        assert losses[-1] < losses[0]


def test_the_forms_do_not_touch_the_network_they_start_from() -> None:
    case = _Case({"share_labels": False})
    before = stored_of(case.network)
    DenseAuthors(case.network, case.settings).step(case.blocks[0], 1.0)
    DenseBest(case.network, case.settings).step(case.blocks[0], 1.0)
    assert all(np.array_equal(own, before[name]) for name, own in stored_of(case.network).items())
