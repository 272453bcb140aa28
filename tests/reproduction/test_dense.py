"""The dense forms compute what the trainer computes; only then is it fair to race them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cfuica.data.matrix import InteractionMatrix
from cfuica.model.network import Network
from cfuica.ops import reference
from cfuica.reproduction.dense import SHARED, DenseAuthors, DenseBest
from cfuica.settings import RatingSettings
from cfuica.training.batches import Block, make_estimator
from cfuica.training.gradients import GradientBuffers, Gradients, block_loss_and_gradients
from cfuica.training.optimizer import Adam
from cfuica.training.rating_task import new_model


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """These matrices are tiny: waking a second thread costs more than it helps."""
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
    """One model and the blocks to step on; every form starts from the same parameters."""

    def __init__(self, changes: dict[str, Any]) -> None:
        matrix = _matrix()
        self.settings = _settings(changes)
        self.model = new_model(matrix, self.settings)
        self._shake()
        estimator = make_estimator(matrix, self.settings)
        drawn = [estimator.draw(step) for step in range(20)]
        # Blocks of different sizes that have pairs and contexts.
        self.blocks = [block for block in drawn if block.pairs.size > 20][:3]
        assert len(self.blocks) == 3

    def _shake(self) -> None:
        """Biases start at zero, where several mistakes cannot be seen."""
        generator = torch.Generator().manual_seed(1)
        for tensor in self.model.tensors().values():
            tensor += 0.2 * torch.randn(tensor.shape, generator=generator)

    def loss_and_gradients(self, block: Block, buffers: GradientBuffers) -> tuple[float, Gradients]:
        return block_loss_and_gradients(
            self.model,
            block,
            factor=factor(block),
            ordinal_weight=self.settings.ordinal_weight,
            share=self.settings.share_labels,
            buffers=buffers,
        )


def factor(block: Block) -> float:
    return 1.0 / block.pairs.size


def _named(form: DenseAuthors | DenseBest) -> dict[str, Tensor]:
    return {
        f"{name}.{key}": leaf for name, leaves in form.sides.items() for key, leaf in leaves.items()
    }


def _in_use(form: DenseAuthors, settings: RatingSettings) -> dict[str, Tensor]:
    """The form's parameters as `Network.tensors` gives them."""
    return {
        name: reference.accumulate(leaf.detach())
        if settings.share_labels and name.partition(".")[2] in SHARED
        else leaf.detach()
        for name, leaf in _named(form).items()
    }


def _spread(gradients: Gradients, model: Network) -> dict[str, Tensor]:
    """Our gradients by name, those of V and b spread over all members."""
    found = {}
    for name, side in gradients.items():
        like = model.sides[name]
        rows = torch.from_numpy(np.flatnonzero(side.group_of_row >= 0))
        groups = torch.from_numpy(side.group_of_row[side.group_of_row >= 0]).long()
        decoder = torch.zeros_like(like.decoder_nkh)
        decoder[rows] = side.decoder_gkh[groups]
        bias = torch.zeros_like(like.decoder_bias_nk)
        bias[rows] = side.decoder_bias_gk[groups]
        found[f"{name}.encoder_nkh"] = side.encoder_nkh
        found[f"{name}.encoder_bias_h"] = side.encoder_bias_h
        found[f"{name}.decoder_nkh"] = decoder
        found[f"{name}.decoder_bias_nk"] = bias
    return found


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_authors_form_takes_the_same_steps_as_the_trainer(changes: dict[str, Any]) -> None:
    case = _Case(changes)
    authors = DenseAuthors(case.model, case.settings)
    optimiser, buffers = Adam(case.model, case.settings), GradientBuffers()
    before = {name: tensor.clone() for name, tensor in case.model.tensors().items()}
    for block in case.blocks:
        loss, gradients = case.loss_and_gradients(block, buffers)
        optimiser.step(gradients, case.settings.learning_rate)
        assert authors.step(block, factor(block)) == pytest.approx(loss, rel=1e-4)
    dense = _in_use(authors, case.settings)
    for name, tensor in case.model.tensors().items():
        # Against the length of the step, not of the parameter: a step left out must fail.
        moved = (tensor - before[name]).norm()
        assert moved > 0
        assert (dense[name] - tensor).norm() < 0.01 * moved, name


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_best_form_has_the_same_loss_and_gradients(changes: dict[str, Any]) -> None:
    case = _Case(changes)
    best = DenseBest(case.model, case.settings)
    for block in case.blocks:  # the second and third reuse the memory of the first
        loss, gradients = case.loss_and_gradients(block, GradientBuffers())
        dense = best.loss(block, factor(block))
        assert float(dense.detach()) == pytest.approx(loss, rel=1e-4)
        ours, leaves = _spread(gradients, case.model), _named(best)
        grads = torch.autograd.grad(dense, list(leaves.values()))
        for name, grad in zip(leaves, grads, strict=True):
            torch.testing.assert_close(ours[name], grad, rtol=1e-3, atol=1e-6, msg=name)


def test_the_best_form_moves_as_its_adam_says() -> None:
    """Fused Adam scales epsilon by the bias correction, so it is held to torch's plain Adam."""
    case = _Case({"max_norm": 0.05, "l2": 1e-2})
    settings, block = case.settings, case.blocks[0]
    best, reference = DenseBest(case.model, settings), DenseBest(case.model, settings)
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
    for form in (DenseAuthors(case.model, case.settings), DenseBest(case.model, case.settings)):
        costs = [form.step(block, factor(block)) for _ in range(10)]
        assert costs[-1] < costs[0]


def test_the_forms_do_not_touch_the_model_they_start_from() -> None:
    case = _Case({"share_labels": False})
    before = {name: tensor.clone() for name, tensor in case.model.tensors().items()}
    DenseAuthors(case.model, case.settings).step(case.blocks[0], 1.0)
    DenseBest(case.model, case.settings).step(case.blocks[0], 1.0)
    for name, tensor in case.model.tensors().items():
        assert torch.equal(tensor, before[name])
