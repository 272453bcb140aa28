"""CF-UIcA beside the baselines on MovieLens 100K: the test set of fold 1 of ten.

    .venv/bin/python benchmarks/ml100k.py --out runs [--preset default] [--set key=value]
    .venv/bin/python benchmarks/ml100k.py --tune

Prints RMSE, MAE and the seconds of training of each. A baseline in closed form learns from train +
validation, which is what CF-UIcA reads at test time; one that learns in epochs is stopped by the
validation set. `--tune` is how the baselines' settings were chosen: on the validation set of fold
0, learning from its train set; no test set is read.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from pathlib import Path

from table1 import scores_of_fold

from cfuica.baselines import BiasedFactorisation, ItemNeighbours, RatingBaseline, UserItemBias
from cfuica.data.datasets import resolve
from cfuica.data.splits import Split
from cfuica.data.table import Interactions
from cfuica.metrics.rating_metrics import mae, rmse

DATA, FOLDS, TUNING_FOLD, TEST_FOLD, VALID = "ml-100k", 10, 0, 1, 0.05

GRIDS = {
    BiasedFactorisation: {"factors": (64, 128, 256), "l2": (0.02, 0.04, 0.06, 0.08, 0.1)},
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
            start = time.perf_counter()
            trained = kind(**settings).fit(train, valid=valid, vocabulary=table).trained
            assert trained is not None
            error, seconds = trained.last.best, time.perf_counter() - start
            assert error is not None
            tried.append((error, settings))
            print(f"{kind.name} {settings}: validation RMSE {error:.4f}, {seconds:.1f} s")
        error, settings = min(tried, key=lambda one: one[0])
        print(f"{kind.name}: best {error:.4f} with {settings}", flush=True)


def _compare(given: argparse.Namespace) -> None:
    table = resolve(DATA)
    split = Split.random(table.n, folds=FOLDS, fold=TEST_FOLD, valid=VALID)
    rows = [
        (baseline.name, *_scores(baseline, table, split))
        for baseline in (UserItemBias(), ItemNeighbours(), BiasedFactorisation())
    ]
    given.data, given.valid = DATA, str(VALID)
    ours = scores_of_fold(given, TEST_FOLD)
    rows.append((f"CF-UIcA {given.preset}", ours["rmse"], ours["mae"], ours["training_seconds"]))
    for name, root, absolute, seconds in rows:
        print(f"{name:28} RMSE {root:.4f}  MAE {absolute:.4f}  trained in {seconds:.1f} s")


def _scores(
    baseline: RatingBaseline, table: Interactions, split: Split
) -> tuple[float, float, float]:
    """RMSE and MAE on the test set, and the seconds of learning."""
    start = time.perf_counter()
    baseline.fit(table.take(split.train), valid=table.take(split.valid), vocabulary=table)
    seconds = time.perf_counter() - start
    test = table.take(split.test)
    predictions = baseline.predict(test)["prediction"].to_numpy()
    truth = test.frame["rating"].to_numpy()
    return rmse(predictions, truth), mae(predictions, truth), seconds


if __name__ == "__main__":
    main()
