"""Metrics of several seeds of one training: each seed's, their mean and their spread."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfuica.evaluation.evaluate import evaluate_model
from cfuica.evaluation.rating_errors import rating_test
from cfuica.models.ranking_evaluation import CUTOFFS
from cfuica.models.recommender import load
from cfuica.run_folder import RunFolder


@dataclass(frozen=True)
class OverSeeds:
    """Each metric by name: its value for each seed, in the order of `seeds`."""

    seeds: list[int]
    metrics: dict[str, list[float]]

    def mean(self, metric: str) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.metrics[metric])

    def spread(self, metric: str) -> float | None:
        """The standard deviation over the seeds (n - 1); None of a single one."""
        return statistics.stdev(self.metrics[metric]) if len(self.seeds) > 1 else None

    def as_json(self) -> dict[str, Any]:
        """The seeds, and of each metric the mean, the spread and the values."""
        return {
            "seeds": self.seeds,
            "metrics": {
                name: {"mean": self.mean(name), "spread": self.spread(name), "values": values}
                for name, values in self.metrics.items()
            },
        }


def evaluate_seeds(
    runs: Mapping[int, RunFolder], *, protocol: str | None, cutoffs: Sequence[int] = CUTOFFS
) -> OverSeeds:
    """Evaluate the run of each seed on the test set that they share."""
    each = [_metrics(folder, protocol, cutoffs) for folder in runs.values()]
    common = [name for name in each[0] if all(name in metrics for metrics in each)]
    return OverSeeds(list(runs), {name: [metrics[name] for metrics in each] for name in common})


def _metrics(folder: RunFolder, protocol: str | None, cutoffs: Sequence[int]) -> dict[str, float]:
    model: Any = load(folder.path)
    if model.predicts_ratings and protocol is None:
        scores = model.evaluate(rating_test(folder))
        found = {name.lower(): value for name, value in scores.named.items()}
        if model.predicts_distributions:
            found["ece"] = scores.calibration.top_label_error
        return found
    evaluation = evaluate_model(folder, model, protocol=protocol, cutoffs=cutoffs)
    values = {name: each.value for name, each in evaluation.intervals.items()}
    return {name: value for name, value in values.items() if value is not None}
