"""Compare two runs on the same test set, with bootstrap intervals of the difference over users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError, SettingsError
from cfuica.evaluation.evaluate import CUTOFFS, evaluate_model, task_of
from cfuica.evaluation.protocols import protocol_of
from cfuica.metrics.bootstrap import Difference, difference, differences, resampled_means
from cfuica.models import recommender
from cfuica.run_folder import RunFolder


@dataclass(frozen=True)
class Compared:
    """One metric of both runs, and first less second."""

    first: float
    second: float
    difference: Difference

    def as_json(self) -> dict[str, float | None]:
        difference = self.difference.as_json()
        return {
            "first": self.first,
            "second": self.second,
            "difference": difference.pop("value"),
            **difference,
        }


@dataclass(frozen=True)
class Comparison:
    """Every metric that both runs have."""

    runs: tuple[str, str]
    protocol: str | None  # None for ratings.
    users: int
    metrics: dict[str, Compared]

    def as_json(self) -> dict[str, Any]:
        """The metrics by name, with the runs, the protocol and the number of users."""
        return {
            "runs": list(self.runs),
            "protocol": self.protocol,
            "users": self.users,
            **{name: each.as_json() for name, each in self.metrics.items()},
        }


def compare(
    first: RunFolder,
    second: RunFolder,
    *,
    protocol: str | None = None,
    cutoffs: Sequence[int] = CUTOFFS,
) -> Comparison:
    """Test both runs on the test set that they share; refuse runs that share none."""
    tasks = [task_of(folder) for folder in (first, second)]
    if tasks[0] != tasks[1]:
        raise SettingsError(
            f"{first.path} is for the task {tasks[0]} and {second.path} for {tasks[1]}, so they "
            f"have no metric in common; compare runs of one task."
        )
    if recommender.task_named(tasks[0]).model.predicts_ratings:
        if protocol is not None:
            raise SettingsError(
                f"--protocol {protocol} is for runs that rank, but {first.path} predicts ratings; "
                f"leave it out."
            )
        return _compare_ratings(first, second)
    return _compare_rankings(first, second, protocol, cutoffs)


def _compare_rankings(
    first: RunFolder, second: RunFolder, protocol: str | None, cutoffs: Sequence[int]
) -> Comparison:
    protocol = protocol_of(first, protocol)
    protocol_of(second, protocol)  # refused before anything is loaded
    evaluations, ids = [], []
    for folder in (first, second):
        model: Any = recommender.load(folder.path)
        evaluations.append(evaluate_model(folder, model, protocol=protocol, cutoffs=cutoffs))
        ids.append((model.users.ids, model.items.ids))
    ranking_test = [each.ranking_test.sha256() for each in evaluations]
    same_ids = all(one.equals(other) for one, other in zip(*ids, strict=True))
    if ranking_test[0] != ranking_test[1] or not same_ids:
        raise _different(first, second)
    one, other = (each.result for each in evaluations)
    of_users = differences(one.per_user, other.per_user)
    of_all = {name: Difference(value - other.of_all[name]) for name, value in one.of_all.items()}
    metrics = {
        name: Compared(one.value(name), other.value(name), each)
        for name, each in {**of_users, **of_all}.items()
    }
    return Comparison((str(first.path), str(second.path)), protocol, one.n_users, metrics)


def _compare_ratings(first: RunFolder, second: RunFolder) -> Comparison:
    """RMSE and MAE over all ratings of a resample of the users."""
    tests = [folder.read_test() for folder in (first, second)]
    if tests[0].sha256() != tests[1].sha256():
        raise _different(first, second)
    test = tests[0].rated()
    users_p = Vocabulary.from_ids(test.frame["user"]).encode(test.frame["user"])
    # Per user: squared and absolute errors of both, and the number of ratings.
    columns_p = []
    for folder in (first, second):
        predicted: pl.DataFrame = recommender.load(folder.path).predict(test.frame)
        error_p = predicted["prediction"].to_numpy() - test.frame["rating"].to_numpy()
        columns_p += [np.square(error_p), np.abs(error_p)]
    columns_p.append(np.ones(test.n))
    sums_us: NDArray[np.float64] = np.column_stack(
        [np.bincount(users_p, weights=each).astype(np.float64) for each in columns_p]
    )
    all_s, resampled_rs = sums_us.mean(axis=0), resampled_means(sums_us)
    metrics = {}
    for place, (name, of_mean) in enumerate((("rmse", np.sqrt), ("mae", np.positive))):
        one, other = (of_mean(all_s[s] / all_s[4]) for s in (place, 2 + place))
        one_r, other_r = (
            of_mean(resampled_rs[:, s] / resampled_rs[:, 4]) for s in (place, 2 + place)
        )
        between = difference(float(one - other), one_r - other_r)
        metrics[name] = Compared(float(one), float(other), between)
    return Comparison((str(first.path), str(second.path)), None, len(sums_us), metrics)


def _different(first: RunFolder, second: RunFolder) -> DataError:
    return DataError(
        f"{first.path} and {second.path} are not tested on the same: their data or their splits "
        f"differ; train both on the same data with the same split."
    )
