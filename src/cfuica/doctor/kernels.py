"""The compiled kernels against their definition, on this machine: one small block, once through,
and what serves a model: sums that live, distributions, scores and rankings."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import BehaviourMatrix
from cfuica.doctor.checks import Check
from cfuica.kernels import definition
from cfuica.learning.autograd import autograd_cost_and_gradients
from cfuica.learning.block import Block, cut_block
from cfuica.learning.gradients import (
    GradientBuffers,
    Gradients,
    block_cost_and_gradients,
)
from cfuica.learning.optimiser import Adam
from cfuica.live.growing import GrowingArray
from cfuica.live.rows import LiveRows
from cfuica.live.sums import RunningSums, hidden_vectors
from cfuica.model.activation import activate
from cfuica.model.calibration import Calibration
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.gain import NO_GAIN, Gain
from cfuica.model.pairs import SideName
from cfuica.model.prediction import expected_rating
from cfuica.recommending.best import best
from cfuica.recommending.scores import worst_rating
from cfuica.settings import Settings

USERS, ITEMS, LABELS, BEHAVIOURS = 60, 50, 5, 900
PEOPLE = 2  # who items are ranked for
TOLERANCE = 1e-4
"""Largest difference, as a share of the largest number: float32 sums in another order."""
ADVICE = (
    "Results of this machine cannot be trusted: delete the folder of numba's cache, "
    "run cfuica doctor again, and if it persists report it with the output of cfuica doctor --json."
)

# What a step finds: each kernel's largest difference from its definition.
Differences = dict[str, float]


@dataclass(frozen=True)
class _Problem:
    """A model with random parameters and a block of a random matrix."""

    matrix: BehaviourMatrix
    model: CoAutoregressive
    block: Block
    users: np.ndarray
    items: np.ndarray


def check_kernels() -> list[Check]:
    """A verdict per kernel; where several run in one pass, its time stands with the first.

    Times include compiling where numba's cache is empty.
    """
    checks: list[Check] = []
    start = time.perf_counter()
    try:
        problem = _problem()
    except Exception as error:  # whatever it is, it is what the doctor was called for
        return [_failed("draw", error)]
    for names, step in _STEPS.items():
        try:
            differences = step(problem)
        except Exception as error:
            checks.extend(_failed(name, error) for name in names)
        else:
            times = (time.perf_counter() - start, *[None] * len(names))
            checks.extend(
                _verdict(name, differences[name], seconds)
                for name, seconds in zip(names, times, strict=False)
            )
        start = time.perf_counter()
    return checks


def _verdict(name: str, difference: float, seconds: float | None) -> Check:
    ok = difference <= TOLERANCE  # not a number is not ok
    found = f"within {difference:.0e} of its definition"
    return Check(f"kernel {name}", ok, found, "" if ok else ADVICE, seconds)


def _failed(name: str, error: Exception) -> Check:
    first_line = (str(error).splitlines() or [""])[0]
    return Check(f"kernel {name}", False, f"{type(error).__name__}: {first_line}", ADVICE)


def _problem() -> _Problem:
    rng = np.random.default_rng(0)
    cells = rng.permutation(USERS * ITEMS)[:BEHAVIOURS]
    matrix = BehaviourMatrix.from_triplets(
        cells // ITEMS,
        cells % ITEMS,
        rng.integers(0, LABELS, BEHAVIOURS),
        n_users=USERS,
        n_items=ITEMS,
        n_labels=LABELS,
    )
    users, items = (rng.permutation(size).astype(np.int32) for size in (USERS, ITEMS))
    half = len(users) // 2, len(items) // 2
    block = cut_block(
        matrix,
        users[: half[0]],
        items[: half[1]],
        sides=("users", "items"),
        open_users=np.isin(np.arange(USERS), users[half[0] :]),
        open_items=np.isin(np.arange(ITEMS), items[half[1] :]),
        keep_users=1.0,
        keep_items=1.0,
        key=0,
        scale=1.0,
    )
    model = CoAutoregressive.initial(
        n_users=USERS,
        n_items=ITEMS,
        n_labels=LABELS,
        hidden={"users": 17, "items": 8},
        gains={"users": Gain(0.5, 15.0)},
    )
    for tensor in model.tensors().values():
        tensor.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(tensor.shape))))
    return _Problem(matrix, model, block, users[: half[0]], items[: half[1]])


def _draw(problem: _Problem) -> Differences:
    """The pairs and contexts of the block, against masks over all behaviours."""
    user, item, label = problem.matrix.triplets()
    user_in, item_in = np.isin(user, problem.users), np.isin(item, problem.items)
    inside = user_in & item_in
    expected = {tuple(row) for row in np.stack([user, item, label], 1)[inside].tolist()}
    pairs = problem.block.pairs
    found = zip(
        pairs.users.member_of_pair.tolist(),
        pairs.items.member_of_pair.tolist(),
        problem.block.labels.tolist(),
        strict=True,
    )
    wrong = len(expected.symmetric_difference(found))
    contexts: dict[SideName, tuple[np.ndarray, np.ndarray]] = {
        "users": (user, item_in & ~user_in),
        "items": (item, user_in & ~item_in),
    }
    for side, (members, context) in contexts.items():
        entries = members[context].astype(np.int64) * LABELS + label[context]
        drawn = problem.block.contexts[side].bag.entries
        wrong += not np.array_equal(np.sort(drawn), np.sort(entries))
    return {"draw": float(wrong)}


def _encode(problem: _Problem) -> Differences:
    sides, contexts = problem.model.sides, problem.block.contexts
    return {
        "encode": _worst(
            _difference(side.encode(contexts[name].bag).values_qh, _hidden(problem, name))
            for name, side in sides.items()
        )
    }


def _decode(problem: _Problem) -> Differences:
    model, block = problem.model, problem.block
    hidden = {name: _hidden(problem, name) for name in model.sides}
    expected = torch.zeros(block.pairs.size, LABELS)
    for name, side in model.sides.items():
        pairs = block.pairs.seen_by(name)
        expected += definition.decode(
            side.decoder_nkh,
            side.decoder_bias_nk,
            torch.from_numpy(pairs.member_of_pair).long(),
            hidden[name][torch.from_numpy(pairs.query_of_pair).long()],
        )
    return {"decode": _difference(model.activations(block.pairs, hidden), expected)}


def _gradients(problem: _Problem) -> Differences:
    """Forward and backward: each tensor's gradient is the work of one kernel."""
    model, block = problem.model, problem.block
    cost, ours = block_cost_and_gradients(
        model, block, factor=1.0, ordinal_weight=0.5, share=True, buffers=GradientBuffers()
    )
    expected_cost, theirs = autograd_cost_and_gradients(
        model, block, factor=1.0, ordinal_weight=0.5, share=True
    )
    by_kernel = {
        "cost": [_difference(torch.tensor(cost), torch.tensor(expected_cost))],
        "decode_backward_members": [],
        "decode_backward_queries": [],
        "encode_backward": [],
    }
    for name in model.sides:
        mine, other = ours[name], theirs[name]
        # The kernels keep the rows of the block's members only; the others are zero.
        rows = torch.from_numpy(np.flatnonzero(mine.group_of_member >= 0))
        for grad, expected in (
            (mine.decoder_gkh, other.decoder_gkh),
            (mine.decoder_bias_gk, other.decoder_bias_gk),
        ):
            groups = torch.from_numpy(mine.group_of_member).long()[rows]
            by_kernel["decode_backward_members"].append(_difference(grad[groups], expected[rows]))
        by_kernel["decode_backward_queries"].append(
            _difference(mine.encoder_bias_h, other.encoder_bias_h)
        )
        by_kernel["encode_backward"].append(_difference(mine.encoder_nkh, other.encoder_nkh))
    return {kernel: _worst(differences) for kernel, differences in by_kernel.items()}


def _adam(problem: _Problem) -> Differences:
    """One step with autograd's gradients, so that no other kernel can be to blame."""
    settings = Settings(max_norm=None, max_entry=None, l2=1e-3)
    _, gradients = autograd_cost_and_gradients(
        problem.model, problem.block, factor=1.0, ordinal_weight=1.0, share=settings.share_labels
    )
    model = copy.deepcopy(problem.model)
    rate = 0.1
    Adam(model, settings).step(gradients, rate)
    after = model.tensors()
    return {
        "adam": _worst(
            _difference(after[name], expected)
            for name, expected in _by_definition(problem.model, gradients, settings, rate)
        )
    }


def _live(problem: _Problem) -> Differences:
    """The running sums of all items, and hidden vectors with and without one of their users."""
    side, rows = problem.model.sides["users"], problem.matrix.by_item
    everyone, sizes = np.arange(ITEMS), np.diff(rows.offsets)
    users = GrowingArray.of(np.arange(USERS, dtype=np.int32))
    sums_qh = RunningSums.of(side, LiveRows.of(rows), users).sums(everyone)
    entries = rows.members.astype(np.int64) * LABELS + rows.labels
    table_nkh, bias_h = side.encoder_nkh.double(), side.encoder_bias_h.double()

    def defined(offsets: np.ndarray, entries: np.ndarray, gain: Gain) -> Tensor:
        gain_q = torch.from_numpy(gain.of(np.diff(offsets)))
        return definition.encode(
            table_nkh, bias_h, torch.from_numpy(offsets), torch.from_numpy(entries), gain_q
        )

    # Every other item without the first of its users.
    is_without = (everyone % 2 == 0) & (sizes > 0)
    first = rows.offsets[:-1][is_without]
    left_out = np.full(ITEMS, -1)
    left_out[is_without] = entries[first]
    offsets = np.concatenate(([0], np.cumsum(sizes - is_without)))
    sums_by_definition = defined(rows.offsets, entries, NO_GAIN)
    remaining = defined(offsets, np.delete(entries, first), side.gain)
    hidden_qh = hidden_vectors(
        side, sums_by_definition.numpy(), everyone, left_out, sizes - is_without
    )
    return {
        "fill": _difference(torch.from_numpy(sums_qh), sums_by_definition),
        "hidden_vectors": _difference(
            torch.from_numpy(hidden_qh), activate(remaining, side.activation)
        ),
    }


def _serving(problem: _Problem) -> Differences:
    """Distributions of activations, scores of them and the best scores."""
    rng = np.random.default_rng(1)
    activation_bmk = rng.normal(0, 2, (PEOPLE, ITEMS, LABELS)).astype(np.float32)
    activation_pk = activation_bmk.reshape(-1, LABELS)
    values_k = np.arange(1, LABELS + 1, dtype=np.float32)
    softmax_pk = torch.softmax(torch.from_numpy(activation_pk).double(), 1)

    calibration = Calibration(temperature=1.5, widening=0.3)
    place_k = torch.linspace(-1, 1, LABELS, dtype=torch.float64)
    calibrated_pk = definition.calibrate(
        torch.from_numpy(activation_pk), 1 / 1.5, 0.3 * place_k**2, place_k
    )
    # The lowest tenth of each distribution, label by label.
    below_pk = softmax_pk.cumsum(1).clamp(max=0.1)
    lowest_pk = torch.diff(below_pk, dim=1, prepend=torch.zeros(len(below_pk), 1).double())
    values = torch.from_numpy(values_k).double()
    worst_bm = worst_rating(
        activation_bmk, values_k, lambda *_: softmax_pk.float().numpy(), share=0.1
    )
    expected_bm = expected_rating(activation_bmk, values_k)
    scores_bm = (softmax_pk @ values).view(PEOPLE, ITEMS).float().numpy()
    ranked = best(scores_bm, 10).items.reshape(PEOPLE, 10)
    wrong = np.count_nonzero(ranked != np.argsort(-scores_bm, 1, kind="stable")[:, :10])
    return {
        "calibrate": _difference(
            torch.from_numpy(calibration.distributions(activation_pk, values_k)), calibrated_pk
        ),
        "expected": _difference(torch.from_numpy(expected_bm).flatten(), softmax_pk @ values),
        "worst": _difference(torch.from_numpy(worst_bm).flatten(), lowest_pk @ values / 0.1),
        "best": float(wrong),
    }


def _by_definition(
    model: CoAutoregressive, gradients: Gradients, settings: Settings, rate: float
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor after the first step of Adam."""
    rate *= (1 - settings.beta2) ** 0.5 / (1 - settings.beta1)
    for side, its in gradients.items():
        for key, grad, shared, penalty in (
            ("encoder_nkh", its.encoder_nkh, True, settings.l2),
            ("encoder_bias_h", its.encoder_bias_h, False, 0.0),
            ("decoder_nkh", its.decoder_gkh, True, settings.l2),
            ("decoder_bias_nk", its.decoder_bias_gk, True, 0.0),
        ):
            used = model.tensors()[f"{side}.{key}"]
            shared = shared and settings.share_labels
            stored = definition.differences(used) if shared else used
            stored = definition.adam(
                stored,
                torch.zeros_like(stored),
                torch.zeros_like(stored),
                grad + 2 * penalty * stored,
                rate=rate,
                beta1=settings.beta1,
                beta2=settings.beta2,
                epsilon=settings.epsilon,
            )
            yield f"{side}.{key}", definition.accumulate(stored) if shared else stored


def _hidden(problem: _Problem, name: SideName) -> Tensor:
    """(Q, H) of the block's queries, by definition."""
    side, bag = problem.model.sides[name], problem.block.contexts[name].bag
    sums_qh = definition.encode(
        side.encoder_nkh,
        side.encoder_bias_h,
        torch.from_numpy(bag.offsets),
        torch.from_numpy(bag.entries).long(),
        torch.from_numpy(side.gain.of(np.diff(bag.offsets))),
    )
    return activate(sums_qh, side.activation)


def _difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest number expected."""
    return float((found - expected).abs().max() / expected.abs().max())


def _worst(differences: Iterable[float]) -> float:
    """The largest; not a number where any of them is none, which Python's max may pass over."""
    return float(np.max(list(differences)))


_STEPS: dict[tuple[str, ...], Callable[[_Problem], Differences]] = {
    ("draw",): _draw,
    ("encode",): _encode,
    ("decode",): _decode,
    (
        "cost",
        "decode_backward_members",
        "decode_backward_queries",
        "encode_backward",
    ): _gradients,
    ("adam",): _adam,
    ("fill", "hidden_vectors"): _live,
    ("calibrate", "expected", "worst", "best"): _serving,
}
