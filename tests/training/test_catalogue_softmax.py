"""The softmax over a catalogue: written-out gradients against autograd and finite differences."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.model.network import CoAutoregressive
from cfuica.settings import RankingSettings
from cfuica.training.autograd import autograd_catalogue, autograd_cost_and_gradients
from cfuica.training.batches import Block, Dropout
from cfuica.training.catalogue_softmax import catalogue_cost_and_gradients
from cfuica.training.gradients import GradientBuffers, SideGradients, block_cost_and_gradients
from cfuica.training.orderings import UserBlocks
from tests.training.histories import model_of, timeline_of

HIDDEN = {"both": {"users": 5, "items": 7}, "items": {"items": 7}, "users": {"users": 5}}


def dense(gradients: SideGradients) -> dict[str, np.ndarray]:
    """Every gradient of a side for all members."""
    rows = gradients.group_of_member
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
) -> tuple[CoAutoregressive, Block, RankingSettings]:
    timeline = timeline_of(12, 9, 50, seed=seed)
    ranking = RankingSettings(
        sides=sides, hidden_users=5, hidden_items=7, batch_users=6, seed=seed,
        drop_behaviours=0.2, drop_users=0.2,
    ).replaced(**changes)  # fmt: skip
    blocks = UserBlocks(timeline, timeline.by_item(), ranking)
    block = Dropout(blocks, dropout, HIDDEN[sides], seed, ranking.layer).draw(seed)
    model = model_of(
        timeline,
        HIDDEN[sides],
        seed=seed,
        activation=ranking.activation,
        remembers=ranking.memory,
        layer_units=ranking.layer,
    )
    return model, block, ranking


@settings(max_examples=50, deadline=None)
@given(
    sides=st.sampled_from(["both", "items", "users"]),
    cost=st.sampled_from(["softmax", "sampled-softmax", "bernoulli"]),
    ordering=st.sampled_from(["chronological", "inverse", "uniform", "global-time"]),
    ties=st.sampled_from(["together", "apart"]),
    memory=st.booleans(),
    activation=st.sampled_from(["tanh", "relu"]),
    layer=st.sampled_from([0, 6]),
    batch_items=st.sampled_from([None, 2, 4]),
    seed=st.integers(0, 99),
)
def test_the_written_out_gradients_equal_autograds(ordering, memory, layer, **changes):
    memory = memory and ordering != "uniform"
    cost, sides = changes["cost"], changes["sides"]
    layer = 0 if cost == "bernoulli" or sides == "users" else layer
    if cost != "bernoulli":
        changes["batch_items"] = None
    model, block, _ = case(ordering=ordering, memory=memory, layer=layer, choices=4, **changes)
    if cost == "bernoulli":
        arguments = {"factor": 0.1, "ordinal_weight": None, "share": False}
        found = block_cost_and_gradients(model, block, buffers=GradientBuffers(), **arguments)
        expected = autograd_cost_and_gradients(model, block, **arguments)
    else:
        found = catalogue_cost_and_gradients(model, block, factor=0.1, buffers=GradientBuffers())
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
        "items.log_times_h",
        "items.into_hu",
        "items.back_uh",
        "users.decoder_nkh",
    ],
)
def test_the_gradient_is_that_of_finite_differences(name):
    model, block, _ = case(seed=3, memory=True, dropout=0.0, layer=6)
    _, gradients = catalogue_cost_and_gradients(model, block, factor=1.0, buffers=GradientBuffers())
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
        (catalogue_cost_and_gradients, {"memory": True, "layer": 6}),
        (
            partial(block_cost_and_gradients, ordinal_weight=None, share=False),
            {"memory": False, "cost": "bernoulli", "batch_items": 4},
        ),
    ],
)
def test_the_number_of_threads_changes_no_bit(monkeypatch, steps, changes):
    model, block, _ = case(seed=5, **changes)
    bits = set()
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        cost, gradients = steps(model, block, factor=1.0, buffers=GradientBuffers())
        parts = [
            array.tobytes()
            for side in ("users", "items")
            for array in dense(gradients[side]).values()
        ]
        bits.add((cost, *parts))
    assert len(bits) == 1


def test_a_sample_estimates_the_sum_over_the_whole_catalogue():
    """The mean over samples of each moment's sum of exponentials is that of all items."""
    timeline = timeline_of(12, 9, 50, seed=0)
    sampled = RankingSettings(cost="sampled-softmax", choices=3, batch_users=1)
    blocks = UserBlocks(timeline, timeline.by_item(), sampled)
    exponentials_m = torch.rand(9, generator=torch.Generator().manual_seed(0)).numpy() + 0.1
    sums = []
    for step in range(0, 12 * 400, 12):  # the same number in every epoch: another user each time
        block = blocks.draw(step)
        chosen = block.pairs.items.member_of_pair[0]
        items = block.pairs.items.members
        others = items != chosen
        weights_m = np.exp(block.correction_m[others])
        drawn = float((weights_m * exponentials_m[items[others]]).sum())
        sums.append(drawn - (exponentials_m.sum() - exponentials_m[chosen]))
    assert np.mean(sums) == pytest.approx(0.0, abs=4 * np.std(sums) / np.sqrt(len(sums)))
