"""Running context sums of one side: c + the rows of W of each query's interactions, and f of them.

A new interaction changes a sum by one row, and any order of adds and removes gives the bits of a
fresh load. Addends are rounded to multiples of 2^-32: a weight of 2^-9 or more is one already, the
others move by at most 2^-33. While no sum can reach 2^20, every sum and partial sum is exact in
float64. Larger weights can exceed that (a sum of n interactions is below |c| + n max|W|). A changed
sum is then recomputed, its interactions ascending, which gives the bits of a fresh load too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfuica.live.live_rows import GrowingArray, LiveRows
from cfuica.model.layers import ACTIVATION_CODES
from cfuica.model.side import Side
from cfuica.ops import running_sums
from cfuica.ops.runtime import run_rows

# Half of what multiples of 2^-32 allow in float64: room for the rounding of the addends.
LARGEST_EXACT_SUM = 2.0**20
# Memory for sums and hidden vectors of one side; queries beyond it are computed at every need.
CACHE_BYTES = 2 * 1024**3


@dataclass
class RunningSums:
    """Sums (Q, H) float64 and hidden vectors (Q, H) float32 of one side's Q queries.

    Both are computed on first use and cached for the first `most_cached` queries; results do not
    depend on the cache. `contexts` has the interactions of each query, `member_rows` the table row
    of each user or item that occurs in them. Both belong to the state, which reports every change.
    """

    side: Side
    contexts: LiveRows
    member_rows: GrowingArray
    most_cached: int
    largest_weight: float
    largest_bias: float
    _sums_qh: GrowingArray
    _hidden_qh: GrowingArray
    _has_sums: GrowingArray
    _has_hidden: GrowingArray

    @classmethod
    def of(
        cls,
        side: Side,
        contexts: LiveRows,
        member_rows: GrowingArray,
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> RunningSums:
        """Of a side on the CPU; nothing is summed yet."""
        units = len(side.encoder_bias_h)
        low, high = side.encoder_nkh.aminmax()
        most_cached = cache_bytes // max(1, units * 12)
        cached = min(contexts.n_rows, most_cached)
        return cls(
            side,
            contexts,
            member_rows,
            most_cached,
            max(-float(low), float(high)),
            float(side.encoder_bias_h.abs().max()) if units else 0.0,
            GrowingArray.of(np.empty((cached, units), np.float64)),
            GrowingArray.of(np.empty((cached, units), np.float32)),
            GrowingArray.of(np.zeros(cached, np.bool_)),
            GrowingArray.of(np.zeros(cached, np.bool_)),
        )

    def extend(self, count: int) -> None:
        """`count` more queries, which `contexts` has already."""
        count = min(count, self.most_cached - self._has_sums.size)
        if count > 0:
            for array in (self._sums_qh, self._hidden_qh):
                array.extend(count)
            for array in (self._has_sums, self._has_hidden):
                array.append(count, 0)

    def change(self, query: int, member: int, old: int | None, new: int | None) -> None:
        """Follow an interaction that `contexts` has changed from label `old` to `new` (None: no
        interaction)."""
        if query >= self._has_sums.size or not self._has_sums.values[query]:
            return
        self._has_hidden.values[query] = False
        # The larger of the numbers of interactions before and after.
        interactions = int(self.contexts.lengths[query]) + (new is None)
        if interactions * self.largest_weight + self.largest_bias < LARGEST_EXACT_SUM:
            entry = int(self.member_rows.values[member]) * self._n_labels
            running_sums.shift(
                self._rows_rh,
                self._sums_qh.values[query],
                -1 if old is None else entry + old,
                -1 if new is None else entry + new,
            )
        else:
            self._has_sums.values[query] = False

    def sums(self, queries: np.ndarray) -> np.ndarray:
        """(Q, H) float64 sums of these queries, copied."""
        if self._keeps(queries):
            self._need_sums(queries)
            cached_qh: np.ndarray = self._sums_qh.values[queries]
            return cached_qh
        sums_qh = np.empty((len(queries), self._units))
        cached = np.flatnonzero(queries < self._has_sums.size)
        other = np.flatnonzero(queries >= self._has_sums.size)
        self._need_sums(queries[cached])
        sums_qh[cached] = self._sums_qh.values[queries[cached]]
        self._fill(queries[other], other, sums_qh)
        return sums_qh

    def sums_of(self, indices: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """(H,) float64 sum of a history that is not stored: members ascending, their labels."""
        sums_h = np.empty(self._units)
        first = np.zeros(1, np.int64)
        pool = (first, np.array([len(indices)]), indices, labels)
        self._run_fill(pool, first, first, sums_h[None], None)
        return sums_h

    def hidden(self, queries: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """(Q, H) float32 f of the sums, each without the interaction `left_out` (Q,).

        That is the entry `table row * K + label` of an interaction that is in the sum, or -1.
        """
        if left_out is None:
            left_out = np.full(len(queries), -1)
        sizes = self.contexts.lengths[queries] - (left_out >= 0)
        if self._keeps(queries):
            self._need_sums(queries)
            return hidden_vectors(self.side, self._sums_qh.values, queries, left_out, sizes)
        return hidden_vectors(
            self.side, self.sums(queries), np.arange(len(queries)), left_out, sizes
        )

    def hidden_between(self, start: int, stop: int) -> np.ndarray:
        """(stop - start, H) float32 f of the sums of adjacent queries.

        A view where they are cached: not to be written to, and good until the next change.
        """
        queries = np.arange(start, stop)
        if not self._keeps(queries):
            return self.hidden(queries)
        lacking = start + np.flatnonzero(~self._has_hidden.values[start:stop])
        if len(lacking):
            self._hidden_qh.values[lacking] = self.hidden(lacking)
            self._has_hidden.values[lacking] = True
        return self._hidden_qh.values[start:stop]

    def hidden_of(self, sums_qh: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """(Q, H) float32 f of the given sums, of `sizes` (Q,) interactions each."""
        queries = np.arange(len(sums_qh))
        return hidden_vectors(self.side, sums_qh, queries, np.full(len(queries), -1), sizes)

    @property
    def _units(self) -> int:
        return len(self.side.encoder_bias_h)

    @property
    def _n_labels(self) -> int:
        return self.side.encoder_nkh.shape[1]

    @property
    def _rows_rh(self) -> np.ndarray:
        rows_rh: np.ndarray = self.side.encoder_nkh.flatten(0, 1).numpy()
        return rows_rh

    def _keeps(self, queries: np.ndarray) -> bool:
        return not len(queries) or int(queries.max()) < self._has_sums.size

    def _need_sums(self, queries: np.ndarray) -> None:
        """Fill the cache for these queries."""
        lacking = queries[~self._has_sums.values[queries]]
        if len(lacking):
            lacking = np.unique(lacking)
            self._fill(lacking, lacking, self._sums_qh.values)
            self._has_sums.values[lacking] = True

    def _fill(self, queries: np.ndarray, places: np.ndarray, sums_qh: np.ndarray) -> None:
        """Write the sums of the queries to these rows of `sums_qh`."""
        work = np.zeros(len(queries) + 1, np.int64)
        np.cumsum(self.contexts.lengths[queries], out=work[1:])
        self._run_fill(self.contexts.pool, queries, places, sums_qh, work)

    def _run_fill(
        self,
        pool: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
        queries: np.ndarray,
        places: np.ndarray,
        sums_qh: np.ndarray,
        work: np.ndarray | None,
    ) -> None:
        run_rows(
            running_sums.fill,
            len(queries),
            self._rows_rh,
            self.side.encoder_bias_h.numpy(),
            *pool,
            self.member_rows.values,
            self._n_labels,
            queries.astype(np.int64, copy=False),
            places.astype(np.int64, copy=False),
            sums_qh,
            work=work,
        )


def hidden_vectors(
    side: Side, sums_qh: np.ndarray, places: np.ndarray, left_out: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """(Q, H) float32 f of the sums in `places` (Q,), each less the row `left_out` (Q,) of W.

    -1 leaves out none. `sizes` (Q,) are the interactions that remain.
    """
    hidden_qh = np.empty((len(places), sums_qh.shape[1]), np.float32)
    run_rows(
        running_sums.hidden_vectors,
        len(places),
        side.encoder_nkh.flatten(0, 1).numpy(),
        side.encoder_bias_h.numpy(),
        sums_qh,
        places.astype(np.int64, copy=False),
        left_out,
        side.length_norm.of(sizes),
        ACTIVATION_CODES[side.activation],
        hidden_qh,
    )
    return hidden_qh
