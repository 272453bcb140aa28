"""Scores of pairs against their definitions in plain numpy and float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.ops import topk
from cfuica.ops.runtime import run_rows
from tests.ops.shapes import EXAMPLES, LABELS

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def softmax(logits_bmk):
    weight_bmk = np.exp(logits_bmk - logits_bmk.max(2, keepdims=True))
    return weight_bmk / weight_bmk.sum(2, keepdims=True)


def worst_mean(p_k, values_k, share):
    """The mean of the lowest `share` of one distribution."""
    inside = np.diff(np.minimum(np.concatenate([[0.0], np.cumsum(p_k)]), share))
    return inside @ values_k / inside.sum()


@st.composite
def blocks(draw):
    """Logits (B, M, K) of any size, ratings (K,) ascending at any distances."""
    rows, indices, labels = draw(st.integers(0, 4)), draw(st.integers(0, 9)), draw(LABELS)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.0, 1.0, 10.0, 500.0]))
    logits_bmk = rng.normal(0.0, 1.0, (rows, indices, labels)) * spread
    values_k = draw(st.sampled_from([-2.0, 0.5, 1.0])) + np.cumsum(rng.uniform(0.1, 2.0, labels))
    return logits_bmk.astype(np.float32), values_k.astype(np.float32)


@EXAMPLES
@given(blocks(), st.integers(1, 3))
def test_logits_in_planes_have_the_same_mean_to_a_millionth(block, sides):
    """As matrix products leave them: the sum of planes by side and label, and biases."""
    logits_bmk, values_k = block
    users, items, labels = logits_bmk.shape
    rng = np.random.default_rng(0)
    planes_skbm = rng.normal(size=(sides, labels, users, items)).astype(np.float32)
    bias_bk = rng.normal(size=(users, labels)).astype(np.float32)
    bias_km = rng.normal(size=(labels, items)).astype(np.float32)
    planes_skbm[-1] += logits_bmk.transpose(2, 0, 1)
    sum_kbm = planes_skbm.sum(0, dtype=np.float64) + bias_bk.T[:, :, None] + bias_km[:, None]
    sum_bmk = sum_kbm.transpose(1, 2, 0)
    out_bmk, out_bm = np.empty_like(logits_bmk), np.empty((users, items), np.float32)
    topk.logits_of_planes(planes_skbm.copy(), bias_bk, bias_km, out_bmk)
    np.testing.assert_allclose(out_bmk, sum_bmk, rtol=1e-5, atol=1e-4)
    # For the mean they are relative to a first label, whose logit is 0.
    values_k = np.append(values_k[0] - np.float32(0.5), values_k)
    topk.expected_of_planes(planes_skbm, bias_bk, bias_km, values_k, out_bm)
    relative_bmk = np.insert(out_bmk.astype(np.float64), 0, 0.0, axis=2)
    span = values_k[-1] - values_k[0] + 1
    np.testing.assert_allclose(out_bm, softmax(relative_bmk) @ values_k, atol=5e-6 * span)


@EXAMPLES
@given(blocks())
def test_expected_is_the_mean_under_the_softmax_and_stays_on_the_scale(block):
    logits_bmk, values_k = block
    out_bm = np.full(logits_bmk.shape[:2], np.nan, np.float32)
    topk.expected(logits_bmk, values_k, out_bm, 0, len(out_bm))
    expected_bm = softmax(logits_bmk.astype(np.float64)) @ values_k
    np.testing.assert_allclose(out_bm, expected_bm, **CLOSE)
    assert ((out_bm >= values_k[0]) & (out_bm <= values_k[-1])).all()


@EXAMPLES
@given(blocks(), st.floats(0.01, 1.0))
def test_worst_is_the_mean_of_the_lowest_share(block, share):
    logits_bmk, values_k = block
    p_bmk = softmax(logits_bmk.astype(np.float64)).astype(np.float32)
    out_bm = np.full(p_bmk.shape[:2], np.nan, np.float32)
    topk.worst(p_bmk, values_k, np.float32(share), out_bm, 0, len(out_bm))
    for place in np.ndindex(out_bm.shape):
        defined = worst_mean(p_bmk[place].astype(np.float64), values_k, share)
        assert out_bm[place] == pytest.approx(defined, rel=1e-4, abs=1e-4)
    assert ((out_bm >= values_k[0]) & (out_bm <= values_k[-1])).all()


def test_the_worst_of_everything_is_the_mean_and_a_half_of_two_halves_is_the_lower_one():
    values_k = np.array([1.0, 2.0, 5.0], np.float32)
    p_bmk = np.array([[[0.5, 0.0, 0.5], [0.25, 0.25, 0.5], [0.0, 0.0, 1.0]]], np.float32)
    out_bm = np.empty((1, 3), np.float32)
    topk.worst(p_bmk, values_k, np.float32(0.5), out_bm, 0, 1)
    np.testing.assert_allclose(out_bm, [[1.0, 1.5, 5.0]])
    topk.worst(p_bmk, values_k, np.float32(1.0), out_bm, 0, 1)
    np.testing.assert_allclose(out_bm, [[3.0, 3.25, 5.0]])


def test_rounding_carries_no_score_beyond_the_end_of_the_scale():
    values_k = np.array([2.8, 7.9], np.float32)
    assert values_k[0] + (values_k[1] - values_k[0]) > values_k[1]
    out_bm = np.empty((1, 1), np.float32)
    topk.expected(np.array([[[-200.0, 200.0]]], np.float32), values_k, out_bm, 0, 1)
    assert out_bm[0, 0] == values_k[1]
    topk.worst(np.array([[[0.0, 1.0]]], np.float32), values_k, np.float32(0.1), out_bm, 0, 1)
    assert out_bm[0, 0] == values_k[1]


def test_probabilities_that_do_not_quite_sum_to_one_make_no_score_lower():
    values_k = np.array([1.0, 2.0, 5.0], np.float32)
    p_bmk = np.array([[[0.0, 0.0, 0.99], [0.33, 0.33, 0.33]]], np.float32)
    out_bm = np.empty((1, 2), np.float32)
    topk.worst(p_bmk, values_k, np.float32(1.0), out_bm, 0, 1)
    np.testing.assert_allclose(out_bm, [[5.0, 8 / 3]], rtol=1e-6)


def test_neither_threads_nor_the_rows_beside_it_change_a_bit_of_a_row(monkeypatch):
    rng = np.random.default_rng(0)
    logits_bmk = rng.normal(0, 2, (50, 101, 5)).astype(np.float32)
    values_k = np.arange(1, 6, dtype=np.float32)

    def both(block_bmk):
        mean_bm, worst_bm = np.empty((2, *block_bmk.shape[:2]), np.float32)
        rows = len(block_bmk)
        run_rows(topk.expected, rows, block_bmk, values_k, mean_bm)
        run_rows(topk.worst, rows, softmax(block_bmk), values_k, np.float32(0.1), worst_bm)
        return np.stack([mean_bm, worst_bm])

    monkeypatch.setenv("CFUICA_THREADS", "1")
    alone = both(logits_bmk)
    monkeypatch.setenv("CFUICA_THREADS", "3")
    assert np.array_equal(both(logits_bmk), alone)
    assert np.array_equal(both(logits_bmk[7:8]), alone[:, 7:8])
