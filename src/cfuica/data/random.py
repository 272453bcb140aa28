"""Reproducible random numbers, computed from a key instead of drawn from a stream.

Splits, initial values and samples use them. Number i of a key is splitmix64's i-th output (Steele,
Lea & Flood 2014). It is plain 64-bit integer arithmetic, so neither a numpy release nor the number
of threads changes it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: a bijection of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashes(n: int, *key: int) -> NDArray[np.uint64]:
    """(n,) 64-bit words of `key`: distinct within one key, unrelated between keys."""
    # The key is mixed word by word, because neighbouring splitmix64 seeds give shifted copies of
    # one sequence.
    base = 0
    for word in key:
        step = np.array([(base ^ (word & _MASK)) + _GAMMA & _MASK], dtype=np.uint64)
        base = int(_mix(step)[0])
    index = np.arange(1, n + 1, dtype=np.uint64)
    return _mix(index * np.uint64(_GAMMA) + np.uint64(base))


def permutation(n: int, *key: int) -> NDArray[np.int64]:
    """(n,) a permutation of range(n)."""
    return np.argsort(hashes(n, *key), kind="stable").astype(np.int64, copy=False)


def uniforms(n: int, *key: int) -> NDArray[np.float64]:
    """(n,) uniform numbers strictly inside (0, 1), 53 bits each."""
    bits = (hashes(n, *key) >> np.uint64(11)).astype(np.float64)
    return np.asarray((bits + 0.5) * 2.0**-53)


def normals(n: int, *key: int) -> NDArray[np.float64]:
    """(n,) standard normal numbers (Box-Muller)."""
    pairs = (n + 1) // 2
    u = uniforms(2 * pairs, *key)
    radius = np.sqrt(-2.0 * np.log(u[:pairs]))
    angle = 2.0 * np.pi * u[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]
