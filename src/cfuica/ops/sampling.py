"""Sampling of minibatches: contexts, pairs, histories and negatives, as compiled integer loops.

A loop makes one pass over the rows of a block. All of them release the GIL, so that a background
thread draws the next block while this one is computed. A coin is a hash of a key and the number of
an interaction, so a draw repeats exactly.
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
def contexts(offsets, indices, labels, queries, is_open, keep_q, key, n_labels):
    """The context of every query: its interactions with open rows, kept with the chance `keep_q`.

    `is_open` is a mask over the other side's users or items. Returns compressed rows: offsets
    (Q + 1) int64 and entries int32 = row * K + label.
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
            index = indices[e]
            if not is_open[index]:
                continue
            coin = _mix(key + uint64(e) * uint64(0x9E3779B97F4A7C15)) >> uint64(11)
            if certain or coin < threshold:
                entries[filled] = index * n_labels + labels[e]
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
def observed_pairs(offsets, indices, labels, queries, position_of_row):
    """The interactions inside a block: (query's place, row's place, label) of each, by query.

    `position_of_row` is each row's place in the block, or -1.
    """
    count = 0
    for q in queries:
        for e in range(offsets[q], offsets[q + 1]):
            if position_of_row[indices[e]] >= 0:
                count += 1
    query_p = np.empty(count, np.int32)
    row_p = np.empty(count, np.int32)
    label_p = np.empty(count, np.uint8)
    filled = 0
    for row in range(len(queries)):
        q = queries[row]
        for e in range(offsets[q], offsets[q + 1]):
            position = position_of_row[indices[e]]
            if position >= 0:
                query_p[filled] = row
                row_p[filled] = position
                label_p[filled] = labels[e]
                filled += 1
    return query_p, row_p, label_p


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
def whole_contexts(offsets, indices, labels, queries, without, n_labels):
    """All interactions of every query, except that with the index `without[row]` (-1: none).

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
            if indices[e] != without[row]:
                entries[filled] = indices[e] * n_labels + labels[e]
                filled += 1
        out_offsets[row + 1] = filled
    return out_offsets, entries[:filled].copy()


@njit(nogil=True, cache=True)
def histories(offsets, items, times, users, drop_u, key, together, backwards):
    """The histories of some users in time order, or backwards, with each interaction's position.

    Interactions of equal times share a position if `together`; else each has its own. An
    interaction is left out (entry -1) with the chance `drop_u` of its user, and keeps its place and
    its position. Returns offsets (U + 1), entries, positions and position_offsets (U + 1) as in
    `Histories`, and the place of each interaction in the timeline."""
    total = 0
    for u in users:
        total += offsets[u + 1] - offsets[u]
    out_offsets = np.zeros(len(users) + 1, np.int64)
    position_offsets = np.zeros(len(users) + 1, np.int64)
    entries = np.empty(total, np.int32)
    positions = np.empty(total, np.int32)
    places = np.empty(total, np.int64)
    filled = 0
    for row in range(len(users)):
        begin = offsets[users[row]]
        end = offsets[users[row] + 1]
        threshold = uint64(drop_u[row] * 9007199254740992.0)
        position = -1
        for t in range(end - begin):
            e = end - 1 - t if backwards else begin + t
            before = e + 1 if backwards else e - 1
            if t == 0 or not (together and times[e] == times[before]):
                position += 1
            coin = _mix(key + uint64(e) * uint64(0x9E3779B97F4A7C15)) >> uint64(11)
            entries[filled] = -1 if coin < threshold else items[e]
            positions[filled] = position
            places[filled] = e
            filled += 1
        out_offsets[row + 1] = filled
        position_offsets[row + 1] = position_offsets[row] + position + 2
    return out_offsets, entries, positions, position_offsets, places


@njit(nogil=True, cache=True)
def unobserved_items(offsets, items, users, counts, softmax_candidates, n_items, key):
    """Negative sampling: for each user `counts` unobserved candidates, drawn uniformly.

    Returns the place of the user in `users` and the item of each draw. A user who has interacted
    with nearly all candidates may get fewer, or none.
    """
    total = 0
    for count in counts:
        total += count
    user_n = np.empty(total, np.int32)
    item_n = np.empty(total, np.int32)
    seen = np.zeros(n_items, np.bool_)
    filled = 0
    state = key
    for row in range(len(users)):
        begin = offsets[users[row]]
        end = offsets[users[row] + 1]
        for e in range(begin, end):
            seen[items[e]] = True
        wanted = counts[row]
        tries = 20 * wanted
        while wanted > 0 and tries > 0:
            state += uint64(0x9E3779B97F4A7C15)
            # The top 32 bits times the number of candidates: uniform to within 2^-32.
            item = softmax_candidates[
                ((_mix(state) >> uint64(32)) * uint64(len(softmax_candidates))) >> uint64(32)
            ]
            tries -= 1
            if not seen[item]:
                user_n[filled] = row
                item_n[filled] = item
                filled += 1
                wanted -= 1
        for e in range(begin, end):
            seen[items[e]] = False
    return user_n[:filled].copy(), item_n[:filled].copy()


@njit(nogil=True, cache=True)
def earlier_contexts(offsets, indices, times, queries, is_open, before):
    """The interactions of open rows with every query before a time; a query's times ascend.

    Returns compressed rows as `contexts` does, with one label.
    """
    total = 0
    for q in queries:
        total += offsets[q + 1] - offsets[q]
    entries = np.empty(total, np.int32)
    out_offsets = np.zeros(len(queries) + 1, np.int64)
    filled = 0
    for row in range(len(queries)):
        for e in range(offsets[queries[row]], offsets[queries[row] + 1]):
            if times[e] >= before:
                break
            if is_open[indices[e]]:
                entries[filled] = indices[e]
                filled += 1
        out_offsets[row + 1] = filled
    return out_offsets, entries[:filled].copy()


@njit(nogil=True, cache=True)
def draw(offsets, indices, n_indices, keys_bd, out_bdc, start, stop):
    """C distinct unobserved indices of row b (compressed rows), uniformly; for each draw d.

    Number i of a draw is splitmix64's i-th output for its key. A row with fewer than C unobserved
    indices gets all of those, ascending, and -1 behind them.
    """
    wanted = out_bdc.shape[2]
    # An index is taken for the draw whose number it is marked with.
    taken = np.full(n_indices, -1, np.int64)
    stamp = 0
    for b in range(start, stop):
        for d in range(out_bdc.shape[1]):
            stamp += 1
            own = 0
            for e in range(offsets[b], offsets[b + 1]):
                if taken[indices[e]] != stamp:
                    taken[indices[e]] = stamp
                    own += 1
            if n_indices - own <= wanted:
                count = 0
                for index in range(n_indices):
                    if taken[index] != stamp:
                        out_bdc[b, d, count] = index
                        count += 1
                out_bdc[b, d, count:] = -1
                continue
            count = 0
            state = keys_bd[b, d]
            while count < wanted:
                state += uint64(0x9E3779B97F4A7C15)
                # The remainder favours no index by more than one in 2^64 / n.
                index = np.int64(_mix(state) % uint64(n_indices))
                if taken[index] != stamp:
                    taken[index] = stamp
                    out_bdc[b, d, count] = index
                    count += 1
