"""The label scale."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cfuica.data.vocabulary import MAX_DISTINCT, LabelScale
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
        ([1.0, None], "has the rating None, but a rating must be a finite number"),
        ([1.0, float("inf")], "has the rating inf, .* a finite number"),
        ([1.0, float("nan")], "has the rating nan, .* a finite number"),
        ([1.0, -1e308], r"has the rating -1e\+308, .* from -3\.4e\+38 to 3\.4e\+38; .* rescale"),
        ([*range(99), 1e308], r"has the rating 1e\+308"),
    ],
)
def test_what_is_no_scale_is_refused(ratings, says):
    with pytest.raises(DataError, match=says):
        LabelScale.of(pl.Series("rating", ratings, dtype=pl.Float64))


def test_255_labels_fit_a_byte():
    scale = LabelScale.of(pl.Series(range(1000)), bins=255)
    assert scale.size == 255
    assert scale.encode([999]).tolist() == [254]


def test_up_to_20_distinct_ratings_are_a_label_each_and_more_are_binned():
    assert LabelScale.of(pl.Series(range(20)), bins=2) == LabelScale(tuple(map(float, range(20))))
    binned = LabelScale.of(pl.Series("rating", range(21)), bins=3)
    assert binned.values == (3.0, 10.0, 17.0)
    assert binned.edges == (6.5, 13.5)
    assert binned.note == (
        "21 distinct ratings from 0 to 20: binned into 3 labels of about equal mass "
        "as far as ties allow."
    )


@pytest.mark.parametrize("thumbs", [(0.0, 1.0), (-1.0, 1.0)])
def test_thumbs_are_two_labels(thumbs):
    scale = LabelScale.of(pl.Series([thumbs[1], thumbs[0], thumbs[1]]))
    assert scale.values == thumbs
    assert scale.encode(pl.Series(thumbs)).tolist() == [0, 1]
    assert not scale.is_binned


def test_bins_are_learned_from_the_training_set_alone():
    train = pl.Series(np.arange(100) / 10)
    whole = pl.concat([train, pl.Series([-50.0, 99.0, 3.14])])
    assert LabelScale.of(train, whole) == LabelScale.of(train)
    assert LabelScale.of(train, whole).note.startswith("103 distinct ratings from -50 to 99")
    few = LabelScale.of(pl.Series([1.0, 2.0]), pl.Series(range(30)))
    assert few == LabelScale((1.0, 2.0), (1.5,)), "whether to bin is asked of the whole"
    with pytest.raises(DataError, match=r"only the rating 4, .* at least 2 distinct"):
        LabelScale.of(pl.Series([4.0, 4.0]), pl.Series(range(30)))


def test_ratings_beyond_those_seen_fall_into_the_end_bins():
    scale = LabelScale.of(pl.Series(np.linspace(-1, 1, 101)), bins=4)
    assert scale.encode([-1e9, 1e9]).tolist() == [0, 3]
    for missing in (float("nan"), float("inf"), 1e308, -3.5e38):
        with pytest.raises(DataError, match="at position 1 is not on the label scale"):
            scale.encode([0.0, missing])
    with pytest.raises(DataError, match="at position 1 is not on the label scale"):
        scale.encode(pl.Series([0.0, None]))


def test_a_rating_that_takes_most_of_the_mass_leaves_no_bin_empty():
    for heavy in (0, 15, 29):
        ratings = pl.Series([float(heavy)] * 1000 + [float(k) for k in range(30)])
        scale = LabelScale.of(ratings, bins=10)
        counts = np.bincount(scale.encode(ratings), minlength=scale.size)
        assert scale.size == 10, "the bins that it saves go to the others"
        assert sorted(counts)[-1] == 1001, "it has a bin of its own"
        assert 1 <= counts.min() <= sorted(counts)[-2] <= 4
        assert counts.sum() == 1030


def test_spare_bins_are_shared_by_mass_where_values_are_heavy_among_the_rest():
    ratings = pl.Series([0.0] * 1001 + [50.0] * 300 + [float(k) for k in range(1, 30)])
    scale = LabelScale.of(ratings, bins=20)
    assert np.bincount(scale.encode(ratings)).tolist()[0] == 1001
    assert np.bincount(scale.encode(ratings)).tolist()[-1] == 300
    assert scale.size == 20
    # Twice as many ratings to the left of the heavy value as to the right.
    uneven = pl.Series([100.0] * 5000 + [float(k) for k in (*range(40), *range(200, 220))])
    labels = LabelScale.of(uneven, bins=13).encode([39.0, 100.0, 219.0]).tolist()
    assert labels == [7, 8, 12]


def test_bins_enough_for_every_value_give_each_its_own():
    ratings = pl.Series([*range(101), *[50] * 500])
    scale = LabelScale.of(ratings, bins=255)
    assert scale.values == tuple(map(float, range(101)))
    assert scale.encode([0, 50, 100]).tolist() == [0, 50, 100]


ANY_RATINGS = st.one_of(
    st.lists(st.floats(-1e6, 1e6), min_size=21, max_size=200, unique=True),
    st.lists(st.integers(-1000, 1000).map(lambda k: k / 100), min_size=21, max_size=400),
    # Heavy ties, and neighbouring numbers with nothing between them.
    st.lists(st.integers(0, 60), min_size=30, max_size=60, unique=True).flatmap(
        lambda some: st.lists(st.sampled_from([some[0]] * 30 + some), min_size=50, max_size=500)
    ),
    st.integers(0, 80).map(lambda k: list(np.float64(1) + np.arange(21 + k) * 2.0**-52)),
)


@given(ratings=ANY_RATINGS, bins=st.integers(2, 40), seed=st.integers(0, 9))
def test_bins_are_monotone_balanced_and_keep_the_mean(ratings, bins, seed):
    given_p = np.asarray(ratings, dtype=np.float64)
    distinct, counts = np.unique(given_p, return_counts=True)
    assume(len(distinct) > MAX_DISTINCT)
    scale = LabelScale.of(pl.Series(given_p), bins=bins)
    shuffled = np.random.default_rng(seed).permutation(given_p)
    assert LabelScale.of(pl.Series(shuffled), bins=bins) == scale, "order must not matter"
    assert 2 <= scale.size <= bins
    assert list(scale.values) == sorted(set(scale.values))

    labels = scale.encode(distinct)
    assert (np.diff(labels.astype(int)) >= 0).all(), "monotone"
    assert set(labels) == set(range(scale.size)), "no label is empty"
    mass = np.bincount(labels, weights=counts)
    assert mass @ np.asarray(scale.values) == pytest.approx(given_p.sum(), rel=1e-9, abs=1e-9)

    share = given_p.size / bins
    for label in range(scale.size):
        own = counts[labels == label]
        # A value is never cut in two, so a bin of several is as full as they allow.
        assert len(own) == 1 or mass[label] <= share + own.max()
        if len(distinct) > bins:
            assert mass[label] >= share - counts.max()
    if counts.max() == 1 and len(distinct) > bins:
        assert mass.max() - mass.min() <= 1


@given(ratings=ANY_RATINGS, bins=st.integers(2, 40))
def test_a_binned_scale_comes_back_from_a_file(ratings, bins):
    assume(len(set(ratings)) > MAX_DISTINCT)
    scale = LabelScale.of(pl.Series(np.asarray(ratings, dtype=np.float64)), bins=bins)
    saved = json.loads(json.dumps([scale.values, scale.edges]))
    assert LabelScale.restored(*saved) == scale


def test_a_long_column_is_encoded_as_a_short_one():
    scale = LabelScale((1.0, 2.0, 3.0))
    ratings = np.tile([1.0, 3.0, 2.0], 700_000)
    assert (scale.encode(ratings) == np.tile([0, 2, 1], 700_000)).all()
    ratings[-1] = 7
    with pytest.raises(DataError, match="rating 7 at position 2099999"):
        scale.encode(ratings)
