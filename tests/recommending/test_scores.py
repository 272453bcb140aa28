"""What each way to rank means."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.errors import SettingsError
from cfuica.model.prediction import softmax
from cfuica.recommending.scores import blended, check_by, scores

VALUES = np.arange(1, 6, dtype=np.float32)


def activations(*distributions):
    """(1, M, K) of which the softmax is these."""
    return np.log(np.array([distributions], np.float32) + 1e-9)


def plain(activation_pk, values_k):
    return softmax(activation_pk)


SURE_4 = (0.0, 0.0, 0.0, 1.0, 0.0)
LOVE_OR_HATE = (0.2, 0.0, 0.0, 0.0, 0.8)  # 4.2 on average
SURE_2 = (0.0, 1.0, 0.0, 0.0, 0.0)


def test_expected_is_the_mean_whatever_the_support_and_the_calibration():
    def unused(activation_pk, values_k):
        raise AssertionError("the mean needs no calibration")

    block = activations(SURE_4, LOVE_OR_HATE)
    for by in ("expected", "blend"):
        scores(block, VALUES, np.array([5, 5]), unused, by)
    expected = scores(block, VALUES, np.array([0, 7]), unused, "expected")
    np.testing.assert_allclose(expected, [[4.0, 4.2]], atol=1e-5)


def test_lower_prefers_what_is_sure_and_reads_the_calibrated_distribution():
    block = activations(SURE_4, LOVE_OR_HATE)
    support = np.array([3, 3])
    np.testing.assert_allclose(scores(block, VALUES, support, plain, "lower"), [[4, 1]], atol=1e-5)

    def reversed_distributions(activation_pk, values_k):
        assert values_k is VALUES
        return plain(activation_pk, values_k)[:, ::-1].copy()

    other = scores(block, VALUES, support, reversed_distributions, "lower")
    np.testing.assert_allclose(other, [[2, 1]], atol=1e-5)


def test_blend_takes_an_item_of_average_support_half_of_the_way_to_the_users_typical_item():
    support = np.array([10, 30, 20, 0])  # on average 20 among those that anybody rated
    expected = np.array([[5.0, 2.0, 4.0, 5.0]], np.float32)
    typical = (10 * 5 + 30 * 2 + 20 * 4) / 60
    trust = np.array([10 / 30, 30 / 50, 20 / 40, 0.0])
    np.testing.assert_allclose(
        blended(expected, support), typical + trust * (expected - typical), rtol=1e-6
    )


def test_blend_ranks_what_nobody_knows_behind_for_a_strict_user_as_well():
    """Pulled towards the mean of all ratings, the obscure item would come first."""
    support = np.array([1000, 1000, 1])
    strict, generous = [1.5, 1.2, 1.55], [4.5, 4.2, 4.55]
    ranked = blended(np.array([strict, generous], np.float32), support)
    assert (ranked.argmax(1) == 0).all()


def test_blend_does_not_depend_on_how_much_data_there_is():
    rng = np.random.default_rng(0)
    expected = rng.uniform(1, 5, (3, 20)).astype(np.float32)
    support = rng.integers(0, 50, 20)
    np.testing.assert_allclose(
        blended(expected, support), blended(expected, support * 100), rtol=1e-6
    )


def test_blend_without_a_single_behaviour_is_the_expected_rating():
    expected = np.array([[3.0, 4.0]], np.float32)
    assert np.array_equal(blended(expected, np.zeros(2, np.int64)), expected)


def test_an_unknown_way_to_rank_is_named_with_those_there_are():
    with pytest.raises(SettingsError, match=r"'best', but .*'expected', 'lower', 'blend'"):
        check_by("best")
    for by in ("expected", "lower", "blend"):
        check_by(by)
