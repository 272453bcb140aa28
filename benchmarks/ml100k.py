"""CF-UIcA beside the baselines on MovieLens 100K: the test set of fold 1 of ten.

    .venv/bin/python benchmarks/ml100k.py --out runs [--preset default] [--set key=value]
    .venv/bin/python benchmarks/ml100k.py --tune

Prints RMSE, MAE and the seconds of training of each. The baselines learn from train + validation,
which is what CF-UIcA reads at test time. `--tune` is how the baselines' settings were chosen: on
the validation set of fold 0, learning from its train set; no test set is read.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from pathlib import Path

import numpy as np
from table1 import scores_of_fold

from cfuica.baselines import BiasedFactorisation, ItemNeighbours, RatingBaseline, UserItemBias
from cfuica.data.datasets import resolve
from cfuica.data.splits import Split
from cfuica.data.table import Interactions
from cfuica.metrics.rating_metrics import mae, rmse

DATA, FOLDS, TUNING_FOLD, TEST_FOLD, VALID = "ml-100k", 10, 0, 1, 0.05

GRIDS = {
    BiasedFactorisation: {"factors": (5, 10, 20, 40), "l2": (8.0, 10.0, 12.0, 15.0, 20.0)},
    ItemNeighbours: {"neighbours": (20, 40, 80), "shrinkage": (50.0, 100.0, 200.0, 400.0, 800.0)},
}


def main() -> None:
    """Compare, or tune."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--preset", default="default")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    given = parser.parse_args()
    if given.tune:
        _tune()
    else:
        _compare(given)


def _tune() -> None:
    table = resolve(DATA)
    split = Split.random(table.n, folds=FOLDS, fold=TUNING_FOLD, valid=VALID)
    train, valid = table.take(split.train), table.take(split.valid)
    for kind, grid in GRIDS.items():
        tried = []
        for values in product(*grid.values()):
            settings = dict(zip(grid, values, strict=True))
            error, _, seconds = _scores(kind(**settings), train, valid)
            tried.append((error, settings))
            print(f"{kind.name} {settings}: validation RMSE {error:.4f}, {seconds:.1f} s")
        error, settings = min(tried, key=lambda one: one[0])
        print(f"{kind.name}: best {error:.4f} with {settings}", flush=True)


def _compare(given: argparse.Namespace) -> None:
    table = resolve(DATA)
    split = Split.random(table.n, folds=FOLDS, fold=TEST_FOLD, valid=VALID)
    warm, test = table.take(np.union1d(split.train, split.valid)), table.take(split.test)
    rows = [
        (baseline.name, *_scores(baseline, warm, test))
        for baseline in (UserItemBias(), ItemNeighbours(), BiasedFactorisation())
    ]
    given.data, given.valid = DATA, str(VALID)
    ours = scores_of_fold(given, TEST_FOLD)
    rows.append((f"CF-UIcA {given.preset}", ours["rmse"], ours["mae"], ours["training_seconds"]))
    for name, root, absolute, seconds in rows:
        print(f"{name:28} RMSE {root:.4f}  MAE {absolute:.4f}  trained in {seconds:.1f} s")


def _scores(
    baseline: RatingBaseline, warm: Interactions, test: Interactions
) -> tuple[float, float, float]:
    """RMSE and MAE on a test set, and the seconds of learning from `warm`."""
    start = time.perf_counter()
    baseline.fit(warm)
    seconds = time.perf_counter() - start
    predictions = baseline.predict(test)["prediction"].to_numpy()
    truth = test.frame["rating"].to_numpy()
    return rmse(predictions, truth), mae(predictions, truth), seconds


if __name__ == "__main__":
    main()
