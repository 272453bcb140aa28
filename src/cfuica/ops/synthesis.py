"""Drawing the interactions of synthetic users, as a compiled loop over users.

Every user has a stream of random numbers of its own, splitmix64 from a hash of the seed's key and
the user's number. So neither the blocks nor the threads change a draw.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64

from cfuica.ops.sampling import _mix

_GAMMA = 0x9E3779B97F4A7C15
# Beyond this share of the items, one random number for each item takes less time than proposals,
# most of which were chosen already.
_MANY = 0.2
_MEAN_GAP, _SHARE_OF_RESTS = 45.0, 0.15  # seconds between two ratings of a session; sessions


@njit(nogil=True, cache=True)
def _uniform(state):
    """The next number of the stream, strictly inside (0, 1)."""
    state[0] += uint64(_GAMMA)
    return (float(_mix(state[0]) >> uint64(11)) + 0.5) * 2.0**-53


@njit(nogil=True, cache=True)
def _taste(own, factors):
    total = 0.0
    for k in range(own.size):
        total += own[k] * factors[k]
    return total


@njit(nogil=True, cache=True)
def _choose(
    chosen, filled, n, user, own, weight, accept, other, factors, pull, choosy, seen, state
):
    """Fill `chosen[filled:n]` with distinct items, drawn one by one by weight times attraction.

    The attraction of a user to an item is the logistic function of `pull` times the taste, less
    `choosy`.
    Proposals come from the alias table (`accept`, `other`) of the weights. For many items it is a
    race of exponential times, the smallest of which are the same sample.
    """
    n_items = weight.size
    if n < _MANY * n_items:
        while filled < n:
            item = int(_uniform(state) * n_items)
            if _uniform(state) >= accept[item]:
                item = other[item]
            if seen[item] == user + 1:
                continue
            if _uniform(state) * (1.0 + math.exp(choosy - pull * _taste(own, factors[item]))) < 1.0:
                seen[item] = user + 1
                chosen[filled] = item
                filled += 1
        return
    times = np.empty(n_items)
    for item in range(n_items):
        attraction = 1.0 / (1.0 + math.exp(choosy - pull * _taste(own, factors[item])))
        arrival = -math.log(_uniform(state)) / (weight[item] * attraction)
        times[item] = np.inf if seen[item] == user + 1 else arrival
    if filled < n:
        last = np.partition(times, n - filled - 1)[n - filled - 1]
        for item in range(n_items):
            if times[item] <= last and filled < n:
                chosen[filled] = item
                filled += 1


@njit(nogil=True, cache=True)
def draw_users(
    first, offsets, certain_offsets, certain, weight, accept, other, bias_u, bias_i, taste_uf,
    factors_if, key, mean, noise, pull, choosy, begin, seconds, items, stars, expected, times,
    start, stop,
):  # fmt: skip
    """The interactions of the users `first + start` to `first + stop`, in temporal order of each.

    `offsets` are the rows of the block's users; `certain` the items that each user has in any case.
    `expected` becomes the mean of the distribution that a rating is drawn from: a normal one around
    the mean of the pair, clipped and rounded to 1 to 5 stars.
    """
    seen = np.zeros(weight.size, np.int32)
    state = np.zeros(1, np.uint64)
    for row in range(start, stop):
        user = first + row
        state[0] = _mix(uint64(key) ^ _mix(uint64(user + 1)))
        n = offsets[row + 1] - offsets[row]
        chosen = items[offsets[row] : offsets[row + 1]]
        filled = 0
        for at in range(certain_offsets[user], certain_offsets[user + 1]):
            chosen[filled] = certain[at]
            seen[certain[at]] = user + 1
            filled += 1
        own = taste_uf[user]
        _choose(
            chosen, filled, n, user, own, weight, accept, other, factors_if, pull, choosy, seen,
            state,
        )  # fmt: skip
        for place in range(n - 1, 0, -1):  # into a random order
            swap = int(_uniform(state) * (place + 1))
            chosen[place], chosen[swap] = chosen[swap], chosen[place]

        # Sessions of a few ratings, with rests in between that fill the time a user is active.
        entry = seconds * _uniform(state)
        active = (seconds - entry) * _uniform(state)
        rest = active / max(_SHARE_OF_RESTS * n, 1.0)
        elapsed = 0.0
        for place in range(n):
            at = offsets[row] + place
            if place > 0:
                elapsed += 1.0 - _MEAN_GAP * math.log(_uniform(state))
                if _uniform(state) < _SHARE_OF_RESTS:
                    elapsed -= rest * math.log(_uniform(state))
            times[at] = int(elapsed)
            item = chosen[place]
            centre = mean + bias_u[user] + bias_i[item] + _taste(own, factors_if[item])
            radius = math.sqrt(-2.0 * math.log(_uniform(state)))
            drawn = centre + noise * radius * math.cos(2.0 * math.pi * _uniform(state))
            stars[at] = round(min(max(drawn, 1.0), 5.0))
            first_moment = 1.0
            for edge in (1.5, 2.5, 3.5, 4.5):
                first_moment += 0.5 * (1.0 + math.erf((centre - edge) / (noise * math.sqrt(2.0))))
            expected[at] = first_moment
        # A user who would go on beyond the last day is faster.
        pace = min(1.0, (seconds - entry) / max(elapsed, 1.0))
        for at in range(offsets[row], offsets[row + 1]):
            times[at] = begin + int(entry + pace * times[at])
