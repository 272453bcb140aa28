"""Evaluate a run on its test set, or compare two runs, with bootstrap intervals over users.

`evaluate_model` ranks with a run's own model, `evaluate_table` with another system's predictions.
`compare` tests two runs on the test set that they share.

Shape suffixes: u users, s statistics, r resamples, p rated pairs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError, SettingsError
from cfuica.evaluation.predictions import TableScorer
from cfuica.evaluation.protocols import RunVocabulary, protocol_of, ranking_test_for
from cfuica.evaluation.rating_errors import rating_test
from cfuica.metrics.intervals import Difference, difference, differences, resampled_means
from cfuica.metrics.ranking_metrics import RankingTest
from cfuica.models import recommender
from cfuica.models.ranking_evaluation import (
    CUTOFFS,
    RankingEvaluation,
    check_unobserved,
    evaluated,
)
from cfuica.models.recommender import Recommender, tasks
from cfuica.run_folder import RunFolder
from cfuica.settings import RatingSettings

if TYPE_CHECKING:
    from cfuica.inference.recommend import By


def task_of(folder: RunFolder) -> str:
    """The name of the task that a run was trained for, without loading its model."""
    for path in (folder.path / "run.json", folder.model / "model.json"):
        try:
            task = json.loads(path.read_text("utf-8")).get("task")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if task in tasks():
            return str(task)
    return RatingSettings.task


def evaluate_model(
    folder: RunFolder,
    model: Recommender,
    *,
    protocol: str | None,
    cutoffs: Sequence[int] = CUTOFFS,
    by: By | None = None,
    cold: int | None = None,
) -> RankingEvaluation:
    """Evaluate the rankings of a run's own model, by what `recommend` ranks by."""
    run_vocabulary = RunVocabulary.of_model(model)
    ranking_test, extra = ranking_test_for(protocol_of(folder, protocol), folder, run_vocabulary)
    seen, users_u = run_vocabulary.seen, ranking_test.users_u
    check_unobserved(
        ranking_test.relevant,
        seen.take(users_u),
        f"The model of {folder.path}",
        f"that --protocol {ranking_test.protocol} tests",
    )
    scorer = model.scorer(extra) if by is None else model.scorer(extra, by=by)
    return evaluated(
        ranking_test,
        scorer,
        seen=seen,
        n_items=run_vocabulary.items.size,
        user_ids=run_vocabulary.users.decode(users_u),
        cutoffs=cutoffs,
        cold=cold,
    )


def evaluate_table(
    folder: RunFolder,
    predictions: Interactions,
    *,
    protocol: str | None,
    cutoffs: Sequence[int] = CUTOFFS,
    cold: int | None = None,
) -> RankingEvaluation:
    """Evaluate the rankings of another system on the test of the run's own model."""
    run_vocabulary = RunVocabulary.of_run(folder)
    ranking_test, _ = ranking_test_for(protocol_of(folder, protocol), folder, run_vocabulary)
    scorer = TableScorer.of(predictions, run_vocabulary)
    if scorer.left_out == predictions.frame.height:
        user, item, _ = predictions.frame.row(0)
        raise DataError(
            f"{predictions.source} has no row of a user and an item that {folder.path} has: the "
            f"first is of user {user!r} and item {item!r}, the run has users such as "
            f"{run_vocabulary.users.ids[0]!r} and items such as "
            f"{run_vocabulary.items.ids[0]!r}; give the ids of the run's data."
        )
    notes = scorer.notes(ranking_test, predictions.source)
    return evaluated(
        ranking_test,
        scorer,
        seen=run_vocabulary.seen,
        n_items=run_vocabulary.items.size,
        user_ids=run_vocabulary.users.decode(ranking_test.users_u),
        cutoffs=cutoffs,
        cold=cold,
        notes=notes,
    )


@dataclass(frozen=True)
class Compared:
    """One metric of both runs, and first less second."""

    first: float
    second: float
    difference: Difference

    def as_json(self) -> dict[str, float | None]:
        gap = asdict(self.difference)
        return {"first": self.first, "second": self.second, "difference": gap.pop("value"), **gap}


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
    """Test both runs on the test set that they share; refuse runs that share none.

    With a protocol, runs that predict ratings are compared by their rankings.
    """
    kinds = [task_of(folder) for folder in (first, second)]
    if protocol is None:
        if kinds[0] != kinds[1]:
            raise SettingsError(
                f"{first.path} is for the task {kinds[0]} and {second.path} for {kinds[1]}; "
                f"compare their rankings with --protocol full, or runs of one task."
            )
        if tasks()[kinds[0]].model.predicts_ratings:
            return _compare_ratings(first, second)
    return _compare_rankings(first, second, protocol, cutoffs)


def _compare_rankings(
    first: RunFolder, second: RunFolder, protocol: str | None, cutoffs: Sequence[int]
) -> Comparison:
    protocol = protocol_of(first, protocol)
    if protocol_of(second, protocol) != protocol:  # refused before anything is loaded
        raise _different(first, second)
    evaluations, ids = [], []
    for folder in (first, second):
        model: Any = recommender.load(folder.path)
        evaluations.append(evaluate_model(folder, model, protocol=protocol, cutoffs=cutoffs))
        ids.append((model.users.ids, model.items.ids))
    same_ids = all(one.equals(other) for one, other in zip(*ids, strict=True))
    if not (same_ids and same_test(*(each.ranking_test for each in evaluations))):
        raise _different(first, second)
    one, other = (each.result for each in evaluations)
    of_users = differences(one.per_user, other.per_user)
    of_all = {name: Difference(value - other.of_all[name]) for name, value in one.of_all.items()}
    metrics = {
        name: Compared(one.value(name), other.value(name), each)
        for name, each in {**of_users, **of_all}.items()
    }
    n_users = evaluations[0].ranking_test.n_users
    return Comparison((str(first.path), str(second.path)), protocol, n_users, metrics)


def same_test(first: RankingTest, second: RankingTest) -> bool:
    """Whether both test the same; only then are their results comparable."""

    def arrays(test: RankingTest) -> list[Any]:
        rows = [each for each in (test.relevant, test.seen) if each is not None]
        compressed = [array for each in rows for array in (each.offsets, each.indices)]
        return [test.users_u, test.candidates_duc, test.catalogue_m, *compressed]

    one, other = arrays(first), arrays(second)
    same = len(one) == len(other) and all(map(np.array_equal, one, other))
    return same and first.protocol == second.protocol


def _compare_ratings(first: RunFolder, second: RunFolder) -> Comparison:
    """RMSE and MAE over all ratings of a resample of the users."""
    tests = [rating_test(folder) for folder in (first, second)]
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
