"""Intervals of means over users, and of their differences: the percentile bootstrap.

A resample is as many users as there are, drawn with replacement. The interval is from the 2.5th to
the 97.5th percentile of the means of 1,000 resamples (Efron & Tibshirani 1993, chapter 13). The
same seed gives the same resamples for every metric and every system, so that differences of two
systems on the same users are paired.

Shape suffixes: u users, s statistics, r resamples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfuica.errors import DataError

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
