"""The cost of a block and its gradients: against autograd, and against finite differences of a
second reading of the paper, in the space of the stored parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.training.autograd import autograd_loss_and_gradients
from cfuica.training.batches import Block, ColdStartMasking, Dropout, cut_block
from cfuica.training.gradients import GradientBuffers, block_loss_and_gradients
from tests.model.reference import Reference, matrix_of, mixed, random_cells

SIDES = {"both": ("users", "items"), "users": ("users",), "items": ("items",)}
POWERS = st.sampled_from([0.0, 0.5, 1.0])
LETTERS = {
    "W": "encoder_nkh",
    "c": "encoder_bias_h",
    "V": "decoder_nkh",
    "b": "decoder_bias_nk",
}


@dataclass
class Fixed:
    """An estimator with one block."""

    block: Block

    def draw(self, step):
        return self.block


@dataclass
class Case:
    """A block of a random matrix, and the parameters it is computed with."""

    cells: dict
    truth: Reference
    block: Block
    users: list[int]
    items: list[int]
    open_users: list[int]
    open_items: list[int]
    cold: dict

    def naive_cost(self, factor, ordinal_weight):
        """By the second reading of the paper."""
        return factor * self.truth.block_cost(
            self.cells, self.users, self.items, self.open_users, self.open_items,
            mixed(ordinal_weight), self.cold,
        )  # fmt: skip


def make_case(
    *, n_users=5, n_items=6, n_labels=3, sides="both", hidden=(3, 2), observed=22,
    batch=(3, 3), activation="tanh", share=True, overlap=False, spread=0.7, dropout=0.0, seed=0,
    powers=(0.0, 0.0), cold_start=False,
) -> Case:  # fmt: skip
    """`overlap`: also the block's own users and items are context, which the gradient allows;
    `powers` are those of the two sides' gains; `cold_start` are in every pair, or in none."""
    rng = np.random.default_rng(seed)
    cells = random_cells(n_users, n_items, n_labels, observed, seed)
    axes = []
    for size, chosen in zip((n_users, n_items), batch, strict=True):
        order = rng.permutation(size)
        axes.append((order[:chosen], order if overlap else order[chosen:]))
    masks = [
        np.isin(np.arange(size), rest)
        for size, (_, rest) in zip((n_users, n_items), axes, strict=True)
    ]
    block = cut_block(
        matrix_of(cells, n_users, n_items, n_labels),
        axes[0][0].astype(np.int32),
        axes[1][0].astype(np.int32),
        sides=SIDES[sides],
        open_users=masks[0],
        open_items=masks[1],
        keep_users=1.0,
        keep_items=1.0,
        key=0,
        scale=1.0,
    )
    units = dict(zip(("users", "items"), hidden, strict=True))
    truth = Reference.random(
        n_users, n_items, n_labels, {side: units[side] for side in SIDES[sides]},
        activation=activation, share=share, spread=spread, seed=seed,
        length_norms={"users": (powers[0], 1.5), "items": (powers[1], 4.0)},
    )  # fmt: skip
    cold = {}
    if cold_start:
        own = pair_ids(block)
        block = ColdStartMasking(Fixed(block), n_users, n_items, seed).draw(0)
        cold = dict(zip(own, pair_ids(block), strict=True))
    if dropout:
        block = Dropout(Fixed(block), dropout, units, seed).draw(0)
    lists = (axes[0][0], axes[1][0], axes[0][1], axes[1][1])
    return Case(cells, truth, block, *(ids.tolist() for ids in lists), cold)


def pair_ids(block):
    """The rows of each pair's user and item."""
    rows = (block.pairs.users.row_of_pair, block.pairs.items.row_of_pair)
    return list(zip(*(each.tolist() for each in rows), strict=True))


def by_kernels(case, *, factor=1.0, ordinal_weight=1.0, buffers=None):
    return block_loss_and_gradients(
        case.truth.model(),
        case.block,
        factor=factor,
        ordinal_weight=ordinal_weight,
        share=case.truth.share,
        buffers=buffers or GradientBuffers(),
    )


def by_autograd(case, *, factor=1.0, ordinal_weight=1.0):
    return autograd_loss_and_gradients(
        case.truth.model(),
        case.block,
        factor=factor,
        ordinal_weight=ordinal_weight,
        share=case.truth.share,
    )


def dense(gradients):
    """{letter: gradient of the whole stored tensor}; members outside the block have zeros."""
    indices = gradients.group_of_row
    inside = indices >= 0
    v = np.zeros((len(indices), *gradients.decoder_gkh.shape[1:]))
    b = np.zeros((len(indices), gradients.decoder_bias_gk.shape[1]))
    v[inside] = gradients.decoder_gkh.numpy()[indices[inside]]
    b[inside] = gradients.decoder_bias_gk.numpy()[indices[inside]]
    return {
        "W": gradients.encoder_nkh.numpy(),
        "c": gradients.encoder_bias_h.numpy(),
        "V": v,
        "b": b,
    }


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
    factor=st.sampled_from([1.0, 0.01, 7.0]),
    ordinal_weight=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 2**16),
)
def test_the_written_out_gradients_equal_autograds(factor, ordinal_weight, **sizes):
    case = make_case(**sizes, spread=0.4)
    loss, gradients = by_kernels(case, factor=factor, ordinal_weight=ordinal_weight)
    expected_loss, expected = by_autograd(case, factor=factor, ordinal_weight=ordinal_weight)
    assert loss == pytest.approx(expected_loss, rel=1e-4, abs=1e-5 * factor)
    assert gradients.keys() == expected.keys() == set(SIDES[sizes["sides"]])
    for side in gradients:
        ours, theirs = dense(gradients[side]), dense(expected[side])
        for letter in "WcVb":
            near = 1e-5 * factor
            if letter == "b" and sizes["share"]:
                # An entry is a sum over labels: rounded as its largest addends are, while the sum
                # of all of them is zero.
                near = max(near, 1e-5 * np.abs(theirs["b"]).max(initial=0))
            np.testing.assert_allclose(
                ours[letter], theirs[letter], rtol=1e-4, atol=near, err_msg=f"{side} {letter}"
            )
        squares = sum(np.square(grad).sum() for grad in theirs.values())
        assert gradients[side].squares == pytest.approx(squares, rel=1e-3, abs=1e-6 * factor**2)
        assert expected[side].squares == pytest.approx(squares, rel=1e-5)
        products = [
            theirs[letter] * case.truth.sides[side][letter] for letter in "WV"
        ]  # of the stored ones: with sharing the same number as of those in use
        inner = sum(product.sum() for product in products)
        size = sum(np.abs(product).sum() for product in products)
        for found in (gradients[side].inner, expected[side].inner):
            assert found == pytest.approx(inner, abs=1e-4 * (factor + size))


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
        sides=sides,
        share=share,
        activation=activation,
        powers=powers,
        cold_start=cold_start,
        seed=4,
    )
    truth, factor = case.truth, 0.5
    total, gradients = by_kernels(case, factor=factor, ordinal_weight=ordinal_weight)
    assert case.block.pairs.size >= 4
    assert total == pytest.approx(case.naive_cost(factor, ordinal_weight), rel=1e-5)
    small = 1e-5
    for side in truth.sides:
        found = dense(gradients[side])
        for letter, stored in truth.sides[side].items():
            grads = np.empty_like(stored)
            for index in np.ndindex(stored.shape):
                apply_dropout = stored[index]
                stored[index] = apply_dropout + small
                above = case.naive_cost(factor, ordinal_weight)
                stored[index] = apply_dropout - small
                grads[index] = (above - case.naive_cost(factor, ordinal_weight)) / (2 * small)
                stored[index] = apply_dropout
            assert np.abs(grads).max() > 1e-3, "the case must be able to show an error"
            np.testing.assert_allclose(
                found[letter], grads, rtol=1e-3, atol=1e-5, err_msg=f"{side} {letter}"
            )


def test_a_block_without_interactions_has_zero_loss_and_gradients():
    case = make_case(observed=0)
    loss, gradients = by_kernels(case)
    assert loss == 0.0
    for side in gradients.values():
        assert not any(grad.any() for grad in dense(side).values())
        assert (side.squares, side.inner) == (0.0, 0.0)


def test_reused_buffers_keep_nothing_of_the_block_before():
    buffers = GradientBuffers()
    shapes = {"n_users": 5, "n_items": 6, "n_labels": 3}
    by_kernels(make_case(**shapes, observed=30, seed=1), buffers=buffers)
    case = make_case(**shapes, observed=6, seed=2)
    _, reused = by_kernels(case, buffers=buffers)
    _, fresh = by_kernels(case)
    for side in fresh:
        for letter, grad in dense(fresh[side]).items():
            assert np.array_equal(dense(reused[side])[letter], grad)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    case = make_case(
        n_users=60, n_items=50, n_labels=5, hidden=(17, 8), observed=1200, batch=(30, 30)
    )

    def run(threads):
        monkeypatch.setenv("CFUICA_THREADS", str(threads))
        loss, gradients = by_kernels(case)
        numbers = [loss]
        for side in gradients.values():
            numbers += [side.squares, side.inner, *dense(side).values()]
        return numbers

    alone = run(1)
    for threads in (2, 3):
        assert all(map(np.array_equal, alone, run(threads)))


def test_gradients_leave_the_model_alone():
    case = make_case()
    model = case.truth.model()
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    for function in (block_loss_and_gradients, autograd_loss_and_gradients):
        buffers = {"buffers": GradientBuffers()} if function is block_loss_and_gradients else {}
        function(model, case.block, factor=1.0, ordinal_weight=1.0, share=True, **buffers)
        for name, tensor in model.tensors().items():
            assert torch.equal(tensor, before[name])
            assert not tensor.requires_grad
