"""Whatever a model observed and forgot, it answers like one that was never anything else."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import cfuica
import cfuica.live.live_model
from cfuica.artifact import Artifact, saved_tensors
from cfuica.data.matrix import InteractionMatrix
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError
from cfuica.live.interactions import Observed
from cfuica.models.co_autoregressive import RatingModel
from cfuica.ops.tables import SIDES, SideName
from cfuica.settings import RatingSettings

SMALL = RatingSettings(
    hidden_users=3,
    hidden_items=4,
    batch_users=8,
    batch_items=7,
    learning_rate=0.05,
    schedule="planned",
    max_steps=15,
    estimator="strict",
)
KINDS = {
    "both": SMALL,
    "cold_start": SMALL.replaced(cold_start_units=4, length_normalisation=1),
    "users": SMALL.replaced(sides="users"),
    "items": SMALL.replaced(sides="items", cold_start_units=3),
    "text": SMALL.replaced(cold_start_units=4),
    "clusters": SMALL.replaced(user_clusters=3, item_clusters=2, cluster_factors=2),
    "floor": SMALL.replaced(min_row_interactions=4, cold_start_units=3),
}
# 9 users and 8 items, the last of each without a rating, and more that only come to be observed.
USERS, ITEMS = range(1, 10), range(1, 9)
ALL_USERS, ALL_ITEMS = range(13), range(11)
RATINGS = (1.0, 2.0, 3.0, 4.0, 5.0)

Cell = tuple[Any, Any]


@cache
def fitted(kind: str) -> RatingModel:
    """A small model; look, do not touch."""
    rng = np.random.default_rng(3)
    grid = [(user, item) for user in USERS[:-1] for item in ITEMS[:-1]]
    rows = [
        (*grid[at], RATINGS[(grid[at][0] * grid[at][1] + at) % 5])
        for at in rng.permutation(len(grid))[:30]
    ]
    frame = pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row")
    unrated = pl.DataFrame({"user": [USERS[-1], 1], "item": [1, ITEMS[-1]], "rating": [0.0, 0.0]})
    frame = pl.concat([frame, unrated])
    item_metadata = pl.DataFrame(
        {
            "item": list(ITEMS),
            "title": [f"Title {item}" for item in ITEMS],
            "series": [item % 3 for item in ITEMS],
        }
    )
    if kind == "text":
        frame, item_metadata = (
            one.with_columns(pl.col("item").cast(pl.String)) for one in (frame, item_metadata)
        )
        frame = frame.with_columns(pl.col("user").cast(pl.String))
    table = Interactions.from_frame(frame, no_rating=(0.0,), items=item_metadata)
    return RatingModel(KINDS[kind]).fit(table)


def fresh(kind: str, **changes: Any) -> RatingModel:
    """A model of its own with the same parameters."""
    model = fitted(kind)
    return RatingModel.from_artifact(replace(copy.deepcopy(model.artifact), **changes))


@dataclass
class Truth:
    """What a model knows, in the plainest form."""

    kind: str
    cells: dict[Cell, float]
    rows: dict[SideName, dict[Any, int]]
    """The row of each known id; that of cold-start users and items is -1."""

    @classmethod
    def of(cls, kind: str) -> Truth:
        warm = fitted(kind).artifact
        users, items, labels = warm.interactions.triplets()
        names = zip(warm.users.decode(users), warm.items.decode(items), strict=True)
        rows = {
            axis: dict(
                zip(getattr(warm, axis).ids.to_list(), warm.rows[axis].tolist(), strict=True)
            )
            for axis in SIDES
        }
        return cls(kind, {pair: RATINGS[k] for pair, k in zip(names, labels, strict=True)}, rows)

    def named(self, one: int) -> Any:
        return str(one) if self.kind == "text" else one

    def observe(self, events: list[tuple[int, int, float | None]]) -> Observed:
        counts = dict.fromkeys(("added", "changed", "removed", "new_users", "new_items"), 0)
        for pair, rating in {(u, i): rating for u, i, rating in events}.items():
            cell = (self.named(pair[0]), self.named(pair[1]))
            if rating is None:
                counts["removed"] += self.cells.pop(cell, None) is not None
                continue
            counts["added"] += cell not in self.cells
            counts["changed"] += self.cells.get(cell, rating) != rating
            self.cells[cell] = rating
            for axis, one in zip(SIDES, cell, strict=True):
                counts[f"new_{axis}"] += one not in self.rows[axis]
                self.rows[axis].setdefault(one, -1)
        return Observed(**counts)

    def forget(self, user: Any) -> int:
        gone = [cell for cell in self.cells if cell[0] == user]
        for cell in gone:
            del self.cells[cell]
        del self.rows["users"][user]
        return len(gone)

    def model(self) -> RatingModel:
        """Made from the parameters of training and all the data, at once."""
        warm = fitted(self.kind).artifact
        ids = {axis: Vocabulary.from_ids(pl.Series(list(self.rows[axis]))) for axis in SIDES}
        rows = {}
        for axis in SIDES:
            side = warm.networks["warm"].sides.get(axis)
            own = [self.rows[axis][one] for one in ids[axis].ids]
            rows[axis] = np.array(own, np.int32)
            rows[axis][rows[axis] < 0] = side.shared_row if side else 0
        cells = list(self.cells)
        interactions = InteractionMatrix.from_triplets(
            ids["users"].encode(pl.Series([user for user, _ in cells], dtype=self.dtype)),
            ids["items"].encode(pl.Series([item for _, item in cells], dtype=self.dtype)),
            np.array([RATINGS.index(rating) for rating in self.cells.values()], np.int64),
            n_users=ids["users"].size,
            n_items=ids["items"].size,
            n_labels=5,
        )
        item_metadata = pl.DataFrame({"item": ids["items"].ids})
        item_metadata = item_metadata.join(
            warm.item_metadata, on="item", how="left", maintain_order="left"
        )
        return fresh(
            self.kind, **ids, rows=rows, interactions=interactions, item_metadata=item_metadata
        )

    @property
    def dtype(self) -> Any:
        return pl.String if self.kind == "text" else pl.Int64


def explained(model: RatingModel, *asked: Any, **options: Any) -> dict[str, Any]:
    """All but the number of changes, which a model made at once has not seen."""
    found = model.explain(*asked, **options).as_json()
    del found["sequence"]
    return found


def answers(model: RatingModel, pairs: list[tuple[int, int]]) -> dict[str, Any]:
    """All that can be asked, to compare bit for bit; `pairs` are explained."""
    grid = pl.DataFrame({"user": ALL_USERS}).join(pl.DataFrame({"item": ALL_ITEMS}), how="cross")
    all_rows = list(ALL_USERS)
    found: dict[str, Any] = {
        "predict": model.predict(grid).to_dicts(),
        "proba": model.predict_proba(grid).tolist(),
        "blend": model.recommend(all_rows).to_dicts(),
        "expected": model.recommend(
            all_rows, 99, by="expected", exclude_seen=False, min_support=0
        ).to_dicts(),
        "lower": model.recommend(all_rows, 3, by="lower", max_per={"series": 1}).to_dicts(),
        "visitor": model.recommend(
            history=[(2, 5.0), (3, 1.0), (10, 2.0)], exclude_seen=False, min_support=0
        ).to_dicts(),
    }
    for user, item in pairs:
        found[f"explain {user} {item}"] = explained(model, user, item)
    found["explain visitor"] = explained(model, None, 1, history=[(2, 5.0), (3, 1.0)])
    for name, ask, asked in (
        ("items", model.similar_items, ALL_ITEMS),
        ("users", model.similar_users, ALL_USERS),
    ):
        try:
            found[f"similar {name}"] = ask(list(asked), 4, min_support=1).to_dicts()
        except DataError as error:  # nothing is known of any
            found[f"similar {name}"] = str(error)
    return found


MANY = 4
an_event = st.tuples(
    st.sampled_from(ALL_USERS[1:]),
    st.sampled_from(ALL_ITEMS[1:]),
    st.one_of(st.sampled_from(RATINGS), st.none()),
)
few_events = st.lists(an_event, min_size=1, max_size=MANY - 1)
many_events = st.lists(an_event, min_size=MANY, max_size=9, unique_by=lambda event: event[:2])
FORMS = ("list", "polars", "pandas", "timed list", "table")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), few_events, st.sampled_from(FORMS)),
        st.tuples(st.just("observe"), many_events, st.sampled_from(FORMS)),
        st.tuples(st.just("observe"), st.lists(an_event, min_size=1, max_size=1), st.just("list")),
        st.tuples(st.just("forget"), st.sampled_from(ALL_USERS), st.none()),
        st.tuples(st.just("look"), st.none(), st.none()),
    ),
    max_size=9,
)
some_pairs = st.lists(
    st.tuples(st.sampled_from(ALL_USERS), st.sampled_from(ALL_ITEMS)), min_size=1, max_size=3
)


def observed(model: RatingModel, form: str, told: list[tuple[int, int, float | None]]) -> Observed:
    """What the model makes of events in some form; those without a rating are removals."""
    if all(rating is None for *_, rating in told):
        return model.remove([event[:2] for event in told])
    return model.observe(given_as(form, told))


def given_as(form: str, told: list[tuple[int, int, float | None]]) -> Any:
    all_stay = all(rating is not None for *_, rating in told)
    if form == "list" and all_stay:
        return told
    if form == "timed list" and all_stay:
        return [(*event, at) for at, event in enumerate(told)]
    frame = pl.DataFrame(
        told, schema={"user": pl.Int64, "item": pl.Int64, "rating": pl.Float64}, orient="row"
    )
    frame = frame.with_columns(removed=pl.col("rating").is_null())
    if form == "table":
        return Interactions.from_frame(frame, empty_rating="keep", removals=True)
    if form == "pandas":  # which calls null nan unless it is told not to
        return frame.to_pandas().astype({"rating": "Float64"})
    return frame


@pytest.mark.parametrize("kind", KINDS)
@hypothesis_settings(max_examples=8, deadline=None)
@given(steps=steps, pairs=some_pairs)
def test_a_live_model_answers_like_one_freshly_made_from_all_the_data(
    kind: str, steps: list[tuple[str, Any, Any]], pairs: list[tuple[int, int]]
) -> None:
    model, truth = fresh(kind), Truth.of(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cfuica.live.live_model, "MANY_EVENTS", MANY)
        for what, which, form in steps:
            if what == "observe":
                assert observed(model, form, which) == truth.observe(which)
            elif what == "look":
                model.recommend([1, 9, 11], by="expected")
                model.predict({"user": [1, 2, 11], "item": [1, 9, 3]})
            elif truth.named(which) in truth.rows["users"]:
                assert model.forget(which) == truth.forget(truth.named(which))
            else:
                with pytest.raises(DataError, match=f"user {which} is unknown to this model"):
                    model.forget(which)
    found = answers(model, pairs)
    assert answers(truth.model(), pairs) == found
    with tempfile.TemporaryDirectory() as folder:
        again = cfuica.load(model.save(Path(folder) / "model"))
        assert answers(again, pairs) == found
        assert answers(model, pairs) == found  # saving changes nothing
        same_knowledge(model.snapshot(), Artifact.load(Path(folder) / "model"))


def same_knowledge(one: Artifact, other: Artifact) -> None:
    for axis in SIDES:
        assert getattr(one, axis).ids.to_list() == getattr(other, axis).ids.to_list()
        np.testing.assert_array_equal(one.rows[axis], other.rows[axis])
    assert one.interactions.sha256() == other.interactions.sha256()
    for of, network in one.networks.items():
        theirs = saved_tensors(other.networks[of])
        for name, tensor in saved_tensors(network).items():
            np.testing.assert_array_equal(tensor, theirs[name])
        # Sums that followed events have the bits of those that are computed anew.
        for sums in (other.sums.get(of), one.item_sums(of)):
            fresh_sums = replace(other, sums={}).item_sums(of)
            assert np.array_equal(sums, fresh_sums) if sums is not None else fresh_sums is None


def trace_of(folder: Path, user: Any) -> list[str]:
    """Where a saved model still tells of a user."""
    users = pl.read_parquet(folder / "users.parquet")
    found = [] if user not in users["user"].to_list() else ["users.parquet"]
    interactions = pl.read_parquet(folder / "interactions.parquet")
    if not interactions["user"].is_between(0, users.height - 1).all():
        found.append("interactions.parquet")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_forgetting_leaves_no_trace(kind: str, tmp_path: Path) -> None:
    model, before = fresh(kind), fitted(kind).artifact
    user = Truth.of(kind).named(4)
    index = before.users.ids.to_list().index(user)
    row = int(before.rows["users"][index])
    own = (
        before.interactions.by_user.offsets[index + 1] - before.interactions.by_user.offsets[index]
    )
    assert model.forget(user) == own > 0
    folder = model.save(tmp_path / "model")
    assert trace_of(folder, user) == []
    after = cfuica.load(folder).artifact
    assert after.users.ids.to_list() == [one for one in before.users.ids if one != user]
    assert after.interactions.n_interactions == before.interactions.n_interactions - own
    assert before.networks.keys() == after.networks.keys()
    for of, one in before.networks.items():
        other = saved_tensors(after.networks[of])
        for name, tensor in saved_tensors(one).items():
            if not name.endswith((".c", ".A")):
                # Their own rows of all who are left, and that of strangers.
                axis, letter = name.split(".")
                side = one.sides[axis]
                kept = set(before.rows[axis].tolist()) - ({row} if axis == "users" else set())
                kept |= set(range(side.n_own_rows, side.n_rows))
                rows = np.array(sorted(kept))
                tensor = tensor[rows if letter == "b" else np.unique(side.table_rows(rows))]
            np.testing.assert_array_equal(other[name], tensor)


@pytest.mark.parametrize("kind", KINDS)
def test_who_was_forgotten_comes_back_as_a_cold_start(kind: str) -> None:
    model, item = fresh(kind), Truth.of(kind).named(2)
    model.forget(4)
    with pytest.raises(DataError, match="user 4 is unknown to this model, so there is nothing"):
        model.forget(4)
    pairs = {"user": [4, 77], "item": [item] * 2}
    forgotten, unknown = model.predict(pairs)["prediction"]
    assert forgotten == unknown
    again = model.observe([(4, 1, 5.0)])
    assert again == Observed(added=1, new_users=1)
    model.observe([(77, 1, 5.0)])
    forgotten, newcomer = model.predict(pairs)["prediction"]
    assert forgotten == newcomer
    assert model.forget(4) == 1


@pytest.mark.parametrize("many", [1, 10**9])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((2, 1, 7.0), r"rating 7 of user 2 and item 1 is not on the label scale"),
        (("x", 1, 5.0), r"user 'x' cannot be added: .* whole numbers, such as 1; use ids"),
        ((2, "007", 5.0), r"item '007' cannot be added"),
        ((None, 1, 5.0), r"None in column 'user'"),
        ((2, 1.5, 5.0), r"holds the id 1.5"),
        ((2, 1, float("nan")), r"nan in column 'rating'"),
        ((2, 1, None), r"user 2 and item 1 in a frame has no rating; .* 'removed', model.remove"),
        (
            (2, 1, "five"),
            r"'five' in column 'rating'|rating 'five' cannot stand in one column with 2",
        ),
        ((2, 1), r"The event \(2, 1\) is not of the form \(user, item, rating\)"),
        (([2], 1, 5.0), r"user \[2\] cannot stand in one column with 1|has type List"),
        ("2,1,5", r"not of the form"),
        (7, r"not of the form"),
    ],
)
def test_where_an_event_is_refused_nothing_is_observed(
    monkeypatch: pytest.MonkeyPatch, many: int, wrong: Any, message: str
) -> None:
    monkeypatch.setattr(cfuica.live.live_model, "MANY_EVENTS", many)
    model, pairs = fresh("cold_start"), [(1, 2)]
    before = answers(model, pairs)
    good = [(1, 1, 2.0), (2, 7, 4.0), (55, 66, 5.0)]
    if isinstance(wrong, tuple) and isinstance(wrong[0], str):
        good = [(str(user), item, rating) for user, item, rating in good]
    if isinstance(wrong, tuple) and isinstance(wrong[1], str):
        good = [(user, str(item), rating) for user, item, rating in good]
    for told in ([wrong], [*good, wrong]):
        with pytest.raises(DataError, match=message) as caught:
            model.observe(told)
        assert str(caught.value).count(". ") == 0, "one sentence"
    assert answers(model, pairs) == before
    assert model.artifact.users.size == len(USERS)


def test_events_that_change_nothing_count_as_nothing() -> None:
    model = fresh("both")
    (user, item), rating = next(iter(Truth.of("both").cells.items()))
    before = answers(model, [(1, 1)])
    told = [(user, item, rating)]
    assert model.observe(told) == model.observe(told * 2) == Observed()
    for pair in ((55, 66), (user, 66), ("x", "y")):
        assert model.remove([pair]) == model.remove([pair] * 2) == Observed()
    assert answers(model, [(1, 1)]) == before


def test_of_several_events_of_a_pair_the_latest_counts() -> None:
    model = fresh("both")
    for told, rating in (
        ([(70, 1, 1.0), (70, 1, 2.0)], 2.0),
        ([(70, 2, 1.0, 200), (70, 2, 2.0, 100)], 1.0),
    ):
        model.observe(told)
        pair = pl.DataFrame({"user": [70], "item": [told[0][1]]})
        history = model.explain(70, 3).history.filter(pl.col("item") == told[0][1])
        assert history["rating"].to_list() == [rating], pair


def test_a_timestamp_is_checked_where_there_is_one_event_too() -> None:
    model = fresh("both")
    for told in ([(1, 1, 2.0, "soon")], [(1, 1, 2.0, "soon"), (2, 1, 2.0, 100)]):
        with pytest.raises(DataError, match="timestamp"):
            model.observe(told)
    assert model.observe([(70, 1, 2.0, 100)]).added == 1


@pytest.mark.parametrize(
    "told",
    [
        [(70, 2, 1.0), (70, 2, 2.0, 100)],
        [(70, 2, 1.0, 100), (70, 2, 2.0)],
        [(70, 2, 1.0, "soon")],
    ],
)
def test_no_time_of_an_event_is_passed_over(told: list[Any]) -> None:
    model = fresh("both")
    with pytest.raises(DataError, match="time"):
        model.observe(told)
    assert model.artifact.users.size == len(USERS)


@pytest.mark.parametrize("given", [b"1", 10**40])
def test_what_is_no_id_is_nobody(given: Any) -> None:
    """The bytes of a text are numbers to Python, and might be somebody's."""
    for ask in (fresh("both").forget, fresh("both").recommend):
        with pytest.raises(DataError, match=r"whole numbers or text|give it as a string"):
            ask(given)


def test_one_event_does_what_it_does_in_a_frame() -> None:
    for event in ((1, 1, 5.0), ("2", "3", 1.0), (55, 1, 2.0), (1, 66, 2.0), ("57", "68", 4.0)):
        alone, framed = fresh("cold_start"), fresh("cold_start")
        frame = pl.DataFrame([event], schema=["user", "item", "rating"], orient="row")
        assert alone.observe([event]) == framed.observe(frame)
        assert answers(alone, [(1, 1)]) == answers(framed, [(1, 1)])


def test_what_was_fitted_stays_and_a_snapshot_is_as_the_model_is_now() -> None:
    model = fresh("cold_start")
    fitted_to, users = model.artifact.interactions.sha256(), model.users.ids.to_list()
    changes = (
        lambda: model.observe([(1, 66, 2.0)]),
        lambda: model.observe([(1, 67, 2.0), (2, 67, 3.0)]),
        lambda: model.forget(2),
    )
    for change in changes:
        before = model.snapshot()
        model.predict({"user": [1], "item": [1]})
        assert model.snapshot().interactions.sha256() == before.interactions.sha256()
        change()
        assert model.snapshot().interactions.sha256() != before.interactions.sha256()
        assert model.artifact.interactions.sha256() == fitted_to
        assert model.users.ids.to_list() == users
