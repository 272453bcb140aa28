from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops import coordinate_descent, runtime
from cfuica.ops.runtime import run_rows
from tests.ops.shapes import EXAMPLES, SEEDS


def problem(rows: int, others: int, factors: int, seed: int) -> dict[str, Any]:
    """Rows with any number of interactions, none and all included."""
    rng = np.random.default_rng(seed)
    had_no = rng.random((rows, others)) < rng.random((rows, 1)) * 1.3 - 0.15
    other_nf, out_nf = (rng.normal(0, 0.7, (n, factors)).astype(np.float32) for n in (others, rows))
    missing_n, scale_n, l2_n = (
        rng.uniform(0.05, 0.6, n).astype(np.float32) for n in (others, rows, rows)
    )
    return {
        "offsets": np.append(0, had_no.sum(1).cumsum()),
        "indices": np.nonzero(had_no)[1].astype(np.int32),
        "other_nf": other_nf,
        "missing_n": missing_n,
        "gram_ff": other_nf.T @ (missing_n[:, None] * other_nf),
        "scale_n": scale_n,
        "l2_n": l2_n,
        "out_nf": out_nf,
        "loss_n": np.full(rows, np.nan),
    }


def swept(given_: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    own = {**given_, "out_nf": given_["out_nf"].copy(), "loss_n": given_["loss_n"].copy()}
    run_rows(coordinate_descent.sweep, len(own["out_nf"]), *own.values(), work=own["offsets"])
    return own["out_nf"], own["loss_n"]


def dense(given_: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The same in float64, pair by pair: the minimum of a parabola through three points."""
    found_nf = given_["out_nf"].astype(np.float64)
    other_nf = given_["other_nf"].astype(np.float64)
    losses = []
    for row, (begin, end) in enumerate(pairwise(given_["offsets"])):
        had_o = np.zeros(len(other_nf), np.bool_)
        had_o[given_["indices"][begin:end]] = True
        weight_o = np.where(had_o, 1.0, given_["scale_n"][row] * given_["missing_n"])

        def loss(x_f: np.ndarray, had_o=had_o, weight_o=weight_o, l2=given_["l2_n"][row]) -> float:
            return float(weight_o @ (had_o - other_nf @ x_f) ** 2 + l2 * x_f @ x_f)

        x_f = found_nf[row]
        if not had_o.any():
            x_f[:] = 0
        else:
            for f in range(len(x_f)):
                unit_f = np.eye(len(x_f))[f]
                below, at, above = (loss(x_f + move * unit_f) for move in (-1, 0, 1))
                x_f[f] -= (above - below) / 2 / (above - 2 * at + below)
        losses.append(loss(x_f))
    return found_nf, np.array(losses)


@EXAMPLES
@given(st.integers(1, 12), st.integers(1, 15), st.integers(1, 9), SEEDS)
def test_each_number_is_the_best_given_all_others(
    rows: int, others: int, factors: int, seed: int
) -> None:
    given_ = problem(rows, others, factors, seed)
    found_nf, loss_n = swept(given_)
    expected_nf, expected_n = dense(given_)
    np.testing.assert_allclose(found_nf, expected_nf, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(loss_n, expected_n, rtol=1e-3, atol=1e-4)


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW_ROWS", 0)
    given_, found = problem(60, 40, 11, seed=1), []
    for threads in ("1", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        found.append(swept(given_))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
