"""Calibration errors: by hand, and of predictors that are known to be right or overconfident."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.errors import CfuicaError, DataError
from cfuica.metrics.rating_metrics import (
    calibration_scores,
    class_wise_error,
    reliability,
    spread,
    top_label_error,
)

STARS_K = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


def world(pairs: int, labels: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Distributions, and labels that are drawn from them."""
    rng = np.random.default_rng(seed)
    p_pk = rng.dirichlet(np.full(labels, 0.7), pairs)
    labels_p = (p_pk.cumsum(1) < rng.uniform(size=(pairs, 1))).sum(1).clip(0, labels - 1)
    return p_pk, labels_p


def overconfident(p_pk: np.ndarray) -> np.ndarray:
    sharp_pk = p_pk**3
    return sharp_pk / sharp_pk.sum(1, keepdims=True)


# Three pairs, two labels, two bins: below 0.5, and from 0.5 on.
BY_HAND = (np.array([[0.2, 0.8], [0.6, 0.4], [0.9, 0.1]]), np.array([1, 1, 0]))


def test_reliability_of_a_hand_computed_example():
    found = reliability(*BY_HAND, bins=2)
    # Below: 0.2 false, 0.4 true, 0.1 false. Above: 0.8 true, 0.6 false, 0.9 true.
    np.testing.assert_allclose(found.predicted_b, [0.7 / 3, 2.3 / 3])
    np.testing.assert_allclose(found.observed_b, [1 / 3, 2 / 3])
    np.testing.assert_array_equal(found.counts_b, [3, 3])
    assert found.error == pytest.approx(0.1)


def test_top_label_error_of_a_hand_computed_example():
    # Confidences 0.8 right, 0.6 wrong, 0.9 right in bins of a quarter: {0.6}, {0.8, 0.9}.
    assert top_label_error(*BY_HAND, bins=4) == pytest.approx((0.6 + 2 * 0.15) / 3)


def test_class_wise_error_of_a_hand_computed_example():
    # Label 0: {0.2} never, {0.6, 0.9} half. Label 1: {0.4, 0.1} half, {0.8} always.
    error = ((0.2 + 2 * 0.25) / 3 + (2 * 0.25 + 0.2) / 3) / 2
    assert class_wise_error(*BY_HAND, bins=2) == pytest.approx(error)


def test_spread_of_a_hand_computed_example():
    p_pk = np.array([[0.5, 0.5], [1.0, 0.0]])
    found = spread(p_pk, np.array([0.0, 2.0]), np.array([2.0, 1.0]), bins=2)
    np.testing.assert_allclose(found.predicted_b, [0.0, 1.0])
    np.testing.assert_allclose(found.observed_b, [1.0, 1.0])
    assert found.predicted_variance == pytest.approx(0.5)
    assert found.squared_error == pytest.approx(1.0)
    assert found.ratio == pytest.approx(2.0)


def test_the_edge_of_a_bin_belongs_to_the_upper_one_and_certainty_to_the_last():
    p_pk = np.array([[0.5, 0.5], [1.0, 0.0]])
    found = reliability(p_pk, np.array([0, 0]), bins=2)
    np.testing.assert_array_equal(found.counts_b, [1, 3])


def test_labels_drawn_from_the_predictions_leave_small_errors():
    p_pk, labels_p = world(50_000)
    scores = calibration_scores(p_pk, labels_p, STARS_K, STARS_K[labels_p])
    assert scores.top_label_error < 0.01
    assert scores.class_wise_error < 0.01
    assert scores.reliability.error < 0.01
    assert scores.spread.ratio == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose(scores.spread.observed_b, scores.spread.predicted_b, atol=0.1)
    assert scores.n == 50_000


def test_overconfidence_is_seen_by_every_figure():
    p_pk, labels_p = world(20_000)
    scores = calibration_scores(overconfident(p_pk), labels_p, STARS_K, STARS_K[labels_p])
    assert scores.top_label_error > 0.1
    assert scores.class_wise_error > 0.04
    assert scores.reliability.error > 0.04
    assert scores.spread.ratio > 1.5


def test_the_same_for_everybody_is_calibrated_where_it_is_the_frequency():
    labels_p = np.arange(500) % 5
    p_pk = np.full((500, 5), 0.2, np.float32)
    scores = calibration_scores(p_pk, labels_p, STARS_K, STARS_K[labels_p])
    assert scores.top_label_error == pytest.approx(0.0, abs=1e-7)
    assert scores.class_wise_error == pytest.approx(0.0, abs=1e-7)
    assert scores.spread.ratio == pytest.approx(1.0, abs=1e-6)
    assert scores.spread.counts_b.sum() == 500


def test_variances_do_not_suffer_from_values_far_from_zero():
    p_pk, labels_p = world(1000)
    near = spread(p_pk, STARS_K, STARS_K[labels_p])
    far = spread(p_pk, STARS_K + 1e7, STARS_K[labels_p] + 1e7)
    assert far.ratio == pytest.approx(near.ratio, rel=1e-5)


@given(
    pairs=st.integers(1, 60),
    labels=st.integers(2, 12),
    bins=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_bins_hold_every_cell_once_and_errors_are_shares(pairs, labels, bins, seed):
    p_pk, labels_p = world(pairs, labels, seed)
    cells = reliability(p_pk, labels_p, bins)
    assert cells.counts_b.sum() == pairs * labels
    assert (cells.counts_b > 0).all()
    # Weighted by their counts the means are those of all cells: each pair has one label.
    assert np.average(cells.observed_b, weights=cells.counts_b) == pytest.approx(1 / labels)
    assert np.average(cells.predicted_b, weights=cells.counts_b) == pytest.approx(1 / labels)
    assert (np.diff(cells.predicted_b) > 0).all()
    assert 0 <= top_label_error(p_pk, labels_p, bins) <= 1
    assert 0 <= class_wise_error(p_pk, labels_p, bins) <= 1
    variance = spread(p_pk, np.arange(labels), labels_p, bins)
    assert variance.counts_b.sum() == pairs


def test_no_ratio_where_no_variance_is_predicted():
    labels_p = np.array([0, 1])
    scores = calibration_scores(np.eye(5)[labels_p], labels_p, STARS_K, STARS_K[labels_p])
    assert scores.top_label_error == 0.0
    assert np.isnan(scores.spread.ratio)
    assert scores.reliability.predicted_b.tolist() == [0.0, 1.0]
    assert scores.reliability.observed_b.tolist() == [0.0, 1.0]
    assert scores.reliability.counts_b.tolist() == [8, 2]


def test_what_is_no_distribution_is_refused():
    with pytest.raises(CfuicaError, match="not distributions"):
        calibration_scores(np.full((2, 5), 3.0), np.array([0, 1]), STARS_K, STARS_K[:2])


def test_nothing_to_score_is_refused():
    with pytest.raises(DataError, match="nothing to score"):
        reliability(np.empty((0, 5)), np.empty(0, np.intp))
