"""The places of relevant items among a user's candidates; ties count against them.

An irrelevant candidate with the same score as a relevant one stands above it. Relevant ones with
the same score stand one after the other: none of them makes another's place worse than some order
of the two must.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def among_all(
    scores_bm, allowed_m, seen_offsets, seen_items, relevant_offsets, relevant_items,
    ranks_t, candidates_b, start, stop,
):  # fmt: skip
    """Ranks among all allowed items that the row has not seen, and how many candidates it has.

    Seen and relevant items are compressed rows; a relevant item is a candidate, allowed or not.
    `ranks_t` receives the ranks of row b, ascending, where `relevant_items` has its items.
    """
    members = scores_bm.shape[1]
    # What was marked for an earlier row is not marked for this one, so nothing is ever cleared.
    marked_for = np.full(members, -1, np.int64)
    for b in range(start, stop):
        score_m = scores_bm[b]
        for e in range(seen_offsets[b], seen_offsets[b + 1]):
            marked_for[seen_items[e]] = b
        first, last = relevant_offsets[b], relevant_offsets[b + 1]
        own = np.empty(last - first, scores_bm.dtype)
        for e in range(first, last):
            marked_for[relevant_items[e]] = b
            own[e - first] = score_m[relevant_items[e]]
        own.sort()
        between = np.zeros(own.size + 1, np.int64)
        candidates = own.size
        for m in range(members):
            if allowed_m[m] and marked_for[m] != b:
                between[_not_above(own, score_m[m])] += 1
                candidates += 1
        _ranks(between, ranks_t[first:last])
        candidates_b[b] = candidates


@njit(nogil=True, cache=True)
def among_candidates(scores_bdc, count_bd, relevant_offsets, ranks_dt, start, stop):
    """Ranks among the first `count_bd` candidates of each row and draw, relevant ones first.

    The candidates of row b begin with its relevant items in every draw; whatever follows them is
    irrelevant, even a repetition of one of them.
    """
    for b in range(start, stop):
        first, last = relevant_offsets[b], relevant_offsets[b + 1]
        relevant = last - first
        for d in range(scores_bdc.shape[1]):
            score_c = scores_bdc[b, d]
            own = np.sort(score_c[:relevant])
            between = np.zeros(relevant + 1, np.int64)
            for c in range(relevant, count_bd[b, d]):
                between[_not_above(own, score_c[c])] += 1
            _ranks(between, ranks_dt[d, first:last])


@njit(nogil=True, cache=True)
def _not_above(ascending, score):
    """How many of the ascending scores are at most this one: all those that it stands above."""
    low, high = 0, ascending.size
    while low < high:
        middle = (low + high) >> 1
        if ascending[middle] <= score:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def _ranks(between, ranks):
    """Ascending ranks, where between[i] irrelevant ones stand above just i of the relevant."""
    relevant = ranks.size
    above = 0
    for place in range(relevant):
        above += between[relevant - place]
        ranks[place] = above + place + 1
