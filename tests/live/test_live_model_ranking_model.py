"""Whatever a ranking model observed and forgot, it answers like one that was never anything
else."""

from __future__ import annotations

import tempfile
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
from cfuica.artifact import saved_tensors
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.live.contexts import ScanStates
from cfuica.live.interactions import Observed
from cfuica.models.co_autoregressive import RankingModel
from cfuica.ops.tables import SIDES
from tests.live.ranking_world import (
    ALL_ITEMS,
    ALL_USERS,
    ITEMS,
    KINDS,
    RATINGS,
    USERS,
    Event,
    Truth,
    artifact_of,
    fresh,
)


def explained(model: RankingModel, *asked: Any, **options: Any) -> dict[str, Any]:
    """All but the number of changes, which a model made at once has not seen."""
    found = model.explain(*asked, **options).as_json()
    del found["sequence"]
    return found


def answers(model: RankingModel, pairs: list[tuple[int, int]]) -> dict[str, Any]:
    """All that can be asked, to compare bit for bit; `pairs` are explained."""
    all_rows = list(ALL_USERS)
    now = RankingModel.from_artifact(model.snapshot())
    users = np.arange(now.users.size)
    found: dict[str, Any] = {
        "recommend": model.recommend(all_rows, 3, max_per={"series": 1}).to_dicts(),
        "seen too": model.recommend(all_rows, 99, exclude_seen=False).to_dicts(),
        "visitor": model.recommend(history=[2, 3, 10], exclude_seen=False, n=99).to_dicts(),
        "scorer": now.scorer().scores(users).tolist(),
        "ids": (now.users.ids.to_list(), now.items.ids.to_list()),
        "seen": now.seen.indices.tolist(),
    }
    for user, item in pairs:
        found[f"explain {user} {item}"] = explained(model, user, item)
    found["explain visitor"] = explained(model, None, 1, history=[2, 3])
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
FORMS = ("list", "polars", "pandas", "table")
an_event = st.tuples(
    st.sampled_from(ALL_USERS[1:]),
    st.sampled_from(ALL_ITEMS[1:]),
    st.one_of(st.sampled_from(RATINGS), st.none()),
    st.integers(0, 8),
)
events = st.lists(an_event, min_size=1, max_size=8, unique_by=lambda event: event[:2])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), events, st.sampled_from(FORMS), st.booleans()),
        st.tuples(
            st.just("observe"),
            st.lists(an_event, min_size=1, max_size=1),
            st.just("list"),
            st.booleans(),
        ),
        st.tuples(st.just("forget"), st.sampled_from(ALL_USERS), st.none(), st.none()),
        st.tuples(st.just("look"), st.none(), st.none(), st.none()),
    ),
    max_size=9,
)
some_pairs = st.lists(
    st.tuples(st.sampled_from(ALL_USERS), st.sampled_from(ALL_ITEMS)), min_size=1, max_size=3
)


def given_as(form: str, told: list[Event], *, timed: bool) -> Any:
    names = ["user", "item", "rating", "timestamp"][: 4 if timed else 3]
    rows = [event[: len(names)] for event in told]
    if form == "list" and all(event[2] is not None for event in told):
        return rows
    schema = {name: pl.Float64 if name == "rating" else pl.Int64 for name in names}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
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
    kind: str, steps: list[tuple[str, Any, Any, Any]], pairs: list[tuple[int, int]]
) -> None:
    model, truth = fresh(kind), Truth.of(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cfuica.live.live_model, "MANY_EVENTS", MANY)
        for what, which, form, timed in steps:
            if what == "observe":
                observed = model.observe(given_as(form, which, timed=timed))
                assert observed == truth.observe(which, timed=timed)
            elif what == "look":
                model.recommend([1, 9, 11])
                model.recommend([2, 3], exclude_seen=False)
            elif truth.named(which) in truth.rows["users"]:
                assert model.forget(which) == truth.forget(truth.named(which))
            else:
                with pytest.raises(DataError, match=f"user {which} is unknown to this model"):
                    model.forget(which)
    found = answers(model, pairs)
    assert answers(truth.model(), pairs) == found
    with tempfile.TemporaryDirectory() as folder:
        again = cfuica.load(model.save(Path(folder) / "model"))
        assert isinstance(again, RankingModel)
        assert answers(again, pairs) == found
        assert answers(model, pairs) == found  # saving changes nothing


def test_the_newest_interaction_is_one_step_and_an_older_one_a_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fresh("decay")
    state = model.live_model.state
    model.recommend(list(USERS))
    states = state.contexts["items"]
    assert isinstance(states, ScanStates)
    followed: list[int] = []
    steps: list[int] = []
    advance, compute = states._advance, states._compute
    monkeypatch.setattr(
        states,
        "_advance",
        lambda offsets, items, states_uh: (
            steps.append(len(items)),
            advance(offsets, items, states_uh),
        ),
    )
    monkeypatch.setattr(
        states, "_compute", lambda users, *given: (followed.extend(users), compute(users, *given))
    )
    model.observe([(1, 10, 1.0, 100)])
    model.recommend(list(USERS))
    assert (steps, followed) == ([1], [])
    model.observe([(1, 9, 1.0, 99)])
    model.recommend(list(USERS))
    assert (steps[1:], followed) == ([state.support("users")[0]], [0])


def test_forgetting_leaves_no_trace(tmp_path: Path) -> None:
    for kind in ("decay", "users", "text"):
        model, before = fresh(kind), artifact_of(kind)
        user = Truth.of(kind).named(4)
        index = before.users.ids.to_list().index(user)
        own = before.interactions.offsets[index + 1] - before.interactions.offsets[index]
        assert model.forget(user) == own > 0
        folder = model.save(tmp_path / kind)
        users = pl.read_parquet(folder / "users.parquet")
        assert user not in users["user"].to_list()
        interactions = pl.read_parquet(folder / "interactions.parquet")
        assert interactions.height == before.interactions.n_interactions - own
        assert interactions["user"].is_between(0, users.height - 1).all()
        after = saved_tensors(cfuica.load(folder).artifact.networks["warm"])
        for name, tensor in saved_tensors(before.networks["warm"]).items():
            if name.startswith("users.") and name != "users.c":
                # Who is left has the own row; the last user never had one, and the last row stays.
                cached = [row for row in range(len(tensor)) if row not in (index, len(USERS) - 1)]
                tensor = tensor[cached]
            np.testing.assert_array_equal(after[name], tensor)


def test_who_was_forgotten_comes_back_as_a_cold_start() -> None:
    model = fresh("decay")
    model.forget(4)
    assert model.observe([(4, 1)]) == Observed(added=1, new_users=1)
    model.observe([(77, 1)])
    mine, theirs = (model.recommend(user).drop("user") for user in (4, 77))
    assert mine.equals(theirs)
    assert model.forget(4) == 1


def test_an_older_interaction_of_a_pair_and_one_that_comes_twice_change_nothing() -> None:
    model = fresh("decay")
    before = answers(model, [(1, 2)])
    assert model.observe([(1, 10, 2.0, 50)]) == Observed(added=1, new_items=1)
    after = answers(model, [(1, 2)])
    assert after != before
    for again in ([(1, 10, 2.0, 50)], [(1, 10, 3.0, 50)], [(1, 10, 3.0, 49)]):
        assert model.observe(again) == Observed()
        assert answers(model, [(1, 2)]) == after


@pytest.mark.parametrize("many", [1, 10**9])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("x", 1, 3.0), r"user 'x' cannot be added: .* whole numbers, such as 1"),
        ((None, 1, 3.0), r"None in column 'user'"),
        ((2, 1, float("nan")), r"nan in column 'rating'"),
        ((2,), r"The event \(2,\) is not of the form \(user, item\)"),
        ((2, 1, 3.0, "soon"), r"'soon'"),
    ],
)
def test_where_an_event_is_refused_nothing_is_observed(
    monkeypatch: pytest.MonkeyPatch, many: int, wrong: Any, message: str
) -> None:
    monkeypatch.setattr(cfuica.live.live_model, "MANY_EVENTS", many)
    model = fresh("decay")
    before = answers(model, [(1, 2)])
    with pytest.raises(DataError, match=message) as caught:
        model.observe([wrong])
    assert str(caught.value).count(". ") == 0, "one sentence"
    assert answers(model, [(1, 2)]) == before
    assert model.artifact.users.size == len(USERS)


def test_a_column_of_events_that_is_refused_leaves_the_rest_out_too() -> None:
    model = fresh("decay")
    told = [("55", 66), ("x", 9)]
    with pytest.raises(DataError, match="user 'x' cannot be added"):
        model.observe(told)
    assert {axis: model.live_model.ids[axis].size for axis in SIDES} == {
        "users": len(USERS),
        "items": len(ITEMS),
    }
