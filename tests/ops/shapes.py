"""Random problems for the ops: sizes from hypothesis, numbers from a seed.

Sizes cover what a minibatch can be: one label or many, odd numbers of hidden units and a single
one, queries without context, rows and queries without pairs, no query or no pair at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from cfuica.ops.tables import Bags, Grouping, Histories, SidePairs

ACTIVATIONS = ("tanh", "sigmoid", "relu")
LABELS = st.one_of(st.sampled_from([1, 2, 3, 5, 10]), st.integers(1, 12))
HIDDEN = st.one_of(st.integers(1, 9), st.integers(1, 40))
SEEDS = st.integers(0, 2**32 - 1)

# The first example of a process compiles; sizes are small, so more examples take little time.
EXAMPLES = settings(max_examples=60, deadline=None)


@dataclass(frozen=True, eq=False)
class Problem:
    """Tables of one side, the contexts of Q queries, and P pairs between G rows and them."""

    table_nkh: np.ndarray
    bias_nk1: np.ndarray
    hidden_qh: np.ndarray
    bias_h: np.ndarray
    bags: Bags
    norm_q: np.ndarray
    pairs: SidePairs
    labels_p: np.ndarray

    @property
    def n_pairs(self) -> int:
        return len(self.pairs.query_of_pair)


def make_problem(
    *, n: int, labels: int, hidden: int, queries: int, groups: int, pairs: int, longest: int,
    seed: int,
) -> Problem:  # fmt: skip
    """Numbers of unit size; `longest` bounds the context of a query, drawn from 0 upwards."""
    rng = np.random.default_rng(seed)
    groups = min(groups, n)
    pairs = pairs if queries and groups else 0
    lengths = rng.integers(0, longest + 1, queries)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    entries = rng.integers(0, n * labels, int(lengths.sum())).astype(np.int32)
    queries_e = np.repeat(np.arange(queries, dtype=np.int32), lengths)
    by_entry = grouped(entries, n * labels)
    rows = rng.permutation(n)[:groups].astype(np.int32)
    group_p = rng.integers(0, max(groups, 1), pairs).astype(np.int32)
    query_p = rng.integers(0, max(queries, 1), pairs).astype(np.int32)

    def real(*shape: int) -> np.ndarray:
        return rng.normal(0.0, 0.6, shape).astype(np.float32)

    return Problem(
        real(n, labels, hidden),
        real(n, labels, 1),
        real(queries, hidden),
        real(hidden),
        Bags(offsets, entries, Grouping(by_entry.offsets, queries_e[by_entry.order])),
        rng.choice([1.0, 0.3, 1.7], queries).astype(np.float32),
        SidePairs(
            rows, query_p, rows[group_p], grouped(group_p, groups), grouped(query_p, queries)
        ),
        rng.integers(0, labels, pairs).astype(np.uint8),
    )


def problems() -> st.SearchStrategy[Problem]:
    return st.builds(
        make_problem,
        n=st.integers(1, 6),
        labels=LABELS,
        hidden=HIDDEN,
        queries=st.integers(0, 6),
        groups=st.integers(0, 6),
        pairs=st.one_of(st.integers(0, 6), st.integers(0, 30)),
        longest=st.integers(0, 7),
        seed=SEEDS,
    )


def grouped(values: np.ndarray, n_groups: int) -> Grouping:
    """The places of equal values, in a stable order."""
    counts = np.bincount(values, minlength=n_groups)
    offsets = np.append(0, np.cumsum(counts)).astype(np.int64)
    return Grouping(offsets, np.argsort(values, kind="stable").astype(np.int32))


def make_histories(lengths: list[int], rows: int, seed: int) -> Histories:
    """Histories of these lengths; some interactions share a position, some are left out."""
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    entries = rng.integers(0, rows, offsets[-1]).astype(np.int32)
    entries[rng.random(len(entries)) < 0.2] = -1
    positions = np.zeros(len(entries), np.int32)
    position_offsets = [0]
    for begin, end in pairwise(offsets):
        begins = rng.random(end - begin) < 0.6
        begins[:1] = True
        positions[begin:end] = np.cumsum(begins) - 1
        position_offsets.append(position_offsets[-1] + int(begins.sum()) + 1)
    by_entry = grouped(np.where(entries < 0, rows, entries), rows + 1)
    readers = Grouping(by_entry.offsets[:-1], by_entry.order)
    return Histories(offsets, entries, positions, np.array(position_offsets, np.int64), readers)


def read_by(histories: Histories) -> list[list[int]]:
    """The entries that each of all positions reads, in order, by the definition of `Histories`."""
    found: list[list[int]] = []
    for u in range(histories.n_histories):
        own = slice(histories.offsets[u], histories.offsets[u + 1])
        entries, positions = histories.entries[own].tolist(), histories.positions[own].tolist()
        for position in range(histories.position_offsets[u + 1] - histories.position_offsets[u]):
            earlier = [e for e, m in zip(entries, positions, strict=True) if m < position]
            found.append([entry for entry in earlier if entry >= 0])
    return found
