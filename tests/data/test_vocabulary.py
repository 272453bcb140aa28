"""External ids to indices and back."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError

integers = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)
# Everything that UTF-8 can hold, control characters and digits included.
texts = st.lists(st.text(st.characters(codec="utf-8")), min_size=1)


@settings(max_examples=100, deadline=None)
@given(st.one_of(integers, texts))
def test_ids_come_back_as_they_were(ids):
    series = pl.Series(ids)
    mapping = Vocabulary.from_ids(series)
    index = mapping.encode(series)
    assert index.dtype == np.int32
    back = mapping.decode(index)
    assert back.to_list() == ids
    assert back.dtype == series.dtype
    assert mapping.ids.to_list() == sorted(set(ids))
    assert mapping.size == len(set(ids))


@settings(max_examples=100, deadline=None)
@given(integers, integers)
def test_unknown_ids_are_minus_one(known, asked):
    index = Vocabulary.from_ids(pl.Series(known)).encode(pl.Series(asked))
    assert [at >= 0 for at in index] == [ident in set(known) for ident in asked]


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int64, pl.UInt64])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_dense_ids_are_found_in_any_width_up_to_its_ends(dtype, data):
    low, high = pl.select(low=dtype.min(), high=dtype.max()).row(0)
    base = data.draw(st.sampled_from([low, low // 2, max(low, -3), high - 40]))
    near = st.integers(base, base + 40).filter(lambda ident: low <= ident <= high)
    if high < 256:
        near = st.integers(low, high)
    known = data.draw(st.lists(near, min_size=15))
    asked = data.draw(st.lists(near | st.sampled_from([low, high]), min_size=60))
    index = Vocabulary.from_ids(pl.Series(known, dtype=dtype)).encode(pl.Series(asked, dtype=dtype))
    ordered = sorted(set(known))
    expected = [ordered.index(ident) if ident in ordered else -1 for ident in asked]
    assert index.tolist() == expected
    assert index.dtype == np.int32


def test_integers_sort_as_numbers_and_strings_as_text():
    assert Vocabulary.from_ids(pl.Series([10, 9, 2])).ids.to_list() == [2, 9, 10]
    assert Vocabulary.from_ids(pl.Series(["10", "9", "2"])).ids.to_list() == ["10", "2", "9"]


def test_text_finds_an_integer_only_in_its_own_form():
    mapping = Vocabulary.from_ids(pl.Series([7, 42]))
    asked = pl.Series(["42", "042", " 42", "x", "7", None])
    assert mapping.encode(asked).tolist() == [1, -1, -1, -1, 0, -1]


def test_an_integer_finds_its_text():
    mapping = Vocabulary.from_ids(pl.Series(["42", "007", "x"]))
    assert mapping.ids.to_list() == ["007", "42", "x"]
    assert mapping.encode(pl.Series([42, 7])).tolist() == [1, -1]


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt16, pl.Int32, pl.UInt64])
def test_integers_of_any_width_meet_and_keep_their_type(dtype):
    mapping = Vocabulary.from_ids(pl.Series([3, 1], dtype=dtype))
    assert mapping.decode([0]).dtype == dtype
    assert mapping.encode(pl.Series([1, 3, 300, -1], dtype=pl.Int64)).tolist() == [0, 1, -1, -1]


def test_categories_are_text_and_whole_floats_are_integers():
    letters = Vocabulary.from_ids(pl.Series(["b", "a"], dtype=pl.Categorical))
    assert letters.ids.to_list() == ["a", "b"]
    assert letters.ids.dtype == pl.String
    numbers = Vocabulary.from_ids(pl.Series([2.0, 1.0]))
    assert numbers.ids.to_list() == [1, 2]
    assert numbers.ids.dtype == pl.Int64
    assert numbers.encode(pl.Series([2.0, None])).tolist() == [1, -1]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (pl.Series("user", [1.0, 2.5]), "'user' holds the id 2.5"),
        (pl.Series("user", [1.0, float("inf")]), "'user' holds the id inf"),
        (pl.Series("user", [True]), "'user' has type Boolean"),
        (pl.Series("user", [1, None]), "1 of 2 ids in column 'user' are missing"),
    ],
)
def test_what_cannot_be_an_id_is_refused(ids, says):
    with pytest.raises(DataError, match=says):
        Vocabulary.from_ids(ids)


@pytest.mark.parametrize("index", [-1, 2])
def test_decoding_outside_the_map_is_refused(index):
    with pytest.raises(DataError, match=f"Index {index} at position 1 .* 0 to 1"):
        Vocabulary.from_ids(pl.Series([5, 6])).decode([0, index])


def test_decoding_nothing_gives_nothing_of_the_same_type():
    empty = Vocabulary.from_ids(pl.Series(["a"])).decode([])
    assert empty.len() == 0
    assert empty.dtype == pl.String
