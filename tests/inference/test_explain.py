"""Explanations as their readers meet them."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.inference.explain import Explanation, counterfactuals, explain
from cfuica.live.interactions import History
from cfuica.model.calibration import Calibration
from cfuica.model.network import expected_rating
from tests.inference.plain import SIDE_SETS, World

SCHEMAS = {
    "history": {
        "item": pl.String,
        "title": pl.String,
        "rating": pl.Float64,
        "change": pl.Float64,
    },
    "contributions": {
        "contribution": pl.String,
        "interactions": pl.Int64,
        "expected_without": pl.Float64,
        "change": pl.Float64,
    },
    "raters": {"rating": pl.String, "raters": pl.Int64, "change": pl.Float64},
    "distribution": {"rating": pl.Float64, "probability": pl.Float64},
}


def explained(
    world: World, user: int, item: int, *, is_visitor: bool = False, has_titles: bool = True
) -> Explanation:
    live = world.live(has_titles=has_titles)
    found = explain(
        live,
        History(*live.state.history("users", user)) if is_visitor else user,
        item,
        user_id=None if is_visitor else f"user-{user}",
        item_id=f"i{item}",
    )
    assert isinstance(found, Explanation)
    return found


def rated_by(labels: list[int], *, sides: str = "both") -> World:
    """User 0 rated items 1 to 6; item 0 has these labels from users 1, 2, ..."""
    world = World.random(n_users=60, n_labels=5, observed=0, sides=sides)
    world.cells = {(0, item): item % 5 for item in range(1, 7)}
    world.cells |= {(1 + place, 0): label for place, label in enumerate(labels)}
    return world


def test_a_change_is_positive_where_a_interaction_raised_the_prediction():
    world = rated_by([0] * 6 + [4] * 7)
    explanation = explained(world, 0, 0)
    state = world.state()
    found = counterfactuals(state, state.profile(0), 0)
    values = {
        name: expected_rating(logits_qk[None], world.values_k)[0].astype(float)
        for name, logits_qk in found.logits.items()
    }
    assert explanation.expected == values["users"][0]
    changes = dict(zip(explanation.history["item"], explanation.history["change"], strict=True))
    for item, value in zip(found.items, values["items"][1:-1], strict=True):
        assert changes[f"i{item}"] == explanation.expected - value
    contributions = explanation.contributions
    np.testing.assert_allclose(
        contributions["change"], explanation.expected - contributions["expected_without"]
    )
    assert contributions["expected_without"].to_list() == [values["items"][-1], values["users"][-1]]
    assert explanation.raters["change"].to_list() == [
        explanation.expected - value for value in values["users"][1:-1]
    ]


def test_the_largest_changes_come_first_with_ids_titles_and_ratings():
    world = rated_by([1] * 9)
    history = explained(world, 0, 0).history
    assert history["change"].abs().to_list() == sorted(history["change"].abs(), reverse=True)
    for item, title, rating, _ in history.iter_rows():
        index = int(item[1:])
        assert title == f"Title of {index}"
        assert rating == world.values_k[world.cells[0, index]]
    assert sorted(history["item"]) == [f"i{index}" for index in range(1, 7)]


def test_interactions_of_no_effect_are_in_order_of_their_items():
    world = rated_by([1] * 9)
    world.truth.sides["items"]["V"][:] = 0
    history = explained(world, 0, 0).history
    assert history["change"].to_list() == [0.0] * 6
    assert history["item"].to_list() == [f"i{index}" for index in range(1, 7)]


@pytest.mark.parametrize("sides", list(SIDE_SETS))
def test_a_model_of_one_side_has_the_parts_it_has(sides):
    explanation = explained(rated_by([0] * 5 + [3] * 8, sides=sides), 0, 0)
    assert (
        explanation.contributions["contribution"].to_list()
        == {
            "both": ["IIC", "UUC"],
            "users": ["UUC"],
            "items": ["IIC"],
        }[sides]
    )
    assert explanation.history.is_empty() == (sides == "users")
    assert explanation.raters.is_empty() == (sides == "items")
    for name, schema in SCHEMAS.items():
        assert dict(getattr(explanation, name).schema) == schema


@settings(max_examples=40, deadline=None)
@given(labels=st.lists(st.integers(0, 4), max_size=25), has_titles=st.booleans())
def test_other_users_are_neither_named_nor_counted_in_small_numbers(labels, has_titles):
    explanation = explained(rated_by(labels), 0, 0, has_titles=has_titles)
    raters = explanation.raters
    assert all(count == 0 or count >= 5 for count in raters["raters"])
    (uuc,) = explanation.contributions.filter(contribution="UUC").rows()
    if 0 < len(labels) < 5:
        # The sign of what they change would say how one of them rated.
        assert uuc == ("UUC", None, None, None)
        assert raters.is_empty()
        line = "Not shown: what others rated the item, because fewer than 5 others rated the item"
        assert f"{line} (UUC)." in str(explanation).splitlines()
    else:
        assert uuc[1] == raters["raters"].sum() == len(labels)
        assert uuc[3] == explanation.expected - uuc[2]
    if not labels:
        assert raters["rating"].to_list() == ["-1 to 13"]
    for name, schema in SCHEMAS.items():
        assert dict(getattr(explanation, name).schema) == schema
    told = json.dumps(explanation.as_json()) + str(explanation)
    assert "user-0" in told
    assert not any(f"user-{other}" in told for other in range(1, 60))


def test_folded_groups_read_as_a_range():
    raters = explained(rated_by([0, 1] + [2] * 5 + [3] * 4 + [4] * 6), 0, 0).raters
    # The ratings are -1, 1, 4, 8 and 13.
    assert raters["rating"].to_list() == ["-1 to 4", "8-13"]
    assert raters["raters"].to_list() == [7, 10]


def test_an_observed_pair_is_in_neither_count():
    world = rated_by([2] * 8)
    world.cells[0, 0] = 4
    explanation = explained(world, 0, 0)
    assert "i0" not in explanation.history["item"]
    assert explanation.contributions["interactions"].to_list() == [6, 8]
    assert explanation.raters["raters"].to_list() == [8]


def test_the_distribution_is_the_calibrated_one():
    world = rated_by([2] * 8)
    calibration = Calibration(temperature=2.0, widening=0.3)
    live = world.live(has_titles=False, calibration=calibration)
    explanation = explain(live, 0, 0, user_id=0, item_id=0)
    logits_pk = live.state.pair_logits(np.array([0]), np.array([0]))
    expected_k = calibration.distributions(logits_pk, world.values_k)[0]
    assert explanation.distribution["probability"].to_list() == expected_k.tolist()
    assert explanation.distribution["rating"].to_list() == world.values_k.tolist()
    assert expected_k @ world.values_k == pytest.approx(explanation.expected, abs=1e-4)
    assert explanation.title is None
    assert explanation.history["title"].null_count() == 6
    assert explanation.item == 0


def test_json_has_the_same_as_plain_values():
    explanation = explained(rated_by([2] * 8), 0, 0)
    read = json.loads(json.dumps(explanation.as_json()))
    assert read["user"] == "user-0"
    assert read["item"] == "i0"
    assert read["title"] == "Title of 0"
    assert read["expected"] == explanation.expected
    assert read["fewest_raters"] == 5
    for name in SCHEMAS:
        assert read[name] == getattr(explanation, name).to_dicts()


def test_its_text_tells_the_essentials():
    explanation = explained(rated_by([2] * 8), 0, 0)
    text = str(explanation)
    assert text == repr(explanation)
    first, second, *rest = text.splitlines()
    expected = f"{explanation.expected:.2f}"
    assert first == f"Title of 0 (item i0) for user user-0: expected rating {expected}"
    assert second.count("%") == 5
    assert "(IIC, 6 ratings;" in rest[0]
    assert "rated" in rest[1]
    assert rest[6] == "  and 1 more in .history"
    assert "(UUC, 8 ratings;" in rest[7]
    assert rest[8].endswith("8 users who rated it -1 to 13")
    assert "-0.000" not in text


def test_an_anonymous_user_has_no_id():
    explanation = explained(rated_by([2] * 8), 0, 0, is_visitor=True)
    assert explanation.user is None
    assert "an anonymous user with this history" in str(explanation)


def test_nothing_observed_is_explained_too():
    explanation = explained(World.random(observed=0), 0, 0)
    assert explanation.history.is_empty()
    assert dict(explanation.history.schema) == SCHEMAS["history"]
    assert explanation.contributions["interactions"].to_list() == [0, 0]
    assert explanation.raters["raters"].to_list() == [0]
    assert explanation.contributions["change"].to_list() == [0.0, 0.0]
    assert "0 ratings" in str(explanation)
