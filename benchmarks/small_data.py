"""Small data: the preset `default` beside the bias baseline and the matrix factorisation.

    .venv/bin/python benchmarks/small_data.py [--folds 1 2 3] [--seed 0] [--as-1m] [NAME ...]

The data are MovieLens 100K thinned to 5,000 and to 20,000 ratings, and the embedded data on a scale
from 1 to 100 (1,000 users, 500 items, 60,000 ratings). Each fold of ten is a test set; 5% of the
rest validate. The biases learn from train + validation, which is what CF-UIcA reads at test time;
the matrix factorisation is stopped by the validation set. Prints RMSE, the ratio of squared error
and predicted variance, and CPU seconds of training: means over the folds. `--as-1m` trains with
MovieLens 1M's settings, whatever the size. About a quarter of the test rows of MovieLens 100K are
among those that the rules of `cfuica.sizing` were chosen on (docs/lab-notes.md).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl

from cfuica.baselines import BiasedFactorisation, UserItemBias
from cfuica.data.datasets import resolve
from cfuica.data.split_tables import DataSplit
from cfuica.data.synthetic import make_world
from cfuica.data.table import Interactions
from cfuica.metrics.rating_metrics import rmse
from cfuica.models.co_autoregressive import RatingModel
from cfuica.settings import rating_preset


def thinned(ratings: int, seed: int) -> Interactions:
    """MovieLens 100K with so many of its ratings, drawn at random."""
    table = resolve("ml-100k")
    return table.take(np.sort(np.random.default_rng(seed).permutation(table.n)[:ratings]))


def fine_scale(seed: int) -> Interactions:
    """The embedded data with integers from 1 to 100: within 10 of 20 * stars - 10."""
    table = make_world().table
    stars = table.frame["rating"].to_numpy()
    noise = np.random.default_rng(seed).uniform(-10, 10, len(stars))
    ratings = np.clip(np.rint(20 * stars - 10 + noise), 1, 100)
    return replace(table, frame=table.frame.with_columns(rating=pl.Series(ratings)))


DATA: dict[str, Callable[[int], Interactions]] = {
    "ml-100k-5000": lambda seed: thinned(5_000, seed),
    "ml-100k-20000": lambda seed: thinned(20_000, seed),
    "demo-1-to-100": fine_scale,
}


def main() -> None:
    """Print a line for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(DATA))
    parser.add_argument("--folds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-1m", action="store_true")
    given = parser.parse_args()
    settings = rating_preset("default").replaced(seed=given.seed)
    if given.as_1m:
        settings = settings.replaced(sized=("l2",))
    for name in given.names:
        table = DATA[name](given.seed)
        rows = []
        for fold in given.folds:
            split = DataSplit.random(table, folds=10, fold=fold, valid=0.05, seed=given.seed)
            assert split.test is not None
            assert split.valid is not None
            truth = split.test.frame["rating"].to_numpy()
            errors = []
            for baseline in (UserItemBias(), BiasedFactorisation()):
                baseline.fit(split.train, valid=split.valid, vocabulary=table)
                errors.append(rmse(baseline.predict(split.test)["prediction"].to_numpy(), truth))
            start, cpu = time.perf_counter(), time.process_time()
            model = RatingModel(settings)
            model.fit(split.train, valid=split.valid, vocabulary=table, progress=False)
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            scores = model.evaluate(split.test)
            rows.append((*errors, scores.rmse, scores.calibration.spread.ratio, seconds, cpu))
        bias, factorisation, ours, ratio, seconds, cpu = np.mean(rows, axis=0)
        print(
            f"{name:14} bias {bias:.4f}  factorisation {factorisation:.4f}  default {ours:.4f}  "
            f"squared error / variance {ratio:.2f} "
            f"({min(row[3] for row in rows):.2f} to {max(row[3] for row in rows):.2f})  "
            f"{seconds:.0f} s ({cpu:.0f} CPU s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
