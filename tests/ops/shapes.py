"""Random problems for the kernels: sizes from hypothesis, numbers from a seed.

Sizes cover what a block can be: one label or many, odd numbers of hidden units and a single one,
queries without context, members and queries without pairs, no query or no pair at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

ACTIVATIONS = ("tanh", "sigmoid", "relu")
LABELS = st.one_of(st.sampled_from([1, 2, 3, 5, 10]), st.integers(1, 12))

# The first example of a process compiles; sizes are small, so more examples cost little.
EXAMPLES = settings(max_examples=60, deadline=None)


@dataclass(frozen=True)
class Problem:
    """One side's parameters, the contexts of Q queries and P pairs between G members and them."""

    encoder_nkh: np.ndarray
    encoder_bias_h: np.ndarray
    decoder_nkh: np.ndarray
    decoder_bias_nk: np.ndarray
    offsets: np.ndarray
    """(Q + 1) and"""
    entries: np.ndarray
    """member * K + label: what each query is encoded from."""
    length_norm_q: np.ndarray
    """what each query's sum is multiplied by"""
    indices: np.ndarray
    """(G) distinct ids"""
    group_of_pair: np.ndarray
    query_of_pair: np.ndarray
    grad_pk: np.ndarray
    activation: str
    share: bool

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_pairs(self) -> int:
        return len(self.grad_pk)

    @property
    def row_of_pair(self) -> np.ndarray:
        return self.indices[self.group_of_pair]

    @property
    def query_of_entry(self) -> np.ndarray:
        return np.repeat(np.arange(self.n_queries), np.diff(self.offsets)).astype(np.int32)


def make_problem(
    *,
    n: int,
    labels: int,
    hidden: int,
    queries: int,
    groups: int,
    pairs: int,
    longest: int,
    activation: str,
    share: bool,
    seed: int,
) -> Problem:
    """Numbers of unit size; `longest` bounds the context of a query, drawn from 0 upwards."""
    rng = np.random.default_rng(seed)
    groups = min(groups, n)
    if not queries or not groups:
        pairs = 0
    lengths = rng.integers(0, longest + 1, queries)

    def real(*shape: int) -> np.ndarray:
        return rng.normal(0.0, 0.6, shape).astype(np.float32)

    return Problem(
        encoder_nkh=real(n, labels, hidden),
        encoder_bias_h=real(hidden),
        decoder_nkh=real(n, labels, hidden),
        decoder_bias_nk=real(n, labels),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        entries=rng.integers(0, n * labels, int(lengths.sum())).astype(np.int32),
        length_norm_q=rng.choice([1.0, 0.3, 1.7], queries).astype(np.float32),
        indices=rng.permutation(n)[:groups].astype(np.int32),
        group_of_pair=rng.integers(0, max(groups, 1), pairs).astype(np.int32),
        query_of_pair=rng.integers(0, max(queries, 1), pairs).astype(np.int32),
        grad_pk=real(pairs, labels),
        activation=activation,
        share=share,
    )


def problems() -> st.SearchStrategy[Problem]:
    return st.builds(
        make_problem,
        n=st.integers(1, 6),
        labels=LABELS,
        hidden=st.one_of(st.integers(1, 9), st.integers(1, 40)),
        queries=st.integers(0, 6),
        groups=st.integers(0, 6),
        pairs=st.one_of(st.integers(0, 6), st.integers(0, 30)),
        longest=st.integers(0, 7),
        activation=st.sampled_from(ACTIVATIONS),
        share=st.booleans(),
        seed=st.integers(0, 2**32 - 1),
    )


def grouped(values: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (n_groups + 1) and the stable order that lists equal values together."""
    counts = np.bincount(values, minlength=n_groups)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return offsets, np.argsort(values, kind="stable").astype(np.int32)
