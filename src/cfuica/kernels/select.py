"""The best of each row of scores, without sorting the rows."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def best(
    scores_bm, candidates, seen_offsets, seen_members, group_offsets, groups, limits_g,
    members_bn, count_b, start, stop,
):  # fmt: skip
    """The first n of each row's candidates, best score first, equal ones in their own order.

    Walks down the ranking and passes over a member that the row has seen (compressed rows), one
    whose score is no number, and one of whose groups (compressed rows by member) already has its
    limit. `members_bn` receives `count_b` members in each row.
    """
    n = members_bn.shape[1]
    # A heap is built in linear time, and a step down the ranking costs only its height.
    heap = np.empty(len(candidates), np.int32)
    is_seen = np.zeros(scores_bm.shape[1], np.bool_)
    taken_g = np.zeros(len(limits_g), np.int64)
    for b in range(start, stop):
        score_m = scores_bm[b]
        for e in range(seen_offsets[b], seen_offsets[b + 1]):
            is_seen[seen_members[e]] = True
        size = 0
        for member in candidates:
            if not is_seen[member] and not np.isnan(score_m[member]):
                heap[size] = member
                size += 1
        for e in range(seen_offsets[b], seen_offsets[b + 1]):
            is_seen[seen_members[e]] = False
        for root in range(size // 2 - 1, -1, -1):
            _sink(heap, size, root, score_m)
        count = 0
        while count < n and size > 0:
            member = heap[0]
            size -= 1
            heap[0] = heap[size]
            _sink(heap, size, 0, score_m)
            first, last = group_offsets[member], group_offsets[member + 1]
            full = False
            for e in range(first, last):
                full |= taken_g[groups[e]] >= limits_g[groups[e]]
            if full:
                continue
            for e in range(first, last):
                taken_g[groups[e]] += 1
            members_bn[b, count] = member
            count += 1
        count_b[b] = count
        for place in range(count):
            member = members_bn[b, place]
            for e in range(group_offsets[member], group_offsets[member + 1]):
                taken_g[groups[e]] = 0


@njit(nogil=True, cache=True)
def _sink(heap, size, place, score_m):
    """Move the entry at `place` down until no entry below it comes before it."""
    if place >= size:
        return
    member = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap[child + 1], heap[child], score_m):
            child += 1
        if not _before(heap[child], member, score_m):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = member


@njit(nogil=True, cache=True)
def _before(one, other, score_m):
    """Whether `one` is ranked above `other`: a higher score, or the same and a lower index."""
    return score_m[one] > score_m[other] or (score_m[one] == score_m[other] and one < other)
