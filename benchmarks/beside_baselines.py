"""A run of any size beside simple baselines that read the same interactions, on its own test set.

    .venv/bin/python benchmarks/beside_baselines.py RUN [--factors 20] [--l2 200] [--sweeps 15]
        [--users N]

Of a rating run: user + item bias and the biased matrix factorisation, fitted to all interactions
that the model is conditioned on (train + validation). Of a ranking run: popularity, ranking all
unseen items, for all users or for N of them, drawn at random. Prints the metric of each, and the
run less the baseline with a 95% interval over users. A bootstrap of the users is paired: both
systems are tested on the same resample.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import cfuica
from cfuica.evaluation.evaluate import task_of
from cfuica.evaluation.protocols import RunVocabulary, ranking_test_for
from cfuica.evaluation.rating_errors import rating_test
from cfuica.metrics.intervals import Difference, difference, differences, resampled_means
from cfuica.metrics.ranking_metrics import RankingTest, answer
from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.recommender import task_named
from cfuica.ops.runtime import peak_memory_gb
from cfuica.run_folder import RunFolder
from cfuica.training.alternating_least_squares import factorise

RESAMPLES = 400


def main() -> None:
    """Print a line for each system."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--l2", type=float, default=200.0)
    parser.add_argument("--sweeps", type=int, default=15)
    parser.add_argument("--users", type=int)
    given = parser.parse_args()
    folder, start = RunFolder.open(given.run), time.perf_counter()
    model = cfuica.load(given.run)
    print(f"loaded in {time.perf_counter() - start:.1f} s, {peak_memory_gb():.1f} GB", flush=True)
    is_rating = task_named(task_of(folder)).model.predicts_ratings
    for line in of_ratings(folder, model, given) if is_rating else of_ranking(folder, model, given):
        print(line, flush=True)


def of_ratings(folder: RunFolder, model: RatingModel, given: argparse.Namespace) -> Iterator[str]:
    """RMSE of the run and of each baseline."""
    test = rating_test(folder).rated()
    truth_p = test.frame["rating"].to_numpy()
    start = time.perf_counter()
    own_p = np.square(model.predict(test.frame)["prediction"].to_numpy() - truth_p)
    yield f"{folder.path}: {rmse(own_p):.4f} ({test.n:,} in {time.perf_counter() - start:.0f} s)"
    matrix, values_k = model.artifact.interactions, model.scale.values_array()
    users_p = model.users.encode(test.frame["user"])
    items_p = model.items.encode(test.frame["item"])
    for name, factors in (("bias", 0), (f"factorisation, rank {given.factors}", given.factors)):
        start = time.perf_counter()
        fitted = factorise(
            matrix.by_user,
            matrix.by_item,
            (values_k, values_k),
            factors=factors,
            l2=given.l2,
            bias_l2=5.0,
            sweeps=given.sweeps,
            steps=min(1 + factors, 5),
        )
        predicted_p = fitted.predict(users_p, items_p)
        squared_p = np.square(np.clip(predicted_p, values_k[0], values_k[-1]) - truth_p)
        gap = paired(users_p, own_p, squared_p)
        yield f"{name}: {rmse(squared_p):.4f} ({time.perf_counter() - start:.0f} s); {said(gap)}"


def rmse(squared_p: np.ndarray) -> float:
    """The root of the mean."""
    return float(np.sqrt(squared_p.mean()))


def paired(users_p: np.ndarray, first_p: np.ndarray, second_p: np.ndarray) -> Difference:
    """RMSE of the first less that of the second, over all ratings of a resample of the users."""
    _, number_p = np.unique(users_p, return_inverse=True)
    sums_us = np.column_stack(
        [np.bincount(number_p, weights=each) for each in (first_p, second_p, np.ones(len(users_p)))]
    )
    resampled_rs = resampled_means(sums_us, resamples=RESAMPLES)
    one_r, other_r = (np.sqrt(resampled_rs[:, s] / resampled_rs[:, 2]) for s in (0, 1))
    return difference(rmse(first_p) - rmse(second_p), one_r - other_r)


def of_ranking(
    folder: RunFolder, model: cfuica.RankingModel, given: argparse.Namespace
) -> Iterator[str]:
    """NDCG@10 and HR@10 of the run and of popularity."""
    vocabulary = RunVocabulary.of_model(model)
    ranking_test, extra = ranking_test_for("full", folder, vocabulary)
    if given.users is not None:
        ranking_test = sample(ranking_test, given.users)
    start = time.perf_counter()
    own = answer(ranking_test, model.scorer(extra), (10,))
    seconds = time.perf_counter() - start
    yield f"{folder.path}: ranked for {ranking_test.n_users:,} users in {seconds:.0f} s"
    popular = answer(ranking_test, Popularity(vocabulary), (10,))
    found = differences(own.per_user, popular.per_user)
    for name in ("hr@10", "ndcg@10"):
        values = f"{own.value(name):.4f}, popularity {popular.value(name):.4f}"
        yield f"{name}: {values}; {said(found[name])}"


def sample(ranking_test: RankingTest, users: int) -> RankingTest:
    """The test of so many users, the same ones at every call."""
    rng = np.random.default_rng(0)
    chosen = rng.permutation(ranking_test.n_users)[:users]
    chosen.sort()
    return replace(
        ranking_test,
        users_u=ranking_test.users_u[chosen],
        relevant=ranking_test.relevant.take(chosen),
        seen=ranking_test.seen.take(chosen),
    )


class Popularity:
    """Scores an item by its number of interactions."""

    def __init__(self, vocabulary: RunVocabulary) -> None:
        counts_m = np.bincount(vocabulary.seen.indices, minlength=vocabulary.items.size)
        self.counts_m = counts_m.astype(np.float32)

    def scores(self, users_b: np.ndarray) -> np.ndarray:
        """(B, M)"""
        return np.tile(self.counts_m, (len(users_b), 1))

    def candidate_scores(self, users_b: np.ndarray, items_bc: np.ndarray) -> np.ndarray:
        """(B, C)"""
        return self.counts_m[items_bc]


def said(gap: Difference) -> str:
    """The run less the baseline."""
    return f"difference {gap.value:+.4f} (95%: {gap.low:+.4f} to {gap.high:+.4f})"


if __name__ == "__main__":
    main()
