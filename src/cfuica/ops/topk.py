"""Top-k of scores, ranks of relevant items, and scores from rating distributions.

`top_k` finds the best items of each row of scores without sorting the row. `among_all` and
`among_candidates` find the ranks of relevant items. Ties count against them: an irrelevant
candidate with the score of a relevant one is ranked above it, and relevant ones of equal score take
successive ranks. `expected` and `worst` turn logits or distributions over K labels into one score.
`expected_of_planes` and `logits_of_planes` read logits as matrix products leave them.

Shapes: B rows (users), M items, N places of a ranked list, C candidates, D draws of them, T
relevant items of all rows, K labels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cfuica.ops.runtime import VECTORISE


@njit(nogil=True, cache=True)
def top_k(
    scores_bm, candidates, seen_offsets, seen_indices, group_offsets, groups, limits_g,
    indices_bn, count_b, start, stop,
):  # fmt: skip
    """The top n of each row's candidates, best score first, ties in the order of their indices.

    Walks down the ranking and skips an item that the row has seen (compressed rows), one whose
    score is NaN, and one of whose groups (compressed rows by item) has reached its limit.
    `indices_bn` receives `count_b` items in each row.
    """
    n = indices_bn.shape[1]
    is_seen = np.zeros(scores_bm.shape[1], np.bool_)
    taken_g = np.zeros(len(limits_g), np.int64)
    for b in range(start, stop):
        score_m = scores_bm[b]
        for e in range(seen_offsets[b], seen_offsets[b + 1]):
            is_seen[seen_indices[e]] = True
        # So many of the best are ranked; more, where too many of them are of full groups.
        most = n if len(limits_g) == 0 else 4 * n
        count = 0
        while most > 0:
            heap = _best(score_m, candidates, is_seen, most)
            count = _walk(heap, score_m, group_offsets, groups, limits_g, taken_g, indices_bn[b])
            if count == n or len(heap) < most:
                break
            most *= 8
        count_b[b] = count
        for e in range(seen_offsets[b], seen_offsets[b + 1]):
            is_seen[seen_indices[e]] = False


@njit(nogil=True, cache=True)
def _best(score_m, candidates, is_seen, most):
    """The best candidates, at most so many, in no order."""
    heap = np.empty(min(most, len(candidates)), np.int32)
    size = 0
    for item in candidates:
        if size < len(heap):
            if not is_seen[item] and not np.isnan(score_m[item]):
                heap[size] = item
                size += 1
                if size == len(heap):
                    _heapify(heap, size, score_m, True)
        # The last one of the ranking so far makes way for a better one. NaN is never better.
        elif _before(item, heap[0], score_m) and not is_seen[item]:
            heap[0] = item
            _sink(heap, size, 0, score_m, True)
    return heap[:size]


@njit(nogil=True, cache=True)
def _walk(heap, score_m, group_offsets, groups, limits_g, taken_g, indices_n):
    """Rank the items of the heap, which is used up; returns how many found a place."""
    n, size, count = len(indices_n), len(heap), 0
    _heapify(heap, size, score_m, False)
    while count < n and size > 0:
        item = heap[0]
        size -= 1
        heap[0] = heap[size]
        _sink(heap, size, 0, score_m, False)
        first, last = group_offsets[item], group_offsets[item + 1]
        full = False
        for e in range(first, last):
            full |= taken_g[groups[e]] >= limits_g[groups[e]]
        if full:
            continue
        for e in range(first, last):
            taken_g[groups[e]] += 1
        indices_n[count] = item
        count += 1
    for place in range(count):
        item = indices_n[place]
        for e in range(group_offsets[item], group_offsets[item + 1]):
            taken_g[groups[e]] = 0
    return count


@njit(nogil=True, cache=True)
def _heapify(heap, size, score_m, last_first):
    for root in range(size // 2 - 1, -1, -1):
        _sink(heap, size, root, score_m, last_first)


@njit(nogil=True, cache=True)
def _sink(heap, size, place, score_m, last_first):
    """Move the entry at `place` down until no entry below it comes before it in the ranking, or,
    with `last_first`, behind it."""
    if place >= size:
        return
    item = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap[child + 1], heap[child], score_m) != last_first:
            child += 1
        if _before(heap[child], item, score_m) == last_first:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = item


@njit(nogil=True, cache=True)
def _before(one, other, score_m):
    """Whether `one` is ranked above `other`: a higher score, or the same and a lower index."""
    return score_m[one] > score_m[other] or (score_m[one] == score_m[other] and one < other)


@njit(nogil=True, cache=True)
def among_all(
    scores_bm, allowed_m, seen_offsets, seen_items, relevant_offsets, relevant_items,
    ranks_t, candidates_b, start, stop,
):  # fmt: skip
    """Ranks among all allowed items that the row has not seen, and the number of its candidates.

    Seen and relevant items are compressed rows; a relevant item is a candidate, allowed or not.
    `ranks_t` receives the ranks of row b, ascending, where `relevant_items` has its items.
    """
    n_items = scores_bm.shape[1]
    n_allowed = np.count_nonzero(allowed_m)
    # A mark holds the number of its row, so that nothing needs to be cleared between rows.
    marked_for = np.full(n_items, -1, np.int64)
    for b in range(start, stop):
        score_m = scores_bm[b]
        first, last = relevant_offsets[b], relevant_offsets[b + 1]
        own = np.empty(last - first, scores_bm.dtype)
        candidates = n_allowed + own.size
        for e in range(seen_offsets[b], seen_offsets[b + 1]):
            item = seen_items[e]
            candidates -= allowed_m[item] and marked_for[item] != b
            marked_for[item] = b
        for e in range(first, last):
            item = relevant_items[e]
            candidates -= allowed_m[item] and marked_for[item] != b
            marked_for[item] = b
            own[e - first] = score_m[item]
        own.sort()
        between = np.zeros(own.size + 1, np.int64)
        if own.size:
            lowest = own[0]
            for m in range(n_items):
                # Most items are below all relevant ones and count for none.
                if score_m[m] >= lowest and allowed_m[m] and marked_for[m] != b:
                    between[_not_above(own, score_m[m])] += 1
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
    """The number of the ascending scores that are at most this one, which is ranked above them."""
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
    """Ascending ranks, where between[i] irrelevant items are above exactly i relevant ones."""
    relevant = ranks.size
    above = 0
    for place in range(relevant):
        above += between[relevant - place]
        ranks[place] = above + place + 1


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def expected(logits_bmk, values_k, out_bm, start, stop):
    """out = the mean of `values_k` (ascending) under the softmax of Eqn. (7). (B, M)."""
    indices, labels = logits_bmk.shape[1:]
    lowest = values_k[0]
    highest = values_k[labels - 1]
    for b in range(start, stop):
        for m in range(indices):
            largest = logits_bmk[b, m, 0]
            for k in range(1, labels):
                largest = max(largest, logits_bmk[b, m, k])
            total = np.float32(0.0)
            above = np.float32(0.0)
            for k in range(labels):
                weight = np.exp(logits_bmk[b, m, k] - largest)
                total += weight
                above += weight * (values_k[k] - lowest)
            # Rounding must not carry the mean beyond the end of the scale.
            mean = lowest + above / total
            out_bm[b, m] = highest if mean > highest else mean


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def worst(probability_bmk, values_k, share, out_bm, start, stop):
    """out = the mean of `values_k` (ascending) over the lowest `share` of each distribution."""
    indices, labels = probability_bmk.shape[1:]
    lowest = values_k[0]
    highest = values_k[labels - 1]
    for b in range(start, stop):
        for m in range(indices):
            left = share
            above = np.float32(0.0)
            for k in range(labels):
                part = min(left, probability_bmk[b, m, k])
                above += part * (values_k[k] - lowest)
                left -= part
            # Probabilities that sum to a little less than 1 may leave a share of 1 unfilled.
            mean = lowest + above / (share - left)
            out_bm[b, m] = highest if mean > highest else mean


@njit(inline="always")
def _exp(x):
    """e^x for x <= 0, to about 1e-6: vector code, which a call of the C library is not."""
    r = max(x, np.float32(-80.0)) * np.float32(1 / 64)
    power = np.float32(1.0) + r * (
        np.float32(1.0)
        + r
        * (
            np.float32(0.5)
            + r * (np.float32(1 / 6) + r * (np.float32(1 / 24) + r * np.float32(1 / 120)))
        )
    )
    for _ in range(6):
        power *= power
    return power


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def expected_of_planes(planes_skbm, bias_bk, bias_km, values_k, out_bm):
    """`expected`, to about 1e-6, of K logits less that of the first label: 0, and K - 1 sums of S
    planes and two biases.

    The first plane is overwritten."""
    labels, users, items = planes_skbm.shape[1:]
    lowest = values_k[0]
    largest_m = np.empty(items, np.float32)
    total_m = np.empty(items, np.float32)
    above_m = np.empty(items, np.float32)
    for b in range(users):
        largest_m[:] = 0.0
        for k in range(labels):
            logits_m = planes_skbm[0, k, b]
            _add_up(planes_skbm[:, k, b], bias_bk[b, k], bias_km[k], logits_m)
            for m in range(items):
                largest_m[m] = max(largest_m[m], logits_m[m])
        for m in range(items):
            total_m[m] = _exp(-largest_m[m])
        above_m[:] = 0.0
        for k in range(labels):
            logits_m = planes_skbm[0, k, b]
            value = values_k[k + 1] - lowest
            for m in range(items):
                weight = _exp(logits_m[m] - largest_m[m])
                total_m[m] += weight
                above_m[m] += weight * value
        for m in range(items):
            out_bm[b, m] = lowest + above_m[m] / total_m[m]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def logits_of_planes(planes_skbm, bias_bk, bias_km, out_bmk):
    """out = the sum of S planes and two biases. (B, M, K)"""
    labels, users, items = planes_skbm.shape[1:]
    for b in range(users):
        for k in range(labels):
            _add_up(planes_skbm[:, k, b], bias_bk[b, k], bias_km[k], planes_skbm[0, k, b])
            for m in range(items):
                out_bmk[b, m, k] = planes_skbm[0, k, b, m]


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def _add_up(planes_sm, bias, bias_m, out_m):
    """out = the sum of S planes and two biases; it may be the first plane."""
    for m in range(len(out_m)):
        out_m[m] = planes_sm[0, m] + bias + bias_m[m]
    for s in range(1, len(planes_sm)):
        for m in range(len(out_m)):
            out_m[m] += planes_sm[s, m]
