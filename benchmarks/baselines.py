"""Test RMSE of the simple baselines under Table 1's protocol, fold by fold.

    .venv/bin/python benchmarks/baselines.py [--data ml-1m] [--folds 1 2 3]

They learn from train + validation, which is what CF-UIcA reads at test time.
"""

from __future__ import annotations

import argparse

import numpy as np

from cfuica.baselines.means import GlobalMean, ItemMean, UserItemBias
from cfuica.data.datasets import resolve
from cfuica.data.splits import Split
from cfuica.metrics.rating_metrics import rmse


def main() -> None:
    """Print a line per fold and the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--folds", nargs="+", type=int, default=list(range(10)))
    given = parser.parse_args()
    table = resolve(given.data)
    found = []
    for fold in given.folds:
        rows = Split.random(table.n, folds=10, fold=fold).test
        test, rest = table.take(rows), table.take(np.setdiff1d(np.arange(table.n), rows))
        scores = {}
        for baseline in (GlobalMean(), ItemMean(), UserItemBias()):
            predictions = baseline.fit(rest).predict(test)["prediction"].to_numpy()
            scores[baseline.name] = rmse(predictions, test.frame["rating"].to_numpy())
        found.append(scores)
        print(f"fold {fold}: " + "  ".join(f"{name} {v:.4f}" for name, v in scores.items()))
    means = {name: sum(row[name] for row in found) / len(found) for name in found[0]}
    print("mean:   " + "  ".join(f"{name} {value:.4f}" for name, value in means.items()))


if __name__ == "__main__":
    main()
