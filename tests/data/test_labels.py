"""The label scale."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cfuica.data.labels import LabelScale
from cfuica.errors import DataError


def test_half_stars_are_ten_labels():
    half_stars = [0.5 * k for k in range(1, 11)]
    scale = LabelScale.of(pl.Series([*half_stars[::-1], 5.0, 0.5]))
    assert scale.values == tuple(half_stars)
    labels = scale.encode(pl.Series([0.5, 5.0, 3.5]))
    assert labels.tolist() == [0, 9, 6]
    assert labels.dtype == np.uint8
    values = scale.values_array()
    assert values.dtype == np.float32
    assert values[labels].tolist() == [0.5, 5.0, 3.5]


def test_integers_and_uneven_steps_are_a_scale_too():
    scale = LabelScale.of(pl.Series([-10, 7, 8]))
    assert scale.values == (-10.0, 7.0, 8.0)
    assert scale.encode([8, -10, 7]).tolist() == [2, 0, 1]


def test_the_same_rating_in_32_bits_is_on_the_scale():
    scale = LabelScale.of(pl.Series([0.1, 0.7]))
    assert scale.encode(np.array([0.7, 0.1], dtype=np.float32)).tolist() == [1, 0]


@pytest.mark.parametrize("rating", [0.0, 2.5, 6.0, float("nan"), float("inf")])
def test_a_rating_off_the_scale_is_refused(rating):
    scale = LabelScale((1.0, 2.0, 3.0))
    with pytest.raises(DataError, match=f"rating {rating:g} at position 1 .* \\(1, 2, 3\\)"):
        scale.encode([1.0, rating])


@pytest.mark.parametrize(
    ("ratings", "says"),
    [
        ([4.0, 4.0], "only the rating 4, .* at least 2 distinct"),
        ([], "no rating at all"),
        ([1.0, None], "missing or non-finite"),
        ([1.0, float("inf")], "missing or non-finite"),
        ([1.0, float("nan")], "missing or non-finite"),
    ],
)
def test_what_is_no_scale_is_refused(ratings, says):
    with pytest.raises(DataError, match=says):
        LabelScale.of(pl.Series("rating", ratings, dtype=pl.Float64))


def test_255_labels_fit_a_byte():
    scale = LabelScale.of(pl.Series(range(1000)), bins=255)
    assert scale.size == 255
    assert scale.encode([999]).tolist() == [254]
