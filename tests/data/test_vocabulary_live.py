"""Ids that come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cfuica.data.vocabulary
from cfuica.data.vocabulary import LiveVocabulary, Vocabulary
from cfuica.errors import DataError


def live(ids: list[Any], dtype: Any = None) -> LiveVocabulary:
    return LiveVocabulary("user", Vocabulary.from_ids(pl.Series("id", ids, dtype)))


def encoded(ids: LiveVocabulary, asked: list[Any]) -> list[int]:
    """Looked up one by one and together."""
    found = []
    for few in (0, len(asked)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cfuica.data.vocabulary, "FEW", few)
            found.append(ids.encode(pl.Series(asked)).tolist())
    assert found[0] == found[1]
    return found[0]


steps = st.lists(
    st.tuples(st.sampled_from(["add", "forget"]), st.lists(st.integers(-3, 12), max_size=4)),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(base=st.sets(st.integers(-3, 8), max_size=6), steps=steps, as_text=st.booleans())
def test_they_are_a_dictionary(base: set[int], steps: list[Any], as_text: bool) -> None:
    def own(one: int) -> Any:
        return f"u{one}" if as_text else one

    ids = live([own(one) for one in base], pl.String if as_text else pl.Int64)
    in_order = sorted(map(own, base))
    truth = {one: index for index, one in enumerate(in_order)}
    names = [*in_order, None]
    for what, several in steps:
        asked = list(dict.fromkeys(map(own, several)))
        if what == "add":
            new = [one for one in asked if one not in truth]
            assert ids.add(new) == len(new)
            truth |= {one: len(names) + at for at, one in enumerate(new)}
            names += new
        else:
            for one in asked:
                if one in truth:
                    ids.forget(truth.pop(one))
        all_rows = [own(one) for one in range(-4, 14)]
        assert encoded(ids, all_rows) == [truth.get(one, -1) for one in all_rows]
        assert [ids.find(one) for one in all_rows] == [truth.get(one, -1) for one in all_rows]
        assert ids.size == len(truth)
        present = ids.present()
        assert present.dtype == np.int32
        assert ids.decode(present).to_list() == sorted(truth)
        assert [truth[one] for one in sorted(truth)] == present.tolist()
        assert (
            ids.example == ""
            if not truth
            else ids.example.removeprefix(", such as ") in map(repr, truth)
        )


def test_nobody_has_an_index_and_no_id() -> None:
    ids = live([5, 7])
    assert ids.unknown_index == 2
    ids.add([9])
    assert encoded(ids, [9, 5]) == [3, 0]
    assert ids.decode(np.array([2, 3, 0])).to_list() == [None, 9, 5]


def test_text_meets_whole_numbers_as_it_is_written() -> None:
    ids = live([5, 7], pl.Int32)
    ids.add([300])
    assert encoded(ids, ["5", "300", "007", " 7", "+7", "7.0", "x", ""]) == [0, 3, *[-1] * 6]
    assert [ids.name(one) for one in ("5", 5, "007", "x")] == [5, 5, None, None]
    assert encoded(ids, [5.0, 300.0]) == [0, 3]
    ids.check(pl.Series(["12", "-3"]))
    for wrong in ("007", " 7", "x", ""):
        with pytest.raises(DataError, match=f"user '{wrong}' cannot be added: .*such as 5"):
            ids.check(pl.Series(["12", wrong]))


def test_whole_numbers_meet_text_by_their_text() -> None:
    ids = live(["5", "seven"])
    ids.check(pl.Series([5, 6]))
    ids.add(ids.names(pl.Series([6])))
    assert encoded(ids, [5, 6, 7]) == [0, 3, -1]
    assert ids.name(6) == "6"
    assert ids.decode(np.array([3])).to_list() == ["6"]


@pytest.mark.parametrize("dtype", [pl.UInt64, pl.Int64, pl.UInt8, pl.Int16])
def test_new_users_and_items_may_be_larger_than_the_type_of_those_known(dtype: Any) -> None:
    ids = live([5, 7], dtype)
    large = 2**64 - 1 if dtype == pl.UInt64 else 2**63 - 1
    asked = pl.Series([large], dtype=pl.UInt64)
    ids.check(asked)
    ids.add(ids.names(asked))
    assert encoded(ids, asked) == [3]
    assert ids.decode(np.array([3, 0])).to_list() == [large, 5]
    assert ids.decode(ids.present()).to_list() == [5, 7, large]


def test_a_kind_without_negative_numbers_takes_in_none() -> None:
    ids = live([5], pl.UInt64)
    assert ids.name(-1) is None
    with pytest.raises(DataError, match="user -1 cannot be added"):
        ids.check(pl.Series([-1]))


def test_ids_are_shown_as_the_model_has_them_where_all_can_be() -> None:
    ids = live([5, 7])
    assert ids.shown(pl.Series(["5", "8"])).to_list() == [5, 8]
    assert ids.shown(pl.Series(["5", "x"])).to_list() == ["5", "x"]
    assert live(["a"]).shown(pl.Series([5])).to_list() == ["5"]


def test_a_forgotten_id_is_not_in_any_message() -> None:
    ids = live([5, 7])
    ids.forget(0)
    assert ids.example == ", such as 7"
    ids.forget(1)
    assert ids.example == ""
    ids.add([9])
    assert ids.example == ", such as 9"
