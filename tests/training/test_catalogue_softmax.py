"""The softmax over a catalogue: written-out gradients against autograd and finite differences."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model.network import Network
from cfuica.settings import RankingSettings
from cfuica.training.autograd import autograd_catalogue, autograd_loss_and_gradients
from cfuica.training.batches import Block, Dropout
from cfuica.training.catalogue_softmax import catalogue_loss_and_gradients
from cfuica.training.gradients import GradientBuffers, SideGradients, block_loss_and_gradients
from cfuica.training.orderings import UserBlocks
from tests.training.histories import model_of, timeline_of

HIDDEN = {"both": {"users": 5, "items": 7}, "items": {"items": 7}, "users": {"users": 5}}


def dense(gradients: SideGradients) -> dict[str, np.ndarray]:
    """Every gradient of a side for all members."""
    rows = gradients.group_of_row
    found = {
        "encoder": gradients.encoder_nkh.numpy().copy(),
        "encoder bias": gradients.encoder_bias_h.numpy(),
    }
    for name, grad_g in (
        ("decoder", gradients.decoder_gkh.numpy()),
        ("decoder bias", gradients.decoder_bias_gk.numpy()),
    ):
        full = np.zeros((len(rows), *grad_g.shape[1:]), np.float32)
        full[rows >= 0] = grad_g[rows[rows >= 0]]
        found[name] = full
    return found | {name: gradient.numpy() for name, gradient in gradients.more.items()}


def case(
    *, seed: int, sides: str = "both", dropout: float = 0.3, **changes: object
) -> tuple[Network, Block, RankingSettings]:
    timeline = timeline_of(12, 9, 50, seed=seed)
    ranking = RankingSettings(
        sides=sides, hidden_users=5, hidden_items=7, batch_users=6, seed=seed,
        drop_interactions=0.2, drop_users=0.2,
    ).replaced(**changes)  # fmt: skip
    blocks = UserBlocks(timeline, timeline.by_item(), ranking)
    block = Dropout(blocks, dropout, HIDDEN[sides], seed, ranking.residual_units).draw(seed)
    model = model_of(
        timeline,
        HIDDEN[sides],
        seed=seed,
        activation=ranking.activation,
        learns_decay=ranking.learned_decay,
        layer_units=ranking.residual_units,
    )
    return model, block, ranking


@settings(max_examples=50, deadline=None)
@given(
    sides=st.sampled_from(["both", "items", "users"]),
    loss=st.sampled_from(["softmax", "sampled-softmax", "bernoulli"]),
    ordering=st.sampled_from(["chronological", "inverse", "uniform", "global-time"]),
    ties=st.sampled_from(["together", "apart"]),
    learned_decay=st.booleans(),
    activation=st.sampled_from(["tanh", "relu"]),
    residual_units=st.sampled_from([0, 6]),
    batch_items=st.sampled_from([None, 2, 4]),
    seed=st.integers(0, 99),
)
def test_the_written_out_gradients_equal_autograds(
    ordering, learned_decay, residual_units, **changes
):
    learned_decay = learned_decay and ordering != "uniform"
    loss, sides = changes["loss"], changes["sides"]
    residual_units = 0 if loss == "bernoulli" or sides == "users" else residual_units
    if loss != "bernoulli":
        changes["batch_items"] = None
    model, block, _ = case(
        ordering=ordering,
        learned_decay=learned_decay,
        residual_units=residual_units,
        softmax_candidates=4,
        **changes,
    )
    if loss == "bernoulli":
        arguments = {"factor": 0.1, "ordinal_weight": None, "share": False}
        found = block_loss_and_gradients(model, block, buffers=GradientBuffers(), **arguments)
        expected = autograd_loss_and_gradients(model, block, **arguments)
    else:
        found = catalogue_loss_and_gradients(model, block, factor=0.1, buffers=GradientBuffers())
        expected = autograd_catalogue(model, block, factor=0.1)
    assert found[0] == pytest.approx(expected[0], rel=1e-4, abs=1e-6)
    for side in model.sides:
        ours, theirs = dense(found[1][side]), dense(expected[1][side])
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_allclose(
                ours[name], theirs[name], rtol=2e-3, atol=2e-5, err_msg=f"{side} {name}"
            )
        assert found[1][side].squares == pytest.approx(expected[1][side].squares, rel=1e-3)
        assert found[1][side].inner == pytest.approx(expected[1][side].inner, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "items.encoder_nkh",
        "items.log_time_constants_h",
        "items.into_hu",
        "items.back_uh",
        "users.decoder_nkh",
    ],
)
def test_the_gradient_is_that_of_finite_differences(name):
    model, block, _ = case(seed=3, learned_decay=True, dropout=0.0, residual_units=6)
    _, gradients = catalogue_loss_and_gradients(model, block, factor=1.0, buffers=GradientBuffers())
    side, _, key = name.partition(".")
    found = dense(gradients[side])[
        {"encoder_nkh": "encoder", "decoder_nkh": "decoder"}.get(key, key)
    ]
    place = np.unravel_index(np.abs(found).argmax(), found.shape)
    tensor = model.tensors()[name]
    before, step, costs = float(tensor[place]), 1e-2, []
    for sign in (1, -1):
        tensor[place] = before + sign * step
        costs.append(autograd_catalogue(model, block, factor=1.0)[0])
    assert found[place] == pytest.approx((costs[0] - costs[1]) / (2 * step), rel=1e-2)


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        (catalogue_loss_and_gradients, {"learned_decay": True, "residual_units": 6}),
        (
            partial(block_loss_and_gradients, ordinal_weight=None, share=False),
            {"learned_decay": False, "loss": "bernoulli", "batch_items": 4},
        ),
    ],
)
def test_the_number_of_threads_changes_no_bit(monkeypatch, steps, changes):
    model, block, _ = case(seed=5, **changes)
    bits = set()
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        loss, gradients = steps(model, block, factor=1.0, buffers=GradientBuffers())
        parts = [
            array.tobytes()
            for side in ("users", "items")
            for array in dense(gradients[side]).values()
        ]
        bits.add((loss, *parts))
    assert len(bits) == 1


def test_a_sample_estimates_the_sum_over_the_whole_catalogue():
    """The mean over samples of each moment's sum of exponentials is that of all items."""
    timeline = timeline_of(12, 9, 50, seed=0)
    sampled = RankingSettings(loss="sampled-softmax", softmax_candidates=3, batch_users=1)
    blocks = UserBlocks(timeline, timeline.by_item(), sampled)
    exponentials_m = torch.rand(9, generator=torch.Generator().manual_seed(0)).numpy() + 0.1
    sums = []
    for step in range(0, 12 * 400, 12):  # the same number in every epoch: another user each time
        block = blocks.draw(step)
        chosen = block.pairs.items.row_of_pair[0]
        items = block.pairs.items.indices
        others = items != chosen
        weights_m = np.exp(block.correction_m[others])
        drawn = float((weights_m * exponentials_m[items[others]]).sum())
        sums.append(drawn - (exponentials_m.sum() - exponentials_m[chosen]))
    assert np.mean(sums) == pytest.approx(0.0, abs=4 * np.std(sums) / np.sqrt(len(sums)))
