"""The scan over histories and its reverse against the same in torch, one step after another.

    .venv/bin/python benchmarks/scan.py [--json] [--users 64] [--hidden 128] [--repeats 9]

Histories as long as those of MovieLens 1M (found under CFUICA_DATA, else lengths of that spread),
one block of users, forward and backward. torch runs on all cores. Medians, warmed up, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
import torch

from cfuica.errors import CfuicaError
from cfuica.model.layers import LearnedDecay
from cfuica.ops.encode import scan
from cfuica.ops.tables import Grouping, Histories, RowTable

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
    rows = rng.standard_normal((ITEMS + 1, 1, given.hidden)).astype(np.float32)
    table, decay = RowTable(torch.from_numpy(rows)), LearnedDecay(given.hidden)
    grad_qh = torch.from_numpy(rng.standard_normal((histories.n_rows, given.hidden), np.float32))

    def forward_and_backward() -> None:
        table.gradient = None
        scan(table, histories, decay()).backward(grad_qh)

    def in_torch() -> None:
        with mock.patch.dict(os.environ, CFUICA_OPS="reference"):
            forward_and_backward()

    seconds = medians({"scan": forward_and_backward, "torch": in_torch}, given.repeats)
    found = {
        "users": given.users,
        "interactions": len(histories.entries),
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
    entries = rng.integers(0, ITEMS, n).astype(np.int32)
    counts = np.bincount(entries, minlength=ITEMS + 1)
    readers = Grouping(
        np.append(0, np.cumsum(counts)).astype(np.int64),
        np.argsort(entries, kind="stable").astype(np.int32),
    )
    return Histories(offsets, entries, positions, position_offsets, readers)


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
