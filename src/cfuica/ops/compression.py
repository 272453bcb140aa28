"""Compressed sparse rows of entries in any order, by counting instead of sorting.

An entry has a row, an index and a label. Row r holds the entries `offsets[r] : offsets[r + 1]`.
Entries keep the order they are read in, so that two passes sort by row and then by index.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def offsets(rows, n_rows):
    """(n_rows + 1) int64 from the row of each entry."""
    out = np.zeros(n_rows + 1, np.int64)
    for row in rows:
        out[row + 1] += 1
    for row in range(n_rows):
        out[row + 1] += out[row]
    return out


@njit(nogil=True, cache=True)
def scattered(row_offsets, rows, indices, labels):
    """Indices and labels by row."""
    out_indices, out_labels = np.empty(len(rows), np.int32), np.empty(len(rows), np.uint8)
    cursor = row_offsets[:-1].copy()
    for e in range(len(rows)):
        place = cursor[rows[e]]
        cursor[rows[e]] = place + 1
        out_indices[place] = indices[e]
        out_labels[place] = labels[e]
    return out_indices, out_labels


@njit(nogil=True, cache=True)
def transpose(row_offsets, indices, labels, out_offsets, out_indices, out_labels):
    """Rows become indices and indices rows, into `out`; the new indices ascend within a row."""
    cursor = out_offsets[:-1].copy()
    for row in range(len(row_offsets) - 1):
        for e in range(row_offsets[row], row_offsets[row + 1]):
            place = cursor[indices[e]]
            cursor[indices[e]] = place + 1
            out_indices[place] = row
            out_labels[place] = labels[e]


@njit(nogil=True, cache=True)
def repeats(row_offsets, indices):
    """How many ascending indices equal the one before in their row; row and index of the first."""
    count, first_row, first_index = 0, -1, -1
    for row in range(len(row_offsets) - 1):
        for e in range(row_offsets[row] + 1, row_offsets[row + 1]):
            if indices[e] == indices[e - 1]:
                if count == 0:
                    first_row, first_index = row, indices[e]
                count += 1
    return count, first_row, first_index
