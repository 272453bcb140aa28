"""The rankers of the library `implicit`, to be searched, trained and asked like ours.

Histories are matrices (users, items) of ones. Shape suffixes: b users of a block, c candidates of
a user, m all items, f factors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfuica.metrics.ranking_metrics import Scorer

try:
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from implicit.nearest_neighbours import BM25Recommender, CosineRecommender, TFIDFRecommender
    from scipy.sparse import csr_matrix
except ImportError as error:
    raise SystemExit(
        f"implicit, whose systems these are, cannot be imported ({error}); install it with "
        f"pip install 'cfuica[bench]'"
    ) from None

# Rows of all items held at a time where only candidates are asked for.
_BLOCK = 256

_WEIGHTINGS = {"cosine": CosineRecommender, "TF-IDF": TFIDFRecommender, "BM25": BM25Recommender}

RatingSettings = dict[str, Any]


@dataclass(frozen=True)
class System:
    """A kind of model of implicit's."""

    name: str
    new: Callable[[RatingSettings, int], Any]
    """A model that is not fitted, of settings and a seed."""
    scorer: Callable[[Any, csr_matrix], Scorer]
    """What a fitted model says of users with these histories."""
    tries: Callable[[np.random.Generator, int], Iterator[RatingSettings]]
    """At least so many settings to try, where there are; a good guess first."""
    rounds: tuple[int, int] = (0, 0)
    """Iterations between two validations, and the most there may be; none where the model is
    fitted in one go."""


def fit(model: Any, histories: csr_matrix) -> Any:
    """Fit, or go on fitting, without a word."""
    with warnings.catch_warnings():
        # Its neighbours hand themselves a matrix of another form.
        warnings.filterwarnings("ignore", "Method expects CSR input")
        model.fit(histories, show_progress=False)
    return model


@dataclass(frozen=True, eq=False)
class BlockScorer:
    """A `Scorer` by a function from (B,) users to (B, M) scores."""

    of_users: Callable[[np.ndarray], np.ndarray]

    def scores(self, users_b: np.ndarray) -> np.ndarray:
        """(B, M)"""
        return np.asarray(self.of_users(users_b), np.float32)

    def candidate_scores(self, users_b: np.ndarray, items_bc: np.ndarray) -> np.ndarray:
        """(B, C)"""
        scores_bc = np.empty(items_bc.shape, np.float32)
        for start in range(0, users_b.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            scores_bm = self.scores(users_b[part])
            scores_bc[part] = np.take_along_axis(scores_bm, items_bc[part].astype(np.int64), axis=1)
        return scores_bc


class Popularity:
    """Every user is offered what most users did."""

    def fit(self, histories: csr_matrix, show_progress: bool) -> None:
        self.count_m = np.asarray(histories.sum(axis=0)).ravel()


def _popularity_scorer(model: Popularity, histories: csr_matrix) -> Scorer:
    return BlockScorer(lambda users_b: np.tile(model.count_m, (users_b.size, 1)))


def _new_als(settings: RatingSettings, seed: int) -> Any:
    return AlternatingLeastSquares(**settings, use_gpu=False, random_state=seed)


def _als_scorer(model: Any, histories: csr_matrix) -> Scorer:
    """With the users' factors solved from their histories, given the items' factors."""
    everybody = np.arange(histories.shape[0])
    factors_uf = model.recalculate_user(everybody, histories)
    return BlockScorer(lambda users_b: factors_uf[users_b] @ model.item_factors.T)


def _als_tries(random: np.random.Generator, n: int) -> Iterator[RatingSettings]:
    yield {"factors": 64, "regularization": 0.01, "alpha": 1.0}
    for factors, regularization, alpha in _spread(random, n - 1):
        yield {
            "factors": (32, 64, 128, 256)[int(4 * factors)],
            "regularization": _between(0.01, 100, regularization),
            "alpha": _between(1, 40, alpha),
        }


def _new_bpr(settings: RatingSettings, seed: int) -> Any:
    # A generator goes on where it was when fitting goes on. One thread: several overwrite each
    # other's steps, so that no two trainings would be the same.
    random = np.random.default_rng(seed)
    return BayesianPersonalizedRanking(
        **settings, use_gpu=False, num_threads=1, random_state=random
    )


def _bpr_scorer(model: Any, histories: csr_matrix) -> Scorer:
    """It learns factors for each user, and has no way to read a history."""
    return BlockScorer(lambda users_b: model.user_factors[users_b] @ model.item_factors.T)


def _bpr_tries(random: np.random.Generator, n: int) -> Iterator[RatingSettings]:
    yield {"factors": 64, "learning_rate": 0.02, "regularization": 0.01}
    for factors, learning_rate, regularization in _spread(random, n - 1):
        yield {
            "factors": (16, 32, 64, 128)[int(4 * factors)],
            "learning_rate": _between(0.005, 0.1, learning_rate),
            "regularization": _between(0.001, 0.1, regularization),
        }


def _new_neighbours(settings: RatingSettings, seed: int) -> Any:
    return _WEIGHTINGS[settings["weighting"]](K=settings["K"])


def _neighbours_scorer(model: Any, histories: csr_matrix) -> Scorer:
    similarity_mm = model.similarity.astype(np.float32)
    return BlockScorer(lambda users_b: (histories[users_b] @ similarity_mm).toarray())


def _neighbours_tries(random: np.random.Generator, n: int) -> Iterator[RatingSettings]:
    for k in (20, 5, 10, 50, 100, 200, 500, 1000):
        for weighting in _WEIGHTINGS:
            yield {"weighting": weighting, "K": k}


def _spread(random: np.random.Generator, n: int) -> np.ndarray:
    """(n, 3) random points of the unit cube, each side covered evenly (a Latin hypercube)."""
    return np.stack([(random.permutation(n) + random.random(n)) / n for _ in range(3)], axis=1)


def _between(low: float, high: float, place: float) -> float:
    """At a place from 0 to 1 in logarithms, to two digits, which is all that a search can tell."""
    return float(f"{low * (high / low) ** place:.1e}")


POPULARITY = System(
    "popularity",
    lambda settings, seed: Popularity(),
    _popularity_scorer,
    lambda random, n: iter([{}]),
)
NEIGHBOURS = System("item-kNN", _new_neighbours, _neighbours_scorer, _neighbours_tries)
ALS = System("ALS", _new_als, _als_scorer, _als_tries, rounds=(10, 30))
BPR = System("BPR", _new_bpr, _bpr_scorer, _bpr_tries, rounds=(20, 200))
