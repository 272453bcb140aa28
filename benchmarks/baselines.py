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
    users = table.users.encode(table.frame["user"])
    items = table.item_ids.encode(table.frame["item"])
    ratings = table.frame["rating"].to_numpy()
    rows = []
    for fold in given.folds:
        test = Split.random(table.n, folds=10, fold=fold).test
        rest = np.setdiff1d(np.arange(table.n), test)
        scores = {}
        for baseline in (GlobalMean(), ItemMean(), UserItemBias()):
            baseline.fit(
                users[rest],
                items[rest],
                ratings[rest],
                n_users=table.users.size,
                n_items=table.item_ids.size,
            )
            scores[baseline.name] = rmse(baseline.predict(users[test], items[test]), ratings[test])
        rows.append(scores)
        print(f"fold {fold}: " + "  ".join(f"{name} {v:.4f}" for name, v in scores.items()))
    means = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    print("mean:   " + "  ".join(f"{name} {value:.4f}" for name, value in means.items()))


if __name__ == "__main__":
    main()
