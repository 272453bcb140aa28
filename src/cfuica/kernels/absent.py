"""Random items that a user has not done."""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from cfuica.kernels.draw import _mix


@njit(nogil=True, cache=True)
def draw(offsets, members, n_members, keys_bd, out_bdc, start, stop):
    """C distinct members that are not in row b (compressed rows), uniformly; for each draw d.

    Number i of a draw is splitmix64's i-th output for its key. A row that misses fewer than C
    members gets all of those, ascending, and -1 behind them.
    """
    wanted = out_bdc.shape[2]
    # A member is taken for the draw whose number it is marked with, and absent below all of them.
    taken = np.full(n_members, -1, np.int64)
    stamp = 0
    for b in range(start, stop):
        for d in range(out_bdc.shape[1]):
            stamp += 1
            own = 0
            for e in range(offsets[b], offsets[b + 1]):
                if taken[members[e]] != stamp:
                    taken[members[e]] = stamp
                    own += 1
            if n_members - own <= wanted:
                count = 0
                for member in range(n_members):
                    if taken[member] != stamp:
                        out_bdc[b, d, count] = member
                        count += 1
                out_bdc[b, d, count:] = -1
                continue
            count = 0
            state = keys_bd[b, d]
            while count < wanted:
                state += uint64(0x9E3779B97F4A7C15)
                # The remainder favours no member by more than one in 2^64 / n.
                member = np.int64(_mix(state) % uint64(n_members))
                if taken[member] != stamp:
                    taken[member] = stamp
                    out_bdc[b, d, count] = member
                    count += 1
