"""Milliseconds of the live state: a person, all people, an event, many pairs. Medians.

    .venv/bin/python benchmarks/live.py [--json] [--hidden 500] [--repeats 9]

The behaviours are those of MovieLens 1M if it is under CFUICA_DATA, else random ones of its size.
The parameters are random: only their number matters for the time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.table import BehaviourTable
from cfuica.live.state import LiveState
from cfuica.model.conditional import CoAutoregressive

USERS, ITEMS, LABELS, BEHAVIOURS = 6040, 3706, 5, 1_000_209
PEOPLE_PER_BLOCK = 128
PAIRS = 100_000
EVENTS = 1000


def main() -> None:
    """Time everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hidden", type=int, default=500, help="hidden units of each side")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    name, matrix = _behaviours()
    found = {"behaviours": name, "hidden": given.hidden, **_times(matrix, given)}
    if given.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key}: {value:,.3f} ms" if isinstance(value, float) else f"{key}: {value}")


def _behaviours() -> tuple[str, BehaviourMatrix]:
    zipped = Path(os.environ.get("CFUICA_DATA", "")) / "ml-1m" / "ml-1m.zip"
    if zipped.is_file():
        table = BehaviourTable.read(zipped)
        matrix = table.matrix(users=table.users, items=table.item_ids, scale=table.scale)
        return "MovieLens 1M", matrix
    cells = np.random.default_rng(0).permutation(USERS * ITEMS)[:BEHAVIOURS]
    matrix = BehaviourMatrix.from_triplets(
        cells // ITEMS,
        cells % ITEMS,
        cells % LABELS,
        n_users=USERS,
        n_items=ITEMS,
        n_labels=LABELS,
    )
    return "random ones of the size of MovieLens 1M", matrix


def _times(matrix: BehaviourMatrix, given: argparse.Namespace) -> dict[str, float]:
    rng = np.random.default_rng(0)
    n_users, n_items = matrix.n_users, matrix.n_items
    network = CoAutoregressive.initial(
        n_users=n_users,
        n_items=n_items,
        n_labels=matrix.n_labels,
        hidden={"users": given.hidden, "items": given.hidden},
    )
    rows = {"users": np.arange(n_users), "items": np.arange(n_items)}
    users_p, items_p = rng.integers(n_users, size=PAIRS), rng.integers(n_items, size=PAIRS)
    observed = rng.permutation(matrix.n_behaviours)[:PAIRS]
    seen_users_p, seen_items_p = (part[observed] for part in matrix.triplets()[:2])
    state = LiveState.of(network, matrix, rows)

    def first_prediction() -> None:
        fresh = LiveState.of(network, matrix, rows)
        fresh.people(np.arange(n_users))
        fresh.hidden("users")

    def everyone() -> None:
        for start in range(0, n_users, PEOPLE_PER_BLOCK):
            block = np.arange(start, min(start + PEOPLE_PER_BLOCK, n_users))
            state.item_activations(state.people(block))

    def events() -> None:
        for _ in range(EVENTS):
            user, item = int(rng.integers(n_users)), int(rng.integers(n_items))
            state.rate(user, item, int(rng.integers(matrix.n_labels)))

    def one_person() -> None:
        state.item_activations([state.person(int(rng.integers(n_users)))])

    def rate_and_look() -> None:
        user, item = int(rng.integers(n_users)), int(rng.integers(n_items))
        state.rate(user, item, 0)
        state.item_activations([state.person(user)])

    def timed(action: Callable[[], object], times: int = 1) -> float:
        seconds = []
        for _ in range(given.repeats + 1):  # the first one warms up
            start = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - start)
        return 1000 * statistics.median(seconds[1:]) / times

    return {
        "all sums from nothing": timed(first_prediction),
        "all items, one person": timed(one_person),
        f"all items, everyone, {PEOPLE_PER_BLOCK} at a time": timed(everyone),
        f"{PAIRS} random pairs": timed(lambda: state.pair_activations(users_p, items_p)),
        f"{PAIRS} observed pairs": timed(
            lambda: state.pair_activations(seen_users_p, seen_items_p)
        ),
        "one event": timed(events, EVENTS),
        "one event, then all items for its user": timed(rate_and_look),
    }


if __name__ == "__main__":
    main()
