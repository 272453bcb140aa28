"""Paired differences of systems on the same users, with 95% intervals over users.

A system may be measured on several folds or with several seeds: its score is then the mean over
these, and every resample draws the users once for all of them.

Shape suffixes: u users, s statistics, r resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.metrics.intervals import Difference, difference, resampled_means

Key = tuple[int | None, int]  # Fold, of ratings, and seed.
Frames = Mapping[tuple[str, Key], pl.DataFrame]  # user, n and metrics, by system and key.


class Paired:
    """The scores of systems on all users and on resamples of them."""

    def __init__(self, frames: Frames, metrics: Sequence[str]) -> None:
        """RMSE is over the ratings of all users, any other metric a mean over users."""
        frames = {place: frame for place, frame in frames.items() if frame.height}
        all_users = pl.concat([frame.select("user") for frame in frames.values()])
        users = all_users.unique().sort("user")
        self._keys: dict[str, set[Key]] = {}
        self._column: dict[tuple[str, Key, str], int] = {}
        columns_su: list[NDArray[np.float64]] = []
        for (name, key), frame in frames.items():
            self._keys.setdefault(name, set()).add(key)
            # Who has no rating in a fold has no weight there.
            of_users = users.join(frame, on="user", how="left", maintain_order="left").fill_null(0)
            n_u = of_users["n"].to_numpy().astype(np.float64)
            for metric in ("n", *metrics):
                self._column[name, key, metric] = len(columns_su)
                value_u = of_users[metric].to_numpy().astype(np.float64)
                columns_su.append(value_u**2 * n_u if metric == "rmse" else value_u)
        values_us = np.column_stack(columns_su)
        # The first row is all users themselves.
        self._means_rs = np.vstack([values_us.mean(0), resampled_means(values_us)])

    def difference(self, metric: str, first: str, second: str) -> Difference | None:
        """First less second, over the folds and seeds that both have; None where there are none."""
        common = self._keys.get(first, set()) & self._keys.get(second, set())
        own = {key for key in common if self._same_test(key, first, second)}
        if not own:
            return None
        one_r, other_r = (
            np.mean([self._score(name, key, metric) for key in own], axis=0)
            for name in (first, second)
        )
        gap_r = one_r - other_r
        return difference(float(gap_r[0]), gap_r[1:])

    def _same_test(self, key: Key, first: str, second: str) -> bool:
        one, other = (self._means_rs[:, self._column[name, key, "n"]] for name in (first, second))
        return np.array_equal(one, other)

    def _score(self, name: str, key: Key, metric: str) -> NDArray[np.float64]:
        """(1 + R) that of all users, and of each resample."""
        mean_r: NDArray[np.float64] = self._means_rs[:, self._column[name, key, metric]]
        if metric != "rmse":
            return mean_r
        n_r = self._means_rs[:, self._column[name, key, "n"]]
        # Of a few users, a resample may have nobody with a rating.
        mean_r = np.divide(mean_r, n_r, out=np.zeros_like(mean_r), where=n_r > 0)
        return np.asarray(np.sqrt(mean_r))
