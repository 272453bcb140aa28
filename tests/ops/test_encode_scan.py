"""The scan against its reference and against its definition, one interaction after another."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops.encode import scan
from cfuica.ops.tables import RowTable
from tests.ops.compare import equals_reference
from tests.ops.shapes import EXAMPLES, SEEDS, make_histories, read_by

ROWS = 5
CASES = {
    "lengths": st.lists(st.integers(0, 9), min_size=1, max_size=6),
    "labels": st.integers(1, 3),
    "hidden": st.integers(1, 19),
    "decays": st.booleans(),
    "seed": SEEDS,
}


def numbers(labels: int, hidden: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W, decays and scales."""
    rng = np.random.default_rng(seed)
    table_nkh = rng.normal(size=(ROWS, labels, hidden)).astype(np.float32)
    decay_h, scale_h = rng.uniform(0.1, 1, hidden), rng.uniform(0.5, 2, hidden)
    return table_nkh, decay_h.astype(np.float32), scale_h.astype(np.float32)


@EXAMPLES
@given(**CASES, share=st.booleans(), every_other=st.booleans())
def test_scan_equals_the_reference(lengths, labels, hidden, decays, seed, share, every_other):
    table_nkh, *factors = numbers(labels, hidden, seed)
    histories = make_histories(lengths, ROWS * labels, seed)
    if every_other:
        histories, _ = histories.only(np.arange(0, histories.n_rows, 2, dtype=np.int32))
    equals_reference(
        lambda table, *decay_and_scale: scan(table, histories, decay_and_scale or None),
        [table_nkh],
        factors if decays else [],
        share=share,
        near=1e-4,
    )


@EXAMPLES
@given(**CASES)
def test_a_position_reads_the_decayed_sum_of_earlier_interactions(
    lengths, labels, hidden, decays, seed
):
    table_nkh, decay_h, scale_h = numbers(labels, hidden, seed)
    histories = make_histories(lengths, ROWS * labels, seed)
    factors = (torch.from_numpy(decay_h), torch.from_numpy(scale_h)) if decays else None
    found = scan(RowTable(torch.from_numpy(table_nkh)), histories, factors)
    rows_rh = table_nkh.reshape(-1, hidden).astype(np.float64)
    for row, entries in zip(found.detach().numpy(), read_by(histories), strict=True):
        state_h = np.zeros(hidden)
        for entry in entries:
            state_h = (decay_h * state_h if decays else state_h) + rows_rh[entry]
        expected_h = scale_h * state_h if decays else state_h
        np.testing.assert_allclose(row, expected_h, rtol=1e-4, atol=1e-5)


@EXAMPLES
@given(**CASES, share_of_positions=st.floats(0, 1))
def test_positions_without_targets_can_be_left_out(
    lengths, labels, hidden, decays, seed, share_of_positions
):
    """The others read what they read before, and the gradient is what it was where those that are
    left out had none, both to the bit."""
    table_nkh, *factors = numbers(labels, hidden, seed)
    whole = make_histories(lengths, ROWS * labels, seed)
    rng = np.random.default_rng(seed)
    listed = rng.permutation(whole.n_rows)[: round(share_of_positions * whole.n_rows)]
    some, place_p = whole.only(listed.astype(np.int32))
    assert some.n_rows == len(listed)
    assert sorted(place_p) == list(range(some.n_rows))
    read = read_by(whole)
    assert [read_by(some)[place] for place in place_p] == [read[position] for position in listed]
    tables = [RowTable(torch.from_numpy(table_nkh)) for _ in range(2)]
    grad_ph = torch.from_numpy(rng.normal(size=(len(listed), hidden)).astype(np.float32))
    states = []
    for table, histories, places in zip(tables, (some, whole), (place_p, listed), strict=True):
        own = tuple(map(torch.from_numpy, factors)) if decays else None
        states.append(scan(table, histories, own)[places])
        states[-1].backward(grad_ph)
    assert torch.equal(*states)
    assert torch.equal(*(table.dense_gradient() for table in tables))
