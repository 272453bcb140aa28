"""The errors of predicted ratings, by user, and of warm and cold users and items.

`rating_test` is the test set of a run as a test of ratings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.splits import FULL
from cfuica.data.table import Interactions
from cfuica.evaluation.protocols import RunVocabulary
from cfuica.metrics.rating_metrics import SMALLEST_PROBABILITY
from cfuica.models.ranking_evaluation import WarmAndCold
from cfuica.run_folder import RunFolder

if TYPE_CHECKING:
    from cfuica.models.co_autoregressive import RatingModel
    from cfuica.models.recommender import Recommender


def rating_test(folder: RunFolder) -> Interactions:
    """The test set of a run as a test of ratings: without what only ranking protocols test."""
    test = folder.read_test()
    if FULL not in test.frame.columns:
        return test
    return replace(test, frame=test.frame.filter(pl.col(FULL)).drop(FULL))


@dataclass(frozen=True, eq=False)
class RatingErrors:
    """The errors of predicted ratings: user, item, squared, absolute and, of distributions, nll."""

    pairs: pl.DataFrame

    @classmethod
    def of(
        cls,
        test: Interactions,
        prediction_p: NDArray[np.floating],
        nll_p: NDArray[np.float64] | None = None,
    ) -> RatingErrors:
        """Of predictions of the pairs of a test set, which all have a rating."""
        error_p = prediction_p - test.frame["rating"].to_numpy()
        columns = {"squared": np.square(error_p), "absolute": np.abs(error_p)}
        if nll_p is not None:
            columns["nll"] = nll_p
        return cls(test.frame.select("user", "item").with_columns(**columns))

    @classmethod
    def of_model(cls, test: Interactions, model: Recommender) -> RatingErrors:
        """Of the distributions that a model predicts, or of its ratings alone."""
        if not model.predicts_distributions:
            return cls.of(test, model.predict(test)["prediction"].to_numpy())
        scale = cast("RatingModel", model).scale
        probabilities_pk = model.predict_proba(test)
        observed_p = probabilities_pk[np.arange(test.n), test.labels(scale)].astype(np.float64)
        nll_p = -np.log(np.maximum(observed_p, SMALLEST_PROBABILITY))
        return cls.of(test, probabilities_pk.astype(np.float64) @ scale.values_array(), nll_p)

    @property
    def metrics(self) -> dict[str, float]:
        """RMSE, MAE and, of distributions, NLL."""
        return self.pairs.select(self._means).row(0, named=True)

    @property
    def per_user(self) -> pl.DataFrame:
        """user, n (how many ratings) and each metric."""
        users = self.pairs.group_by("user", maintain_order=True)
        return users.agg(pl.len().alias("n"), *self._means)

    def warm_and_cold(self, run_vocabulary: RunVocabulary, cold: int) -> WarmAndCold:
        """The metrics of warm and of cold users and items: a cold one has fewer than `cold`
        interactions that the model knows."""
        counts = {
            "users": run_vocabulary.seen.sizes,
            "items": np.bincount(run_vocabulary.seen.indices, minlength=run_vocabulary.items.size),
        }
        found: WarmAndCold = {}
        for axis, vocabulary in (("users", run_vocabulary.users), ("items", run_vocabulary.items)):
            index = vocabulary.encode(self.pairs[axis[:-1]])
            is_cold = pl.Series(np.append(counts[axis], 0)[index] < cold)  # -1: an unknown one
            found[axis] = {}
            for name, mask in (("warm", ~is_cold), ("cold", is_cold)):
                own = self.pairs.filter(mask)
                metrics = RatingErrors(own).metrics if own.height else {}
                found[axis][name] = {"n": own.height, **metrics}
        return found

    @property
    def _means(self) -> list[pl.Expr]:
        rmse, mae = pl.col("squared").mean().sqrt(), pl.col("absolute").mean()
        nll = [pl.col("nll").mean()] if "nll" in self.pairs.columns else []
        return [rmse.alias("rmse"), mae.alias("mae"), *nll]
