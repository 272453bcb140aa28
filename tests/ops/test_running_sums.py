"""Running sums and rows in a pool, against plain numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops import running_sums
from tests.ops.shapes import EXAMPLES, LABELS


def on_grid(weights: np.ndarray) -> np.ndarray:
    """Weights as multiples of 2^-32."""
    return np.rint(weights.astype(np.float64) * 2.0**32) / 2.0**32


@dataclass(frozen=True)
class Pool:
    """Rows at random places of a pool, with gaps; a table of W, and who has which row of it."""

    table_nkh: np.ndarray
    row_of_entry: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    indices: np.ndarray
    labels: np.ndarray

    @property
    def rows_rh(self) -> np.ndarray:
        return self.table_nkh.reshape(-1, self.table_nkh.shape[2])

    def row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        entries = slice(self.starts[row], self.starts[row] + self.lengths[row])
        return self.indices[entries], self.labels[entries]

    def defined_sum(self, row: int) -> np.ndarray:
        indices, labels = self.row(row)
        weights_eh = self.table_nkh[self.row_of_entry[indices], labels]
        return on_grid(weights_eh).sum(0)


def make_pool(
    n: int, table_rows: int, n_labels: int, hidden: int, queries: int, longest: int, seed: int
) -> Pool:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, min(longest, n) + 1, queries)
    gaps = rng.integers(0, 3, queries)
    starts = np.cumsum(lengths + gaps) - lengths
    size = int((lengths + gaps).sum())
    indices, labels = np.full(size, -1, np.int32), np.full(size, 255, np.uint8)
    order = rng.permutation(queries)  # rows lie in any order
    for row in range(queries):
        entries = slice(starts[row], starts[row] + lengths[row])
        indices[entries] = np.sort(rng.permutation(n)[: lengths[row]])
        labels[entries] = rng.integers(0, n_labels, lengths[row])
    # From 2^-40, which the grid rounds to nothing, to beyond one.
    scale = 2.0 ** rng.integers(-40, 2, (table_rows, n_labels, hidden))
    return Pool(
        (rng.normal(size=scale.shape) * scale).astype(np.float32),
        rng.integers(0, table_rows, n).astype(np.int32),
        starts[order].astype(np.int64),
        lengths[order].astype(np.int64),
        indices,
        labels,
    )


pools = st.builds(
    make_pool,
    n=st.integers(1, 8),
    table_rows=st.integers(1, 6),
    n_labels=LABELS,
    hidden=st.one_of(st.integers(1, 9), st.integers(1, 40)),
    queries=st.integers(0, 6),
    longest=st.integers(0, 8),
    seed=st.integers(0, 2**32 - 1),
)


def filled(pool: Pool, queries: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    sums_qh = np.full((size, pool.table_nkh.shape[2]), np.nan)
    running_sums.fill(
        pool.rows_rh,
        pool.starts,
        pool.lengths,
        pool.indices,
        pool.labels,
        pool.row_of_entry,
        pool.table_nkh.shape[1],
        queries,
        places,
        sums_qh,
        0,
        len(queries),
    )
    return sums_qh


@EXAMPLES
@given(pools, st.integers(0, 2**32 - 1))
def test_fill_writes_exact_sums_to_the_places_asked_for(pool, seed):
    rng = np.random.default_rng(seed)
    queries = rng.permutation(len(pool.starts))[: rng.integers(0, len(pool.starts) + 1)]
    places = rng.permutation(len(pool.starts) + 2)[: len(queries)]
    sums_qh = filled(pool, queries, places, len(pool.starts) + 2)
    for query, place in zip(queries, places, strict=True):
        assert np.array_equal(sums_qh[place], pool.defined_sum(query))
    others = np.setdiff1d(np.arange(len(sums_qh)), places)
    assert np.isnan(sums_qh[others]).all()


@EXAMPLES
@given(pools, st.data())
def test_shift_takes_one_row_out_and_puts_one_in(pool, data):
    entries = st.integers(-1, len(pool.rows_rh) - 1)
    taken_out, put_in = data.draw(entries), data.draw(entries)
    sums_h = on_grid(pool.rows_rh[0])
    expected_h = sums_h.copy()
    if taken_out >= 0:
        expected_h -= on_grid(pool.rows_rh[taken_out])
    if put_in >= 0:
        expected_h += on_grid(pool.rows_rh[put_in])
    running_sums.shift(pool.rows_rh, sums_h, taken_out, put_in)
    assert np.array_equal(sums_h, expected_h)


@EXAMPLES
@given(pool=pools, data=st.data())
def test_what_is_read_is_a_norm_of_the_sums_without_what_is_left_out(pool, data):
    all_rows = np.arange(len(pool.starts))
    sums_qh = filled(pool, all_rows, all_rows, len(all_rows))
    places = np.array(
        data.draw(st.lists(st.sampled_from(all_rows), max_size=8)) if len(all_rows) else [],
        np.int64,
    )
    entries = st.integers(-1, len(pool.rows_rh) - 1)
    left_out = np.array([data.draw(entries) for _ in places], np.int64)
    norms = np.array([data.draw(st.sampled_from([1.0, 0.25, 3.0])) for _ in places], np.float32)
    out_qh = np.full((len(places), sums_qh.shape[1]), np.nan, np.float32)
    running_sums.read(pool.rows_rh, sums_qh, places, left_out, norms, out_qh, 0, len(places))
    expected_qh = sums_qh[places]
    expected_qh[left_out >= 0] -= on_grid(pool.rows_rh[left_out[left_out >= 0]])
    assert np.array_equal(out_qh, (norms[:, None].astype(np.float64) * expected_qh).astype("f4"))


@EXAMPLES
@given(pools, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=20))
def test_find_gives_the_entry_of_an_index_or_minus_one(pool, pairs):
    pairs = [(row, member) for row, member in pairs if row < len(pool.starts)]
    rows_p = np.array([row for row, _ in pairs], np.int64)
    wanted_p = np.array([member for _, member in pairs], np.int64)
    entry_p = running_sums.find(pool.starts, pool.lengths, pool.indices, rows_p, wanted_p)
    for (row, member), entry in zip(pairs, entry_p, strict=True):
        at = np.flatnonzero(pool.row(row)[0] == member)
        assert entry == (pool.starts[row] + at[0] if len(at) else -1)


@EXAMPLES
@given(pools)
def test_repack_copies_every_row(pool):
    new_starts = np.cumsum(pool.lengths + 1) - pool.lengths - 1
    size = int((pool.lengths + 1).sum())
    indices, labels = np.full(size, -2, np.int32), np.full(size, 254, np.uint8)
    running_sums.repack(
        pool.starts, pool.lengths, pool.indices, pool.labels, new_starts, indices, labels
    )
    for row, start in enumerate(new_starts):
        entries = slice(start, start + pool.lengths[row])
        for new, old in zip((indices[entries], labels[entries]), pool.row(row), strict=True):
            assert np.array_equal(new, old)
        assert indices[entries.stop] == -2  # and nothing beyond it
