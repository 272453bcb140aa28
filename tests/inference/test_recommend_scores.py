"""What each way to rank means."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.errors import SettingsError
from cfuica.inference import recommend as module
from cfuica.inference.recommend import check_by, support_bonus
from cfuica.model.network import softmax

VALUES = np.arange(1, 6, dtype=np.float32)


def scores(block, values_k, support_m, distributions, by):
    return module.scores(block, values_k, support_bonus(support_m, values_k), distributions, by)


def logits(*distributions):
    """(1, M, K) of which the softmax is these."""
    return np.log(np.array([distributions], np.float32) + 1e-9)


def plain(logits_pk, values_k):
    return softmax(logits_pk)


SURE_4 = (0.0, 0.0, 0.0, 1.0, 0.0)
LOVE_OR_HATE = (0.2, 0.0, 0.0, 0.0, 0.8)  # 4.2 on average
SURE_2 = (0.0, 1.0, 0.0, 0.0, 0.0)


def test_expected_is_the_mean_whatever_the_support_and_the_calibration():
    def unused(logits_pk, values_k):
        raise AssertionError("the mean needs no calibration")

    block = logits(SURE_4, LOVE_OR_HATE)
    for by in ("expected", "blend"):
        scores(block, VALUES, np.array([5, 5]), unused, by)
    expected = scores(block, VALUES, np.array([0, 7]), unused, "expected")
    np.testing.assert_allclose(expected, [[4.0, 4.2]], atol=1e-5)


def test_lower_prefers_what_is_sure_and_reads_the_calibrated_distribution():
    block = logits(SURE_4, LOVE_OR_HATE)
    support = np.array([3, 3])
    np.testing.assert_allclose(scores(block, VALUES, support, plain, "lower"), [[4, 1]], atol=1e-5)

    def reversed_distributions(logits_pk, values_k):
        assert values_k is VALUES
        return plain(logits_pk, values_k)[:, ::-1].copy()

    other = scores(block, VALUES, support, reversed_distributions, "lower")
    np.testing.assert_allclose(other, [[2, 1]], atol=1e-5)


def test_blend_adds_a_fortieth_of_the_scale_for_each_doubling_of_support():
    support = np.array([15, 31, 127, 7, 0])  # on average 45 among those that anybody rated
    block = logits(*[SURE_4] * 5)
    blend = scores(block, VALUES, support, plain, "blend")[0]
    np.testing.assert_allclose(np.diff(blend), [0.1, 0.2, -0.4, -0.3], atol=1e-5)
    wide = scores(block, 10 * VALUES, support, plain, "blend")[0]
    np.testing.assert_allclose(wide, 10 * blend, rtol=1e-5)


def test_blend_leaves_an_item_of_average_support_its_expected_rating():
    block = logits(LOVE_OR_HATE, SURE_4, SURE_2, SURE_2)
    blend = scores(block, VALUES, np.array([20, 10, 30, 0]), plain, "blend")[0]
    assert blend[0] == pytest.approx(4.2, abs=1e-5)
    assert blend[1] < 4.0


def test_blend_ranks_by_expected_rating_where_nobody_rated_anything():
    block = logits(LOVE_OR_HATE, SURE_4, SURE_2)
    blend = scores(block, VALUES, np.zeros(3, np.int64), plain, "blend")
    np.testing.assert_allclose(blend, [[4.2, 4.0, 2.0]], atol=1e-5)


def test_an_unknown_way_to_rank_is_named_with_those_there_are():
    with pytest.raises(SettingsError, match=r"'best', but .*'expected', 'lower', 'blend'"):
        check_by("best")
    for by in ("expected", "lower", "blend"):
        check_by(by)
