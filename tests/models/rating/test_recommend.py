"""The best items for users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cfuica.data.table import Interactions
from cfuica.errors import DataError, SettingsError
from cfuica.inference import recommend
from cfuica.inference.recommend import By
from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.recommender import load
from tests.runs.small import TINY, small_table


def test_recommendations_are_the_best_of_what_was_not_seen(model: RatingModel) -> None:
    top = model.recommend([3, 5], 4, by="expected")
    assert top.columns == ["user", "rank", "item", "score", "title"]
    assert top["user"].to_list() == [3] * 4 + [5] * 4
    assert top["rank"].to_list() == [1, 2, 3, 4] * 2
    frame = small_table().frame
    for user in (3, 5):
        seen = set(frame.filter(pl.col("user") == user)["item"])
        rated = set(frame["item"])
        unseen = pl.DataFrame({"item": sorted(rated - seen)}).with_columns(user=user)
        best = model.predict(unseen).sort("prediction", descending=True).head(4)
        mine = top.filter(pl.col("user") == user)
        assert mine["item"].to_list() == best["item"].to_list()
        np.testing.assert_array_equal(mine["score"], best["prediction"])


def test_a_vocabulary_is_taken_wherever_ids_are(model: RatingModel) -> None:
    everyone = model.recommend(model.users, 2)
    assert everyone.equals(model.recommend(model.users.ids, 2))
    assert everyone["user"].n_unique() == 100
    assert model.recommend(3, 2, items=model.items).equals(model.recommend(3, 2))
    assert model.recommend(3, 2, exclude=model.items).is_empty()
    assert model.score(3, model.items).height == model.similar_items(model.items, 1).height == 60


def test_titles_stand_beside_their_items(model: RatingModel) -> None:
    items = small_table().items
    assert items is not None
    titles = dict(items.select("item", "title").iter_rows())
    for row in model.recommend([3], 60).iter_rows(named=True):
        assert row["title"] == titles[row["item"]]


def test_seen_items_are_recommended_when_wanted(model: RatingModel) -> None:
    every = model.recommend([3], 1000, exclude_seen=False)
    rated = small_table().frame["item"].n_unique()
    assert every.height == rated


def test_candidates_can_be_named(model: RatingModel) -> None:
    top = model.recommend([3], 1000, items=[9, 4, 4, 8], exclude_seen=False)
    assert sorted(top["item"]) == [4, 8, 9]
    assert model.recommend([3], items=iter(["4"]), exclude_seen=False)["item"].to_list() == [4]
    assert model.recommend([3], items=[999]).is_empty()
    with pytest.raises(DataError, match="item 999"):
        model.recommend([3], items=[999], unknown="error")


def test_items_can_be_left_out(model: RatingModel) -> None:
    first = model.recommend([3], 3)["item"].to_list()
    rest = model.recommend([3], 60, exclude=[*first, 999], unknown="error")
    assert rest["item"].to_list() == model.recommend([3], 60)["item"].to_list()[3:]
    assert model.recommend([3], 2, exclude=str(first[0]))["item"].to_list() == first[1:]


@pytest.mark.parametrize("by", ["expected", "blend", "lower"])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_scores_are_what_they_are_said_to_be(live: RatingModel, by: By, exclude_seen: bool) -> None:
    """Of users who are known, new users and items and unknown, and of items of all these kinds."""
    live.observe([(1000, item, float(1 + item % 5)) for item in range(1, 9)])
    live.observe([(user, 500 + user % 2, 4.0) for user in (1, 2, 3, 1000, 1001)])
    users = [3, 1, 1000, 1001, 9999]
    top = live.recommend(users, 1000, by=by, exclude_seen=exclude_seen, min_support=0)
    now = live.snapshot()
    seen = now.interactions.by_user
    own = {user: index for index, user in enumerate(now.users.ids)}
    for user in users:
        mine = top.filter(pl.col("user") == user)
        has_seen = np.diff(seen.offsets)[own[user]] if user in own else 0
        assert mine.height == now.items.size - has_seen * exclude_seen
        assert mine["rank"].to_list() == list(range(1, mine.height + 1))
        assert (np.diff(mine["score"]) <= 0).all()
    pairs = top.select("user", "item")
    support = np.diff(now.interactions.by_item.offsets)
    place = now.items.encode(top["item"])
    predicted = live.predict(pairs)["prediction"].to_numpy()
    if by == "expected":
        np.testing.assert_array_equal(top["score"], predicted)
    elif by == "blend":
        average = support.sum() / np.count_nonzero(support)
        doublings = np.log2((support[place] + 1) / (average + 1))
        np.testing.assert_allclose(top["score"], predicted + 0.1 * doublings, rtol=1e-5)
    else:
        p_pk = live.predict_proba(pairs)
        part_pk = np.diff(np.minimum(p_pk.cumsum(1), 0.1), axis=1, prepend=0)
        np.testing.assert_allclose(top["score"], part_pk @ np.arange(1, 6) / 0.1, rtol=1e-3)


def test_equal_scores_are_in_the_order_of_the_ids(live: RatingModel) -> None:
    live.observe([(1, item, 5.0) for item in (803, 801, 802, 77)])
    top = live.recommend(2, items=[801, 802, 803, 77])
    assert top["score"].n_unique() == 1
    assert top["item"].to_list() == [77, 801, 802, 803]


def test_new_items_are_shown_to_those_who_are_known(live: RatingModel) -> None:
    live.observe([(user, 777, 5.0) for user in range(1, 40)])
    top = live.recommend(50, 1000)
    assert 777 in top["item"]
    assert top.filter(pl.col("item") == 777)["title"].to_list() == [None]
    assert 777 not in live.recommend(1, 1000)["item"]


def test_new_items_are_scored_in_blocks(live: RatingModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pair by pair, all users of a large model times its new users and items would take forever."""
    live.observe([(user, item, 5.0) for user in range(1, 40) for item in range(700, 720)])
    expected = live.recommend(range(1, 91), 5, items=range(700, 720), by="expected")
    pairs = expected.select("user", "item")
    assert live.predict(pairs)["prediction"].to_list() == expected["score"].to_list()
    whole, asked = live.recommend(range(1, 91), 5), []
    state = live.live_model.states["cold_start"]

    def counted(users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        asked.append(len(users_p))
        return type(state).pair_logits(state, users_p, items_p)

    monkeypatch.setattr(state, "pair_logits", counted)
    assert live.recommend(range(1, 91), 5).equals(whole)
    assert sum(asked) < 90 * 20 / 2  # those alone that may be among the best


def test_items_are_chosen_by_what_is_known_of_them(live: RatingModel) -> None:
    top = live.recommend(3, 1000, where={"year": [1991, 1993], "series": 2})
    assert set(top["item"]) == {
        row["item"]
        for row in live.recommend(3, 1000).iter_rows(named=True)
        if row["item"] % 5 in (1, 3) and row["item"] % 7 == 2
    }
    genre = live.live_model.item_metadata["genres"].explode()[0]
    some = live.recommend(3, 1000, where={"genres": genre})
    assert 0 < some.height < live.recommend(3, 1000).height
    assert live.recommend(3, where={"year": 1066}).is_empty()
    live.observe([(1, 777, 5.0)])
    assert (
        777 not in live.recommend(3, 1000, where={"year": [1990, 1991, 1992, 1993, 1994]})["item"]
    )


def test_a_list_holds_only_so_many_of_a_group(live: RatingModel) -> None:
    every = live.recommend([3, 4], 1000, exclude_seen=False)
    top = live.recommend([3, 4], 1000, exclude_seen=False, max_per={"series": 2})
    for user in (3, 4):
        counts: dict[int, int] = {}
        kept = []
        for item in every.filter(pl.col("user") == user)["item"]:
            counts[item % 7] = counts.get(item % 7, 0) + 1
            if counts[item % 7] <= 2:
                kept.append(item)
        assert top.filter(pl.col("user") == user)["item"].to_list() == kept


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"by": "best"}, "by is 'best', but"),
        ({"where": {"colour": "red"}}, "column 'colour', which the items do not have"),
        ({"where": {"year": "old"}}, "'old' in the column 'year', which holds numbers"),
        ({"max_per": {"series": 0}}, "max_per allows 0 items"),
        ({"min_support": -1}, "min_support is -1"),
        ({"min_support": 0.5}, "min_support is 0.5"),
        ({"unknown": "drop"}, "unknown is 'drop'"),
        ({"n": 2.5}, "n is 2.5"),
        ({"n": True}, "n is True"),
        ({"history": [(1, 5.0)]}, "Users and a history were given"),
    ],
)
def test_rules_that_cannot_be_followed_are_explained(
    with_cold: RatingModel, rules: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        with_cold.recommend(3, **rules)


def test_items_that_few_rated_are_left_out(model: RatingModel) -> None:
    counts = small_table().frame["item"].value_counts()
    enough = set(counts.filter(pl.col("count") >= 30)["item"])
    assert 0 < len(enough) < 60
    every = model.recommend([3], 1000, exclude_seen=False, min_support=30)
    assert set(every["item"]) == enough
    assert model.recommend([3], min_support=10**6).is_empty()


ONE = {"user": [3, 3], "rating": [1, 2]}


@pytest.mark.parametrize(
    "user",
    [
        *(3, "3", 3.0, np.int64(3), [3], (3,), {3}, range(3, 4), np.array([3]), [np.int8(3)]),
        *(pl.Series([3, 3]), pl.Series("id", ["3"]), iter([3]), pl.DataFrame({"whom": ["3"]})),
        *(
            pl.DataFrame(ONE),
            pl.LazyFrame(ONE),
            ONE,
            Interactions.from_frame(small_table().frame).frame.filter(user=3),
        ),
    ],
)
def test_users_may_be_given_in_any_form_and_are_served_once(model: RatingModel, user: Any) -> None:
    assert model.recommend(user, 2).equals(model.recommend([3], 2))


@pytest.mark.parametrize(
    ("users", "kind"),
    [
        (pd.Series([3, 5]), pd.DataFrame),
        (pd.DataFrame({"user": [3, 5]}, index=[8, 9]), pd.DataFrame),
        (pd.Index([3, 5]), pd.DataFrame),
        (pa.table({"user": [3, 5]}), pa.Table),
        (pa.array([3, 5]), pa.Table),
    ],
)
def test_the_list_is_of_the_library_the_users_are_of(
    model: RatingModel, users: Any, kind: type
) -> None:
    top = model.recommend(users, 2)
    assert isinstance(top, kind)
    assert pl.DataFrame(top).equals(model.recommend([3, 5], 2))


def test_users_stay_in_their_order_and_unknown_ones_keep_their_ids(model: RatingModel) -> None:
    top = model.recommend(["5", "x", "3", "5"], 2)
    assert top["user"].to_list() == ["5", "5", "x", "x", "3", "3"]
    assert model.recommend(["5", "999"], 1)["user"].to_list() == [5, 999]


def test_blocks_change_nothing(model: RatingModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model.recommend(range(1, 101), exclude_seen=False)
    monkeypatch.setattr(recommend, "BLOCK_BYTES", 61 * 5 * 4 * 7)
    assert model.recommend(range(1, 101), exclude_seen=False).equals(whole)


@pytest.mark.parametrize(
    ("users", "n", "message"),
    [
        (None, 10, "No user was given"),
        ([3, "three"], 10, "user 'three' cannot stand in one column with 3"),
        ([3, None], 10, "user in row 2 is missing"),
        ([None], 10, "user in row 1 is missing"),
        (pl.DataFrame({"a": [1], "b": [2]}), 10, "no column 'user': its columns are a, b"),
        ([1.5], 10, "holds the id 1.5"),
        (True, 10, "has type Boolean"),
        ([b"3"], 10, "has type Binary"),
        (object(), 10, "has type Object"),
        ([3], 0, "n is 0"),
        ([3], -1, "n is -1"),
    ],
)
def test_what_cannot_be_recommended_is_explained(
    model: RatingModel, users: Any, n: int, message: str
) -> None:
    with pytest.raises((DataError, SettingsError), match=message):
        model.recommend(users, n)


def test_unknown_users_are_refused_where_that_is_asked_for(model: RatingModel) -> None:
    assert model.recommend(["42x"], 3).height == 3
    with pytest.raises(DataError, match="user '42x'"):
        model.recommend(["42x"], unknown="error")


@pytest.mark.parametrize("sides", ["users", "items"])
@pytest.mark.parametrize("cold_start", [0, 4])
def test_one_sided_models_recommend_to_everybody(sides: str, cold_start: int) -> None:
    settings = TINY.replaced(sides=sides, cold_start_units=cold_start, max_steps=2)
    model = RatingModel(settings).fit(small_table())
    model.observe([(1000, item, 5.0) for item in (1, 2, 700)])
    top = model.recommend([3, 1000, 9999], 1000, by="expected", exclude_seen=False)
    assert top["user"].unique().sort().to_list() == [3, 1000, 9999]
    assert 700 in top["item"]
    np.testing.assert_array_equal(
        model.predict(top.select("user", "item"))["prediction"], top["score"]
    )
    anonymous = model.recommend(history=[(1, 5.0), (2, 5.0)], n=1000, by="expected")
    assert anonymous.height > 50


def test_titles_meet_their_items_by_text_and_the_first_one_counts(tmp_path: Path) -> None:
    item_metadata = {
        "item": ["2", "2", "1", "unheard of"],
        "title": ["Two", "Second", "One", "None"],
    }
    table = Interactions.from_frame(small_table().frame, items=pl.DataFrame(item_metadata))
    model = RatingModel(TINY.replaced(max_steps=1)).fit(table)
    for one in (model, load(model.save(tmp_path / "model"))):
        top = one.recommend([3], 60, exclude_seen=False)
        assert top.height == small_table().frame["item"].n_unique()
        titles = dict(top.select("item", "title").iter_rows())
        assert (titles[1], titles[2], titles[3]) == ("One", "Two", None)


def test_a_retired_item_is_neither_recommended_nor_similar(
    live: RatingModel, tmp_path: Path
) -> None:
    best, near = live.recommend(3, 1)["item"][0], live.similar_items(5, 1)["similar"][0]
    before = live.predict([(3, best), (3, near)])
    assert live.retire([best, near]) == len({best, near})
    live.observe([(4, best, 5.0), (4, near, 1.0)])  # observed again, and still retired
    live.remove([(4, best), (4, near)])
    again = load(live.save(tmp_path / "model"))
    for model in (live, again):
        assert not {best, near} & set(model.recommend([3, 7], 99)["item"])
        assert not {best, near} & set(model.similar_items([5, near], 99)["similar"])
        assert model.recommend(history=[], n=99)["item"].is_in([best, near]).sum() == 0
        assert model.similar_items(near, 3).height == 3  # a question about it is answered
        assert model.predict([(3, best), (3, near)])["user"].equals(before["user"])
    assert again.retire(best, retired=False) == 1
    assert best in again.recommend(3, 99)["item"]
    with pytest.raises(DataError, match=r"item 12345 .* is unknown to this model"):
        live.retire([best, 12345])


@pytest.mark.parametrize("kind", ["mapping", "polars", "pandas"])
def test_each_user_has_exclusions_of_their_own(model: RatingModel, kind: str) -> None:
    users = [3, 777, 7]  # 777 is unknown, like 778
    tops = {user: model.recommend(user, 99)["item"].to_list() for user in users}
    own = {3: tops[3][:2], 777: [tops[777][0]], 778: tops[777][1:3], 12: tops[7][:1]}
    rows = [(user, item) for user, items in own.items() for item in items]
    frame = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    exclude = {"mapping": own, "polars": frame, "pandas": frame.to_pandas()}[kind]
    found = model.recommend(users, 99, exclude=exclude)
    for user in users:
        expected = [item for item in tops[user] if item not in own.get(user, [])]
        assert found.filter(pl.col("user") == user)["item"].to_list() == expected
    with pytest.raises(SettingsError, match="give items alone"):
        model.recommend(history=[(1, 5.0)], exclude=exclude)


def test_nothing_is_known_of_an_empty_history(model: RatingModel) -> None:
    unknown = model.recommend(777, 99).drop("user")
    assert model.recommend(history=[], n=99).equals(unknown)
    assert model.recommend(history=pl.DataFrame({"item": [], "rating": []}), n=99).equals(unknown)


@pytest.mark.parametrize("by", ["expected", "lower", "blend"])
@pytest.mark.parametrize("rules", [{}, {"exclude_seen": False}, {"max_per": {"series": 1}}])
def test_many_users_get_what_each_gets_alone(
    live: RatingModel, by: By, rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, warm and cold-start users and items, though matrix products choose the items."""
    live.observe([(user, item, 4.0) for user in (95, 501) for item in (3, 700, 701)])
    users = [*range(1, 97), 501, 502]
    expected = pl.concat([live.recommend(user, 5, by=by, **rules) for user in users])
    asked: list[int] = []
    exact = recommend.LiveScorer.exact

    def counted(scorer: Any, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        asked.append(len(users_p))
        return exact(scorer, users_p, items_p)

    monkeypatch.setattr(recommend.LiveScorer, "exact", counted)
    assert live.recommend(users, 5, by=by, **rules).equals(expected)
    assert asked  # that is how they were chosen


def test_products_of_many_users_are_near_the_scores(live: RatingModel) -> None:
    """Within the error that they state, which is small."""
    live.observe([(501, 3, 4.0), (1, 700, 2.0)])
    users, items = (np.arange(live.live_model.state.size(axis)) for axis in ("users", "items"))
    for by in ("expected", "lower", "blend"):
        scorer = recommend.LiveScorer(live.live_model, by)  # type: ignore[arg-type]
        near_bm, error_b = scorer.near(users, items)
        exact_bm, _ = scorer.block(users, items, seen_too=False)
        assert (np.abs(near_bm - exact_bm).max(1) <= error_b).all()
        assert error_b.max() < 0.05


def test_items_that_cannot_be_told_apart_stay_in_the_order_of_their_ids() -> None:
    """Where all scores are equal, every item may be among the best."""
    model = RatingModel(TINY.replaced(max_steps=1)).fit(small_table())
    for table in model.live_model.state.network.tables.values():
        table.array[:] = 0.0
    top = model.recommend(range(1, 30), 3, exclude_seen=False, by="expected")
    assert top["item"].to_list() == model.items.ids.head(3).to_list() * 29
