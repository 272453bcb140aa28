"""How sums are scaled by the number of their interactions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfuica.data.matrix import Csr
from cfuica.model.layers import NO_NORMALISATION, LengthNormalisation
from cfuica.model.side import Side
from cfuica.settings import RatingSettings
from cfuica.training.rating_task import new_model
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
    for length_norm in (NO_NORMALISATION, LengthNormalisation(0.0, 17.0)):
        assert np.array_equal(length_norm.of(np.array([0, 1, 17, 10**7])), np.ones(4, np.float32))


def test_the_mean_of_the_rows_that_are_not_empty_is_typical():
    offsets = np.array([0, 0, 4, 4, 6, 15], np.int64)  # 0, 4, 0, 2 and 9 interactions
    assert LengthNormalisation.for_rows(0.5, offsets) == LengthNormalisation(0.5, 5.0)
    assert LengthNormalisation.for_rows(0.0, offsets) == NO_NORMALISATION
    assert LengthNormalisation.for_rows(0.5, np.zeros(4, np.int64)) == LengthNormalisation(0.5, 0.0)
    assert LengthNormalisation.for_rows(0.5, np.zeros(1, np.int64)) == LengthNormalisation(0.5, 0.0)


def test_each_side_is_scaled_for_what_it_sums():
    """The users side sums what users did on an item; the items side what a user did."""
    cells = {(user, item): 0 for user in range(6) for item in range(2)} | {(0, 2): 1}
    model = new_model(matrix_of(cells, 8, 5, 2), RatingSettings(length_normalisation=0.5))
    assert model.length_norms == {
        "users": LengthNormalisation(0.5, 13 / 3),
        "items": LengthNormalisation(0.5, 13 / 6),
    }
    assert model.to("cpu").length_norms == model.length_norms
    unscaled = new_model(matrix_of(cells, 8, 5, 2), RatingSettings())
    assert unscaled.length_norms == {"users": NO_NORMALISATION, "items": NO_NORMALISATION}


def test_initial_values_do_not_depend_on_the_power():
    matrix = matrix_of({(0, 0): 0, (1, 1): 1}, 2, 2, 2)
    one, other = (
        new_model(matrix, RatingSettings(length_normalisation=power)).tensors()
        for power in (0.0, 1.0)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_side_scales_its_sums_but_not_c():
    side = Side.initial(
        4, 3, 5, activation="tanh", share=False, generator=torch.Generator().manual_seed(0),
        length_norm=LengthNormalisation(1.0, 10.0),
    )  # fmt: skip
    side.encoder_bias_h.copy_(torch.linspace(-1, 1, 5))
    bag = Csr(np.array([0, 0, 1, 4], np.int64), np.array([7, 0, 4, 8], np.int32))
    rows_rh = side.encoder_nkh.flatten(0, 1)
    expected_qh = side.encoder_bias_h + torch.stack(
        [
            torch.zeros(5),
            20 / 11 * rows_rh[7],
            20 / 13 * (rows_rh[0] + rows_rh[4] + rows_rh[8]),
        ]
    )
    torch.testing.assert_close(side.encode(bag).sums_qh, expected_qh)


@pytest.mark.parametrize("typical", [-1.0, float("nan"), float("inf")])
def test_a_damaged_length_normalisation_is_refused(typical):
    assert LengthNormalisation.restored(0.5, 30) == LengthNormalisation(0.5, 30.0)
    with pytest.raises(ValueError, match="typical size"):
        LengthNormalisation.restored(0.5, typical)
