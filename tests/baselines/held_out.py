"""What a baseline makes of ratings it has not seen."""

from __future__ import annotations

from functools import cache

from cfuica.baselines import RatingBaseline
from cfuica.data.splits import Split
from cfuica.data.synthetic import make_world
from cfuica.metrics.rating_metrics import rmse


def demo_rmse(baseline: RatingBaseline) -> float:
    """RMSE on the test set of the embedded demo world's fold 0, learned from the rest."""
    table, users, items, ratings, split = _demo()
    baseline.fit(
        users[split.train],
        items[split.train],
        ratings[split.train],
        n_users=table.users.size,
        n_items=table.item_ids.size,
    )
    return rmse(baseline.predict(users[split.test], items[split.test]), ratings[split.test])


@cache
def _demo():
    table = make_world().table
    users = table.users.encode(table.frame["user"])
    items = table.item_ids.encode(table.frame["item"])
    ratings = table.frame["rating"].to_numpy()
    return table, users, items, ratings, Split.random(table.n, folds=10, fold=0, valid=0.0)
