"""A random generator that runs through all its possible outcomes, each with its chance.

`expectation(f)` calls `f(rng)` once for every path of random choices and returns the exact mean of
what it gives. It offers those methods of `numpy.random.Generator` that the estimator uses, with
their laws written down here. A uniform time is replaced by Gauss-Legendre nodes: exact, because
the chances that follow from it are polynomials in it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NODES = 8  # exact for polynomials up to degree 15


class Enumerator:
    """Replays a path of choices, and takes the first option where the path ends."""

    def __init__(self, path: Sequence[int]) -> None:
        self.path = list(path)
        self.counts: list[int] = []
        self.chance = 1.0

    def _choose(self, options: Sequence[tuple[Any, float]]) -> Any:
        options = [option for option in options if option[1] > 0]
        place = len(self.counts)
        if place == len(self.path):
            self.path.append(0)
        self.counts.append(len(options))
        value, chance = options[self.path[place]]
        self.chance *= chance
        return value

    def integers(self, low: int, high: int) -> int:
        return self._choose([(value, 1 / (high - low)) for value in range(low, high)])

    def permutation(self, size: int) -> np.ndarray:
        chance = 1 / math.factorial(size)
        order = self._choose([(order, chance) for order in itertools.permutations(range(size))])
        return np.array(order, np.int64)

    def random(self) -> float:
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        return self._choose([((x + 1) / 2, w / 2) for x, w in zip(nodes, weights, strict=True)])

    def binomial(self, n: int, p: float) -> int:
        return self._choose(
            [(k, math.comb(n, k) * p**k * (1 - p) ** (n - k)) for k in range(n + 1)]
        )

    def multivariate_hypergeometric(
        self, colors: Sequence[int], nsample: int, method: str = "marginals"
    ) -> np.ndarray:
        draws = itertools.product(*(range(color + 1) for color in colors))
        ways = math.comb(sum(colors), nsample)
        return np.array(
            self._choose(
                [
                    (draw, math.prod(map(math.comb, colors, draw)) / ways)
                    for draw in draws
                    if sum(draw) == nsample
                ]
            )
        )


def outcomes(function: Callable[[Any], Any]) -> list[tuple[Any, float]]:
    """(result, chance) of every path."""
    found, path = [], []
    while True:
        rng = Enumerator(path)
        found.append((function(rng), rng.chance))
        path = rng.path
        # The next path: advance the last choice that has options left.
        while path and path[-1] + 1 == rng.counts[len(path) - 1]:
            path.pop()
        if not path:
            return found
        path[-1] += 1


def expectation(function: Callable[[Any], float]) -> float:
    results = outcomes(function)
    assert math.isclose(sum(chance for _, chance in results), 1.0, rel_tol=1e-9)
    return math.fsum(value * chance for value, chance in results)
