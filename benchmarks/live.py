"""Milliseconds of a model in use: what its users call, and the live state below. Medians.

    .venv/bin/python benchmarks/live.py [--json] [--hidden 500] [--cold-start 0]
    [--repeats 9] [--run RUN]

With --run it is the rating model of a run, and loading it is timed too. Else the interactions are
those of MovieLens 1M if it is under CFUICA_DATA, or random ones of its size, and the parameters are
random: only their number matters for the time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import cfuica
from cfuica.artifact import Artifact
from cfuica.data.matrix import InteractionMatrix
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.live.live_state import LiveState
from cfuica.model.network import Network
from cfuica.models.co_autoregressive import RatingModel
from cfuica.ops.runtime import peak_memory_gb
from cfuica.settings import RatingSettings

USERS, ITEMS, LABELS, INTERACTIONS = 6040, 3706, 5, 1_000_209
USERS_PER_BLOCK = 128
PAIRS = 100_000
EVENTS = 1000


def main() -> None:
    """Time everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hidden", type=int, default=500, help="hidden units of each side")
    parser.add_argument(
        "--cold-start", type=int, default=0, help="hidden units of the cold-start network"
    )
    parser.add_argument("--text-ids", action="store_true", help="ids that are no numbers")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--run", type=Path, help="time the calls of a run's model")
    given = parser.parse_args()
    if given.run is not None:
        start = time.perf_counter()
        model = cfuica.load(given.run)
        loading = 1000 * (time.perf_counter() - start)
        start = time.perf_counter()
        model.recommend(model.users.ids[0])
        found = {
            "run": str(given.run),
            "loading": loading,
            "the first recommend": 1000 * (time.perf_counter() - start),
        }
        found |= _times_of_calls(model, given)
        found["peak_gb"] = f"{peak_memory_gb():.2f}"
    else:
        name, matrix = interactions()
        model = random_model(matrix, given)
        found = {"interactions": name, "hidden": given.hidden, "cold_start": given.cold_start}
        found |= _times_of_calls(model, given)
        found["recommend(all users)"] = _timed(
            lambda: model.recommend(model.users.ids.to_list()), 2
        )
        found |= _times(matrix, given)
    if given.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key}: {value:,.3f} ms" if isinstance(value, float) else f"{key}: {value}")


def interactions() -> tuple[str, InteractionMatrix]:
    """Of MovieLens 1M, or of its size; and what they are."""
    zipped = Path(os.environ.get("CFUICA_DATA", "")) / "ml-1m" / "ml-1m.zip"
    if zipped.is_file():
        table = Interactions.read(zipped)
        matrix = table.matrix(users=table.users, items=table.item_ids, scale=table.scale)
        return "MovieLens 1M", matrix
    cells = np.random.default_rng(0).permutation(USERS * ITEMS)[:INTERACTIONS]
    matrix = InteractionMatrix.from_triplets(
        cells // ITEMS,
        cells % ITEMS,
        cells % LABELS,
        n_users=USERS,
        n_items=ITEMS,
        n_labels=LABELS,
    )
    return "random ones of the size of MovieLens 1M", matrix


def _network(
    matrix: InteractionMatrix, given: argparse.Namespace, *, cold_start: bool = False
) -> Network:
    rows = {"users": matrix.n_users + 1, "items": matrix.n_items + 1}
    network = Network.of(_settings(given), rows, matrix.n_labels, cold_start=cold_start)
    return network.initialise(0)


def _settings(given: argparse.Namespace) -> RatingSettings:
    return RatingSettings(
        hidden_users=given.hidden, hidden_items=given.hidden, cold_start_units=given.cold_start
    )


def _timed(action: Callable[[], object], repeats: int, times: int = 1) -> float:
    seconds = []
    for _ in range(repeats + 1):  # the first one warms up
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds[1:]) / times


def random_model(matrix: InteractionMatrix, given: argparse.Namespace) -> RatingModel:
    """A model of random parameters on these interactions."""

    def ids(n: int) -> Vocabulary:
        numbers = pl.Series("id", range(1, n + 1))
        return Vocabulary.from_ids(
            pl.select(pl.format("id-{}", numbers)).to_series() if given.text_ids else numbers
        )

    users, items = ids(matrix.n_users), ids(matrix.n_items)
    networks = {"warm": _network(matrix, given)}
    if given.cold_start:
        networks["cold_start"] = _network(matrix, given, cold_start=True)
    return RatingModel.from_artifact(
        Artifact(
            settings=_settings(given),
            networks=networks,
            users=users,
            items=items,
            scale=LabelScale((1.0, 2.0, 3.0, 4.0, 5.0)),
            interactions=matrix,
            rows={
                "users": np.arange(matrix.n_users, dtype=np.int32),
                "items": np.arange(matrix.n_items, dtype=np.int32),
            },
        ),
    )


def _times_of_calls(model: RatingModel, given: argparse.Namespace) -> dict[str, Any]:
    """Of the calls that a Python user makes."""
    users, items = model.users, model.items
    rng = np.random.default_rng(0)
    user_ids, item_ids = users.ids.to_list(), items.ids.to_list()

    def one(of: list[Any]) -> Any:
        return of[int(rng.integers(len(of)))]

    def rating() -> float:
        return float(rng.integers(1, 6))

    added = iter(range(10**8, 10**9))
    busy = user_ids[0]
    model.observe([(busy, item, rating()) for item in item_ids[:500]])
    calls = {
        "recommend(one user)": lambda: model.recommend(one(user_ids)),
        "recommend(one user, by='lower')": lambda: model.recommend(one(user_ids), by="lower"),
        "recommend(history of 20)": lambda: model.recommend(
            history=[(item, rating()) for item in rng.permutation(item_ids)[:20].tolist()]
        ),
        "explain, a history of 500": lambda: model.explain(busy, one(item_ids[500:])),
        "similar_items": lambda: model.similar_items(one(item_ids[:500])),
        "observe one event": lambda: model.observe([(one(user_ids), one(item_ids), rating())]),
        "observe a new user or item": lambda: model.observe(
            [(type(busy)(next(added)), one(item_ids), rating())]
        ),
    }
    return {name: _timed(call, 20 * given.repeats) for name, call in calls.items()}


def _times(matrix: InteractionMatrix, given: argparse.Namespace) -> dict[str, float]:
    """Of the live state."""
    rng = np.random.default_rng(0)
    n_users, n_items = matrix.n_users, matrix.n_items
    network = _network(matrix, given)
    rows = {"users": np.arange(n_users), "items": np.arange(n_items)}
    users_p, items_p = rng.integers(n_users, size=PAIRS), rng.integers(n_items, size=PAIRS)
    observed = rng.permutation(matrix.n_interactions)[:PAIRS]
    seen_users_p, seen_items_p = (part[observed] for part in matrix.triplets()[:2])
    state = LiveState.of(network, matrix, rows)

    def first_prediction() -> None:
        fresh = LiveState.of(network, matrix, rows)
        fresh.profiles(np.arange(n_users))
        fresh.hidden("users")

    def all_rows() -> None:
        for start in range(0, n_users, USERS_PER_BLOCK):
            block = np.arange(start, min(start + USERS_PER_BLOCK, n_users))
            state.item_logits(state.profiles(block))

    def events() -> None:
        for _ in range(EVENTS):
            user, item = int(rng.integers(n_users)), int(rng.integers(n_items))
            state.change(user, item, int(rng.integers(matrix.n_labels)))

    def one_user() -> None:
        state.item_logits([state.profile(int(rng.integers(n_users)))])

    def rate_and_look() -> None:
        user, item = int(rng.integers(n_users)), int(rng.integers(n_items))
        state.change(user, item, 0)
        state.item_logits([state.profile(user)])

    def timed(action: Callable[[], object], times: int = 1) -> float:
        return _timed(action, given.repeats, times)

    return {
        "all sums from nothing": timed(first_prediction),
        "all items, one user": timed(one_user),
        f"all items, all users, {USERS_PER_BLOCK} at a time": timed(all_rows),
        f"{PAIRS} random pairs": timed(lambda: state.pair_logits(users_p, items_p)),
        f"{PAIRS} observed pairs": timed(lambda: state.pair_logits(seen_users_p, seen_items_p)),
        "one event": timed(events, EVENTS),
        "one event, then all items for its user": timed(rate_and_look),
    }


if __name__ == "__main__":
    main()
