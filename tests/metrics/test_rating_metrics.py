from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.errors import CfuicaError, DataError
from cfuica.metrics.rating_metrics import RatingScores, mae, rating_scores, rmse

STARS_K = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


def test_scores_of_a_hand_computed_example() -> None:
    probabilities_pk = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    scores = rating_scores(
        probabilities_pk, np.array([0, 2]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0])
    )
    # Expected ratings 1.5 and 2.75 against 1 and 3.
    assert scores.rmse == pytest.approx(math.sqrt((0.25 + 0.0625) / 2))
    assert scores.mae == pytest.approx((0.5 + 0.25) / 2)
    assert scores.nll == pytest.approx(-(math.log(0.5) + math.log(0.75)) / 2)
    assert scores.n == 2


def test_certain_and_right_is_perfect() -> None:
    labels_p = np.array([0, 3, 4], dtype=np.uint8)
    scores = rating_scores(np.eye(5)[labels_p], labels_p, STARS_K, STARS_K[labels_p])
    assert scores == RatingScores(0.0, 0.0, 0.0, 3)


def test_certain_and_wrong_has_a_finite_nll() -> None:
    scores = rating_scores(np.eye(5)[[0]], np.array([4]), STARS_K, np.array([5.0]))
    assert scores.nll == pytest.approx(-math.log(1e-12))
    assert scores.rmse == 4.0


def test_float32_predictions_are_scored_in_float64() -> None:
    n = 300_000
    probabilities_pk = np.full((n, 5), 0.2, dtype=np.float32)
    labels_p = (np.arange(n) % 5).astype(np.uint8)
    scores = rating_scores(probabilities_pk, labels_p, STARS_K, STARS_K[labels_p])
    assert scores.rmse == pytest.approx(math.sqrt(2.0), abs=1e-6)
    assert scores.nll == pytest.approx(math.log(5.0), abs=1e-6)
    assert isinstance(scores.rmse, float)


def test_label_values_need_not_be_whole_or_evenly_spaced() -> None:
    scores = rating_scores(
        np.array([[0.5, 0.5]]), np.array([1]), np.array([-1.0, 0.5]), np.array([0.5])
    )
    assert scores.mae == pytest.approx(0.75)


def test_errors_are_against_the_rating_and_nll_is_of_the_label_it_falls_under() -> None:
    probabilities_pk = np.array([[0.25, 0.75]])
    scores = rating_scores(probabilities_pk, np.array([1]), np.array([-4.0, 4.0]), np.array([7.0]))
    assert scores.mae == pytest.approx(5.0)
    assert scores.rmse == pytest.approx(5.0)
    assert scores.nll == pytest.approx(-math.log(0.75))


@given(
    st.lists(
        st.tuples(st.floats(-10, 10), st.floats(-10, 10)),
        min_size=1,
        max_size=30,
    )
)
def test_mae_never_exceeds_rmse_and_both_are_symmetric(pairs: list[tuple[float, float]]) -> None:
    predictions, truth = np.array(pairs).T
    assert 0.0 <= mae(predictions, truth) <= rmse(predictions, truth) + 1e-9
    assert rmse(predictions, truth) == rmse(truth, predictions)
    assert rmse(truth, truth) == 0.0


@pytest.mark.parametrize("metric", [rmse, mae])
def test_metrics_take_lists(metric) -> None:
    assert metric([1.0, 2.0], [2.0, 1.0]) == 1.0


@pytest.mark.parametrize("metric", [rmse, mae])
def test_shapes_that_would_broadcast_are_refused(metric) -> None:
    with pytest.raises(DataError, match=r"\(3, 1\).*\(3,\)"):
        metric(np.zeros((3, 1)), np.zeros(3))


@pytest.mark.parametrize("metric", [rmse, mae])
def test_nothing_to_score_is_refused(metric) -> None:
    with pytest.raises(DataError, match="nothing to score"):
        metric([], [])


@pytest.mark.parametrize("metric", [rmse, mae])
def test_numbers_that_are_not_finite_are_refused(metric) -> None:
    with pytest.raises(CfuicaError, match="1 of 2 predicted numbers"):
        metric([1.0, np.nan], [1.0, 2.0])
    with pytest.raises(DataError, match="true ratings"):
        metric([1.0, 2.0], [1.0, np.inf])


@pytest.mark.parametrize(
    ("probabilities_pk", "labels_p", "message"),
    [
        (np.zeros((0, 5)), np.zeros(0, dtype=int), "nothing to score"),
        (np.full((2, 4), 0.25), np.array([0, 1]), r"must be \(2, 5\)"),
        (np.full((3, 5), 0.2), np.array([0, 1]), r"\(3, 5\).*must be \(2, 5\)"),
        (np.full((1, 5), 0.2), np.array([[0]]), "one-dimensional"),
        (np.full((1, 5), 0.2), np.array([4.0]), "must be integers"),
        (np.full((1, 5), 0.2), np.array([5]), "between 0 and 4"),
        (np.full((1, 5), 0.2), np.array([-1]), "between 0 and 4"),
        (np.array([[3.0, 1.0, -2.0, 0.0, 0.5]]), np.array([0]), "Were logits passed"),
        (np.array([[2.0, -1.0, 0.0, 0.0, 0.0]]), np.array([0]), "non-negative"),
        (np.array([[np.nan, 0.0, 0.0, 0.0, 1.0]]), np.array([0]), "not finite"),
    ],
)
def test_what_cannot_be_scored_is_explained(probabilities_pk, labels_p, message) -> None:
    with pytest.raises(CfuicaError, match=message):
        rating_scores(probabilities_pk, labels_p, STARS_K, np.ones(len(labels_p)))
