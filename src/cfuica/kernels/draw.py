"""Integer loops that cut a block out of a behaviour matrix: one pass over the block's rows.

They release the GIL, so a background thread draws the next block while this one is computed.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint64


@njit(nogil=True, cache=True)
def _mix(x):
    """splitmix64's finaliser: 64 well-mixed bits from a counter."""
    x = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> uint64(27))) * uint64(0x94D049BB133111EB)
    return x ^ (x >> uint64(31))


@njit(nogil=True, cache=True)
def contexts(offsets, members, labels, queries, is_open, keep_q, key, n_labels):
    """The context of every query: its behaviours with open members, each kept with a chance.

    Returns compressed rows: offsets (Q + 1) int64, entries int32 = member * K + label. `key`
    and the position of a behaviour decide its coin, so the draw repeats exactly.
    """
    total = 0
    for q in queries:
        total += offsets[q + 1] - offsets[q]
    entries = np.empty(total, np.int32)
    out_offsets = np.zeros(len(queries) + 1, np.int64)
    filled = 0
    for row in range(len(queries)):
        q = queries[row]
        certain = keep_q[row] >= 1.0
        # The top 53 bits of the hash against keep * 2^53.
        threshold = uint64(max(keep_q[row], 0.0) * 9007199254740992.0)
        for e in range(offsets[q], offsets[q + 1]):
            member = members[e]
            if not is_open[member]:
                continue
            coin = _mix(key + uint64(e) * uint64(0x9E3779B97F4A7C15)) >> uint64(11)
            if certain or coin < threshold:
                entries[filled] = member * n_labels + labels[e]
                filled += 1
        out_offsets[row + 1] = filled
    return out_offsets, entries[:filled].copy()


@njit(nogil=True, cache=True)
def transpose(offsets, entries, n_rows):
    """For each of `n_rows` entry values, the queries that list it: offsets, queries (ascending)."""
    out_offsets = np.zeros(n_rows + 1, np.int64)
    for entry in entries:
        out_offsets[entry + 1] += 1
    for row in range(n_rows):
        out_offsets[row + 1] += out_offsets[row]
    cursor = out_offsets[:-1].copy()
    queries = np.empty(len(entries), np.int32)
    for q in range(len(offsets) - 1):
        for e in range(offsets[q], offsets[q + 1]):
            entry = entries[e]
            queries[cursor[entry]] = q
            cursor[entry] += 1
    return out_offsets, queries


@njit(nogil=True, cache=True)
def observed_pairs(offsets, members, labels, queries, position_of_member):
    """Behaviours inside the block: (query position, member position, label) of each, by query."""
    count = 0
    for q in queries:
        for e in range(offsets[q], offsets[q + 1]):
            if position_of_member[members[e]] >= 0:
                count += 1
    query_p = np.empty(count, np.int32)
    member_p = np.empty(count, np.int32)
    label_p = np.empty(count, np.uint8)
    filled = 0
    for row in range(len(queries)):
        q = queries[row]
        for e in range(offsets[q], offsets[q + 1]):
            position = position_of_member[members[e]]
            if position >= 0:
                query_p[filled] = row
                member_p[filled] = position
                label_p[filled] = labels[e]
                filled += 1
    return query_p, member_p, label_p


@njit(nogil=True, cache=True)
def group(values, n_groups):
    """Counting sort: offsets (n_groups + 1) and the order that lists equal values together."""
    offsets = np.zeros(n_groups + 1, np.int64)
    for value in values:
        offsets[value + 1] += 1
    for g in range(n_groups):
        offsets[g + 1] += offsets[g]
    cursor = offsets[:-1].copy()
    order = np.empty(len(values), np.int32)
    for p in range(len(values)):
        order[cursor[values[p]]] = p
        cursor[values[p]] += 1
    return offsets, order


@njit(nogil=True, cache=True)
def whole_contexts(offsets, members, labels, queries, without, n_labels):
    """All behaviours of every query, except those with the member `without[row]` (-1: none).

    Returns compressed rows as `contexts` does.
    """
    total = 0
    for q in queries:
        total += offsets[q + 1] - offsets[q]
    entries = np.empty(total, np.int32)
    out_offsets = np.zeros(len(queries) + 1, np.int64)
    filled = 0
    for row in range(len(queries)):
        q = queries[row]
        for e in range(offsets[q], offsets[q + 1]):
            if members[e] != without[row]:
                entries[filled] = members[e] * n_labels + labels[e]
                filled += 1
        out_offsets[row + 1] = filled
    return out_offsets, entries[:filled].copy()


@njit(nogil=True, cache=True)
def is_observed(offsets, members, rows, wanted):
    """Whether row `rows[p]` lists the member `wanted[p]`, for each pair p (members ascending)."""
    found = np.zeros(len(rows), np.bool_)
    for p in range(len(rows)):
        low = offsets[rows[p]]
        high = offsets[rows[p] + 1]
        while low < high:
            middle = (low + high) // 2
            if members[middle] < wanted[p]:
                low = middle + 1
            else:
                high = middle
        found[p] = low < offsets[rows[p] + 1] and members[low] == wanted[p]
    return found
