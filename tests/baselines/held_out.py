"""What a baseline makes of ratings it has not seen."""

from __future__ import annotations

from functools import cache

from cfuica.baselines import RatingBaseline
from cfuica.data.splits import Split
from cfuica.data.synthetic import make_world
from cfuica.metrics.rating_metrics import rmse


def demo_rmse(baseline: RatingBaseline) -> float:
    """RMSE on the test set of the embedded demo world's fold 0, learned from the rest."""
    train, test = _demo()
    predictions = baseline.fit(train).predict(test)["prediction"].to_numpy()
    return rmse(predictions, test.frame["rating"].to_numpy())


@cache
def _demo():
    table = make_world().table
    split = Split.random(table.n, folds=10, fold=0, valid=0.0)
    return table.take(split.train), table.take(split.test)
