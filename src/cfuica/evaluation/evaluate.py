"""Evaluate a run on its test set, or compare two runs, with bootstrap intervals over users.

`evaluate_model` ranks with a run's own model, `evaluate_table` with another system's predictions.
`compare` tests two runs on the test set that they share.

Intervals are of means over users, and of their differences: the percentile bootstrap. A resample is
as many users as there are, drawn with replacement. The interval is from the 2.5th to the 97.5th
percentile of the means of 1,000 resamples (Efron & Tibshirani 1993, chapter 13). The same seed
gives the same resamples for every metric and every system, so that differences of two systems on
the same users are paired.

Shape suffixes: u users, s statistics, r resamples, p rated pairs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError, SettingsError
from cfuica.evaluation.predictions import TableScorer
from cfuica.evaluation.protocols import RunVocabulary, protocol_of, ranking_test_for
from cfuica.metrics.ranking_metrics import Popularity, RankingResult, RankingTest, Scorer, answer
from cfuica.models import recommender
from cfuica.models.co_autoregressive import RankingModel
from cfuica.models.recommender import tasks
from cfuica.run_folder import RunFolder
from cfuica.settings import RatingSettings

RESAMPLES, LEVEL = 1000, 0.95
# Draws held at a time: this bounds the memory, however many users there are.
_DRAWS = 1 << 22


@dataclass(frozen=True)
class Interval:
    """A value and its 95% confidence interval; None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference(Interval):
    """First less second."""

    # The share of the resamples whose difference has not the sign of the value (0 has neither).
    other_side: float | None = None


def resampled_means(
    values_us: NDArray[np.float64], *, seed: int = 0, resamples: int = RESAMPLES
) -> NDArray[np.float64]:
    """(R, S) the mean of each column over each resample of the rows."""
    users = len(values_us)
    if users == 0:
        raise DataError("There is nobody to average over: no users were given.")
    random = np.random.Generator(np.random.PCG64(seed))
    size = max(1, _DRAWS // users)
    blocks = []
    for start in range(0, resamples, size):
        rows = min(size, resamples - start)
        drawn_ru = random.integers(0, users, (rows, users))
        # How often each user was drawn: the means are then one matrix product.
        drawn_ru += np.arange(rows)[:, None] * users
        times_ru = np.bincount(drawn_ru.ravel(), minlength=rows * users).reshape(rows, users)
        blocks.append(times_ru.astype(np.float64) @ values_us / users)
    return np.concatenate(blocks)


def difference(value: float, resampled_r: NDArray[np.float64]) -> Difference:
    """A difference with the percentiles of its resamples, and how many contradict its sign."""
    low, high = _percentiles(resampled_r)
    contradict = resampled_r * np.sign(value) <= 0.0
    return Difference(value, low, high, float(contradict.mean()))


def intervals(
    values: dict[str, NDArray[np.float64]], *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Interval]:
    """The interval of the mean of each metric's (U,) values."""
    values_us = np.column_stack(list(values.values()))
    resampled_rs = resampled_means(values_us, seed=seed, resamples=resamples)
    return {
        name: Interval(float(values[name].mean()), *_percentiles(resampled_rs[:, s]))
        for s, name in enumerate(values)
    }


def differences(
    first: dict[str, NDArray[np.float64]], second: dict[str, NDArray[np.float64]]
) -> dict[str, Difference]:
    """First less second of the mean of each metric that both have, on the same users."""
    paired = {name: first[name] - second[name] for name in first if name in second}
    resampled_rs = resampled_means(np.column_stack(list(paired.values())))
    return {
        name: difference(float(paired[name].mean()), resampled_rs[:, s])
        for s, name in enumerate(paired)
    }


def _percentiles(resampled_r: NDArray[np.float64]) -> tuple[float, float]:
    outside = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(resampled_r, [outside, 1.0 - outside])
    return float(low), float(high)


CUTOFFS = (5, 10, 20)


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


@dataclass(frozen=True, eq=False)
class RankingEvaluation:
    """The ranking metrics of a system on one test."""

    ranking_test: RankingTest
    result: RankingResult
    intervals: dict[str, Interval]
    seconds: float  # Scoring, ranking and measuring; not loading, not the intervals.
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        test = self.ranking_test
        metrics = (f"{name} {each.value:.4f}" for name, each in list(self.intervals.items())[:6])
        return f"RankingEvaluation({test.protocol}: {test.n_users:,} users, {', '.join(metrics)})"

    def as_json(self) -> dict[str, Any]:
        """The metrics by name, with the protocol and the number of users."""
        return {
            "protocol": self.ranking_test.protocol,
            "users": self.ranking_test.n_users,
            "seconds": self.seconds,
            **{name: asdict(each) for name, each in self.intervals.items()},
        }


def evaluate_model(
    folder: RunFolder,
    model: RankingModel,
    *,
    protocol: str | None,
    cutoffs: Sequence[int] = CUTOFFS,
) -> RankingEvaluation:
    """Evaluate the rankings of a run's own model."""
    run_vocabulary = RunVocabulary.of_model(model)
    ranking_test, extra = ranking_test_for(protocol_of(folder, protocol), folder, run_vocabulary)
    _check_unobserved(ranking_test, folder, run_vocabulary)
    return _evaluated(ranking_test, model.scorer(extra), run_vocabulary, cutoffs)


def evaluate_table(
    folder: RunFolder,
    predictions: Interactions,
    *,
    protocol: str | None,
    cutoffs: Sequence[int] = CUTOFFS,
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
    return _evaluated(ranking_test, scorer, run_vocabulary, cutoffs, notes)


def _check_unobserved(
    ranking_test: RankingTest, folder: RunFolder, run_vocabulary: RunVocabulary
) -> None:
    """Refuse a model that has observed interactions of the test set."""
    relevant = ranking_test.relevant
    unobserved = relevant.without(run_vocabulary.seen.take(ranking_test.users_u))
    observed = relevant.indices.size - unobserved.indices.size
    if observed:
        raise DataError(
            f"The model of {folder.path} has observed {observed:,} of the "
            f"{relevant.indices.size:,} interactions that --protocol {ranking_test.protocol} "
            f"tests, so they test nothing any more; evaluate before it observes them (cfuica "
            f"observe --out writes another model), or train again."
        )


def _evaluated(
    ranking_test: RankingTest,
    scorer: Scorer,
    run_vocabulary: RunVocabulary,
    cutoffs: Sequence[int],
    notes: tuple[str, ...] = (),
) -> RankingEvaluation:
    popularity = Popularity.of(run_vocabulary.seen, run_vocabulary.items.size)
    # One user first: compiling the kernels is not part of ranking.
    answer(of_first_user(ranking_test), scorer, cutoffs, popularity=popularity)
    start = time.perf_counter()
    result = answer(ranking_test, scorer, cutoffs, popularity=popularity)
    seconds = time.perf_counter() - start
    # Coverage has no interval: a resample of the users has fewer different lists, so its coverage
    # is always lower.
    alone = {name: Interval(value) for name, value in result.of_all.items()}
    found = {**intervals(result.per_user), **alone}
    return RankingEvaluation(ranking_test, result, found, seconds, notes)


def of_first_user(ranking_test: RankingTest) -> RankingTest:
    """The test of the first user alone."""
    seen, candidates_duc = ranking_test.seen, ranking_test.candidates_duc
    row = np.zeros(1, np.int64)
    return replace(
        ranking_test,
        users_u=ranking_test.users_u[:1],
        relevant=ranking_test.relevant.take(row),
        candidates_duc=None if candidates_duc is None else candidates_duc[:, :1],
        seen=None if seen is None else seen.take(row),
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
    """Test both runs on the test set that they share; refuse runs that share none."""
    kinds = [task_of(folder) for folder in (first, second)]
    if kinds[0] != kinds[1]:
        raise SettingsError(
            f"{first.path} is for the task {kinds[0]} and {second.path} for {kinds[1]}, so they "
            f"have no metric in common; compare runs of one task."
        )
    if tasks()[kinds[0]].model.predicts_ratings:
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
