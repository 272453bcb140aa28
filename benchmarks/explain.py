"""Milliseconds that explaining one prediction takes: median over items, tables included.

    .venv/bin/python benchmarks/explain.py [--hidden 500] [--history 500] [--json]

Random parameters in the shape of MovieLens 1M (6,040 users, 3,706 items, 5 labels) and as many
interactions; the user has a history of 500. Items of any popularity are explained in turn, and
the one that most users rated."""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import polars as pl

from cfuica.artifact import Artifact
from cfuica.data.matrix import InteractionMatrix
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.inference.explain import explain
from cfuica.live.live_model import LiveModel
from cfuica.model.network import Network
from cfuica.settings import RatingSettings

N_USERS, N_ITEMS, N_LABELS, N_INTERACTIONS = 6_040, 3_706, 5, 1_000_209
REPEATS = 101


def world(hidden: int, history: int) -> LiveModel:
    """User 0 has the history; what others did is spread over items as it is in such data."""
    rng = np.random.default_rng(0)
    weights = 1.0 / np.arange(60, N_ITEMS + 60)
    items = rng.choice(N_ITEMS, 2 * N_INTERACTIONS, p=weights / weights.sum())
    pairs = np.unique(rng.integers(1, N_USERS, items.size) * N_ITEMS + items)
    users, items = np.divmod(rng.permutation(pairs)[: N_INTERACTIONS - history], N_ITEMS)
    matrix = InteractionMatrix.from_triplets(
        np.append(users, np.zeros(history, np.int64)),
        np.append(items, rng.permutation(N_ITEMS)[:history]),
        rng.integers(0, N_LABELS, users.size + history),
        n_users=N_USERS,
        n_items=N_ITEMS,
        n_labels=N_LABELS,
    )
    settings = RatingSettings(hidden_users=hidden, hidden_items=hidden)
    sizes = {"users": N_USERS + 1, "items": N_ITEMS + 1}
    ids = pl.Series("id", range(N_ITEMS))
    return LiveModel(
        Artifact(
            settings=settings,
            networks={"warm": Network.of(settings, sizes, N_LABELS).initialise(0)},
            users=Vocabulary(pl.Series("id", range(N_USERS))),
            items=Vocabulary(ids),
            rows={"users": np.arange(N_USERS), "items": np.arange(N_ITEMS)},
            interactions=matrix,
            scale=LabelScale((1.0, 2.0, 3.0, 4.0, 5.0)),
            item_metadata=pl.DataFrame({"item": ids, "title": [f"Item {at}" for at in ids]}),
        )
    )


def main() -> None:
    """Time items at random and the most popular one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=500)
    parser.add_argument("--history", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    live = world(given.hidden, given.history)

    def milliseconds(item: int) -> float:
        start = time.perf_counter()
        explain(live, 0, item, user_id=0, item_id=item)
        return 1000 * (time.perf_counter() - start)

    support = live.support("items")[:N_ITEMS]
    popular = int(support.argmax())
    milliseconds(popular)  # compiles
    asked = np.random.default_rng(1).integers(0, N_ITEMS, REPEATS).tolist()
    result = {
        "hidden": given.hidden,
        "history": given.history,
        "median_ms": statistics.median(map(milliseconds, asked)),
        "most_popular_raters": int(support[popular]),
        "most_popular_median_ms": statistics.median(milliseconds(popular) for _ in range(REPEATS)),
    }
    if given.json:
        print(json.dumps(result))
    else:
        print(
            f"history of {given.history}, H = {given.hidden}: {result['median_ms']:.1f} ms, "
            f"{result['most_popular_median_ms']:.1f} ms for the item with "
            f"{result['most_popular_raters']:,} raters"
        )


if __name__ == "__main__":
    main()
