"""How sums are scaled by the number of their interactions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.model.network import COLD_START_OFFSET, LengthNormalisation
from cfuica.settings import RatingSettings
from cfuica.training.rating_task import RatingTask
from tests.model.reference import matrix_of


@given(
    power=st.floats(0.01, 1.0),
    typical=st.floats(0.0, 5000.0),
    sizes=st.lists(st.integers(0, 10**6), max_size=9),
)
def test_length_normalisation_is_a_power_of_the_size_relative_to_the_typical_one(
    power, typical, sizes
):
    length_norm_q = LengthNormalisation(power, typical).of(np.array(sizes, np.int64))
    assert length_norm_q.dtype == np.float32
    expected = [((typical + 10) / (size + 10)) ** power for size in sizes]
    np.testing.assert_allclose(length_norm_q, np.array(expected), rtol=1e-6)


def test_the_typical_size_keeps_its_sum_smaller_ones_grow_and_larger_ones_shrink():
    few, typical, many = LengthNormalisation(0.5, 30.0).of(np.array([3, 30, 300]))
    assert typical == 1
    assert few > 1 > many > 0


def test_with_a_power_of_one_the_scaled_sum_stays_bounded_as_interactions_double():
    sizes = 20 * 2 ** np.arange(12)
    scaled = sizes * LengthNormalisation(1.0, 50.0).of(sizes)
    assert scaled.max() < 60
    assert scaled[-1] == pytest.approx(scaled[-2], rel=1e-3)


def test_a_power_of_zero_is_exactly_one_for_every_size():
    for length_norm in (LengthNormalisation(), LengthNormalisation(0.0, 17.0)):
        assert np.array_equal(length_norm.of(np.array([0, 1, 17, 10**7])), np.ones(4, np.float32))


def test_each_side_is_scaled_for_what_it_sums():
    """The users side sums what users did on an item; the items side what a user did."""
    cells = {(user, item): 0 for user in range(6) for item in range(2)} | {(0, 2): 1}
    matrix = matrix_of(cells, 8, 5, 2)

    def norms(network=0, **changes):
        task = RatingTask.of(matrix, RatingSettings(cold_start_units=1, **changes))
        return {name: side.length_norm for name, side in task.new_network(network).sides.items()}

    typical = {"users": 13 / 3, "items": 13 / 6}
    for network, offset in ((0, 10.0), (1, COLD_START_OFFSET)):
        assert norms(network, length_normalisation=0.5) == {
            name: LengthNormalisation(0.5, mean, offset) for name, mean in typical.items()
        }
    assert {norm.power for norm in norms().values()} == {0.0}
