"""Seconds and memory of a training at the size of Netflix: data, clusters, minibatches.

    .venv/bin/cfuica data synth --like netflix --out netflix.parquet
    .venv/bin/python benchmarks/netflix_size.py netflix.parquet [--repeats 15] [--json]

The settings are the preset `paper-netflix`: blocks of 4000 x 1000, 500 hidden units a side, 20,000
clusters of users. Data and clusters come from the cache where an earlier run has prepared them.
Seconds are those of the clock and of all cores together. A minibatch is a median, warmed up; the
next one is drawn beside it and not counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from cfuica.data.layout import FIND_OUT
from cfuica.data.split_tables import SplitRequest
from cfuica.ops.runtime import machine, peak_memory_gb
from cfuica.runs.inputs import prepared_split
from cfuica.runs.prepared import PreparedCache
from cfuica.settings import rating_preset
from cfuica.training.budget import Sizes, budget_of, plan
from cfuica.training.rating_task import RatingTask, validation_sample
from cfuica.training.trainer import Callback, _NetworkTraining

WARM_UP = 2


class Said(Callback):
    """Prints notes and the progress of what comes before training."""

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def preparing(self, what: str, share: float) -> None:
        print(f"{what}: {share:.0%}", file=sys.stderr, flush=True)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def measured(found: dict[str, Any], name: str):
    clock, cpu = time.perf_counter(), cpu_seconds()
    yield
    found[name] = {
        "seconds": round(time.perf_counter() - clock, 2),
        "cpu_seconds": round(cpu_seconds() - cpu, 2),
        "peak_gb": round(peak_memory_gb(), 2),
    }


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--clusters", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    callback, found = Said(), {"machine": machine()}
    settings = rating_preset("paper-netflix").replaced(user_clusters=given.clusters)
    cache = PreparedCache(say=callback.note)
    with measured(found, "data"):
        split = prepared_split(
            cache, settings, str(given.data), None, None, SplitRequest("random"), FIND_OUT
        )
        scale = split.train.label_scale(vocabulary=split.whole, bins=settings.bins)
        reading = {"users": split.whole.users, "items": split.whole.item_ids, "scale": scale}
        matrix = split.train.matrix(**reading)
    values_k = scale.values_array()
    with measured(found, "clusters"):
        valid = validation_sample(split.valid.rated_pairs(**reading), matrix, callback)
        settings, shared = plan(matrix, values_k, settings, valid, callback)
    sizes = Sizes(matrix.n_users, matrix.n_items, matrix.n_interactions, matrix.n_labels, valid.n)
    found["predicted_peak_gb"] = round(budget_of(settings, sizes, shared).bytes / 1e9, 2)
    task = RatingTask.of(matrix, settings, values_k, valid=valid, shared=shared)
    run, blocks = _NetworkTraining(task, 0, [], time.perf_counter()), task.blocks(0)
    steps = []
    for step in range(WARM_UP + given.repeats):
        block = blocks.draw(step)
        clock, cpu = time.perf_counter(), cpu_seconds()
        run.minibatch(block, 1e-3)
        entries = sum(len(context.entries) for context in block.contexts.values())
        row = (time.perf_counter() - clock, cpu_seconds() - cpu, entries, block.pairs.size)
        if step >= WARM_UP:
            steps.append(row)
    names = ("seconds", "cpu_seconds", "gathered_entries", "pairs")
    found["minibatch"] = {
        name: round(statistics.median(column), 3)
        for name, column in zip(names, zip(*steps, strict=True), strict=True)
    }
    with measured(found, "validation"), torch.no_grad():
        task.validator(0)(run.network)
    found["peak_gb"] = round(peak_memory_gb(), 2)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
