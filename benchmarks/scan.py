"""The scan over histories and its reverse against the same in torch, one step after another.

    .venv/bin/python benchmarks/scan.py [--json] [--users 64] [--hidden 128] [--repeats 9]

Histories as long as those of MovieLens 1M (found under CFUICA_DATA, else lengths of that spread),
one block of users, forward and backward. torch runs on all cores. Medians, warmed up, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from cfuica.data.matrix import Csr
from cfuica.errors import CfuicaError
from cfuica.model.layers import decay_and_scale
from cfuica.model.pairs import Histories
from cfuica.model.side import Side
from cfuica.ops import reference
from cfuica.training.batches import Context
from cfuica.training.gradients import encode_backward

ITEMS = 3706


def main() -> None:
    """Time both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    histories = histories_of(lengths(given.users, rng), rng)
    side = Side.initial(
        ITEMS, 1, given.hidden, activation="tanh", share=False, learns_decay=True,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    grad_qh = rng.standard_normal((histories.n_rows, given.hidden)).astype(np.float32)
    context = context_of(histories)
    grad_nkh = torch.empty_like(side.encoder_nkh)

    def kernel() -> None:
        side.encode(histories)
        encode_backward(side, context, grad_qh, False, grad_nkh)

    def in_torch() -> None:
        table = side.encoder_nkh.clone().requires_grad_()
        assert side.log_time_constants_h is not None
        log_time_constants_h = side.log_time_constants_h.clone().requires_grad_()
        sums_qh = reference.scan(
            table,
            side.encoder_bias_h,
            *histories.on(torch.device("cpu")),
            *decay_and_scale(log_time_constants_h),
        )
        (torch.tanh(sums_qh).detach() + sums_qh).backward(torch.from_numpy(grad_qh))

    seconds = medians({"scan": kernel, "torch": in_torch}, given.repeats)
    found = {
        "users": given.users,
        "interactions": len(histories.indices),
        "hidden": given.hidden,
        "scan_ms": 1e3 * seconds["scan"],
        "torch_ms": 1e3 * seconds["torch"],
        "ratio": seconds["torch"] / seconds["scan"],
    }
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{found['users']} users, {found['interactions']:,} interactions, {found['hidden']} units: "
        f"scan {found['scan_ms']:.1f} ms, torch {found['torch_ms']:.1f} ms, "
        f"{found['ratio']:.0f} times faster"
    )


def lengths(users: int, rng: np.random.Generator) -> np.ndarray:
    """Of so many histories."""
    try:
        from cfuica.data.datasets import resolve

        counts = resolve("ml-1m").frame["user"].value_counts()["count"].to_numpy()
    except CfuicaError:
        counts = np.exp(rng.normal(4.6, 1.0, 6040)).astype(np.int64) + 20
    return np.sort(rng.choice(counts, users, replace=False))


def histories_of(sizes: np.ndarray, rng: np.random.Generator) -> Histories:
    """Every interaction with a moment of its own."""
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    n = int(offsets[-1])
    positions = (np.arange(n) - np.repeat(offsets[:-1], sizes)).astype(np.int32)
    position_offsets = offsets + np.arange(len(offsets))
    return Histories(
        offsets, rng.integers(0, ITEMS, n).astype(np.int32), positions, position_offsets
    )


def context_of(histories: Histories) -> Context:
    """With the interactions listed by their entry."""
    order = np.argsort(histories.indices, kind="stable").astype(np.int32)
    counts = np.bincount(histories.indices, minlength=ITEMS + 1)
    return Context(histories, Csr(np.append(0, np.cumsum(counts)).astype(np.int64), order))


def medians(works: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Seconds of each, in turns, after one that does not count."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if turn:
                found[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


if __name__ == "__main__":
    main()
