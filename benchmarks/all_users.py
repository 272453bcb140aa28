"""CPU seconds of the top 10 for all users, against the same work in torch. Medians.

    .venv/bin/python benchmarks/all_users.py [--json] [--hidden 500] [--n 10] [--repeats 5]

The model is that of `benchmarks/live.py`. Torch has the same blocks of users and does the least
that gives the answer: a product for each label and side, softmax, mean rating, seen items out,
topk. Both run in turns, because the machine may be shared, and CPU seconds are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from live import interactions, random_model

from cfuica.inference.recommend import BLOCK_BYTES
from cfuica.models.co_autoregressive import RatingModel
from cfuica.ops.runtime import thread_count


def main() -> None:
    """Time both and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hidden", type=int, default=500, help="hidden units of each side")
    parser.add_argument("--cold-start", type=int, default=0)
    parser.add_argument("--text-ids", action="store_true")
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    name, matrix = interactions()
    model = random_model(matrix, given)
    users = model.users.ids
    torch.set_num_threads(thread_count())
    ways: dict[str, Callable[[], object]] = {
        "recommend": lambda: model.recommend(users, given.n),
        "torch": lambda: in_torch(model, given.n),
    }
    seconds: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for turn in range(given.repeats + 1):  # the first one warms up
        for way, call in ways.items():
            cpu, wall = time.process_time(), time.perf_counter()
            call()
            if turn:
                seconds[way].append((time.process_time() - cpu, time.perf_counter() - wall))
    found: dict[str, object] = {"interactions": name, "users": len(users), "n": given.n}
    for way, both in seconds.items():
        found[f"{way}, CPU s"] = statistics.median(cpu for cpu, _ in both)
        found[f"{way}, wall s"] = statistics.median(wall for _, wall in both)
    ratios = (own[0] / other[0] for own, other in zip(*seconds.values(), strict=True))
    found["recommend / torch, CPU"] = statistics.median(ratios)
    found["load"] = os.getloadavg()[0]
    if given.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key}: {value:.3f}" if isinstance(value, float) else f"{key}: {value}")


@torch.no_grad()
def in_torch(model: RatingModel, n: int) -> list[torch.Tensor]:
    """The top n of every user."""
    state = model.live_model.state
    sides, n_items = state.network.sides, model.items.size
    values_k = torch.from_numpy(model.scale.values_array())
    hidden_items = torch.from_numpy(state.hidden("users")[:n_items].copy())
    items, users = sides["items"], sides["users"]
    found = []
    size = max(1, BLOCK_BYTES // (4 * n_items * state.n_labels))
    for start in range(0, model.users.size, size):
        block = slice(start, min(start + size, model.users.size))
        hidden_users = state.contexts["items"].hidden_between(block.start, block.stop)
        logits = [
            hidden_users @ items.V.values[:n_items, k].T
            + items.b.values[:n_items, k, 0]
            + users.V.values[block, k] @ hidden_items.T
            + users.b.values[block, k]
            for k in range(state.n_labels)
        ]
        p_kbm = torch.softmax(torch.stack(logits), 0)
        score_bm = torch.tensordot(values_k, p_kbm, 1)
        seen = [state.history("users", user)[0] for user in range(block.start, block.stop)]
        rows = np.repeat(np.arange(len(seen)), [len(own) for own in seen])
        score_bm[torch.from_numpy(rows), torch.from_numpy(np.concatenate(seen)).long()] = -np.inf
        found.append(torch.topk(score_bm, n).indices)
    return found


if __name__ == "__main__":
    main()
