"""A ranking model of events of several types: targets, context, and which items are excluded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import cfuica
from cfuica.errors import CfuicaError
from tests.live.ranking_world import artifact_of, fresh

TYPES = ("view", "cart", "purchase")


@pytest.fixture
def model() -> cfuica.RankingModel:
    """Interactions 0, 1, 2, 3 ... are a view, a cart, a purchase, a view ..."""
    line = artifact_of("decay").interactions
    types = (np.arange(line.n_interactions) % 3).astype(np.uint8)
    return fresh("decay", interactions=replace(line, types=types), types=TYPES)


def history(model: cfuica.RankingModel, user: int) -> dict[int, str]:
    """Item to the type of its interaction."""
    live = model.live_model
    index = live.ids["users"].find(user)
    items = live.ids["items"].decode(live.state.history("users", index)[0]).to_list()
    return dict(zip(items, (TYPES[at] for at in live.state.types(index)), strict=True))


@pytest.mark.parametrize("excluded", ["purchase", ["cart", "purchase"], [], list(TYPES)])
def test_only_items_of_these_types_are_excluded(model, excluded):
    own = history(model, 1)
    assert len(own) > 3
    left_out = {item for item, name in own.items() if name in excluded}
    top = model.recommend(1, 99, exclude_seen=excluded)
    assert set(top["item"]) == set(model.items.ids) - left_out
    # A seen item is scored without its own interaction.
    everything = model.recommend(1, 99, exclude_seen=False)
    expected = everything.filter(~pl.col("item").is_in(left_out))
    assert top["item"].to_list() == expected["item"].to_list()
    assert top["score"].to_list() == expected["score"].to_list()


def test_an_ad_hoc_history_is_of_the_strongest_type(model):
    items = model.items.ids.to_list()
    assert set(model.recommend(history=items[:2], n=99, exclude_seen="view")["item"]) == set(items)
    top = model.recommend(history=items[:2], n=99, exclude_seen="purchase")
    assert set(top["item"]) == set(items[2:])


def test_a_type_that_the_model_does_not_know_is_refused(model):
    with pytest.raises(CfuicaError, match="'gift', but those of this model are view, cart"):
        model.recommend(1, exclude_seen="gift")
    with pytest.raises(CfuicaError, match="this RankingModel knows none"):
        fresh("decay").recommend(1, exclude_seen="view")


def test_observed_events_have_types_and_the_strongest_of_a_pair_counts(model, tmp_path: Path):
    events = [
        {"user": 1, "item": 77, "type": "cart"},
        {"user": 1, "item": 77, "type": "view"},
        {"user": 1, "item": 78, "type": "view"},
    ]
    observed = model.observe(events)
    assert (observed.added, observed.new_items) == (2, 2)
    assert history(model, 1)[77] == "cart"
    assert model.observe([{"user": 1, "item": 77, "type": "view"}]).changed == 0
    assert model.observe([{"user": 1, "item": 77, "type": "purchase"}]).changed == 1
    model.observe([(1, 78)])  # without a type: of the strongest
    again = cfuica.load(model.save(tmp_path / "model"))
    for one in (model, again):
        assert one.types == TYPES
        assert {77: "purchase", 78: "purchase"}.items() <= history(one, 1).items()
    assert model.remove([(1, 77)]).removed == 1
    with pytest.raises(CfuicaError, match="'gift' in a frame is unknown"):
        model.observe([{"user": 1, "item": 77, "type": "gift"}])


def test_many_events_at_once_equal_one_at_a_time(model, monkeypatch):
    events = pl.DataFrame(
        {
            "user": [1, 1, 2, 3, 3],
            "item": [2, 77, 5, 4, 6],
            "type": ["view", "cart", "purchase", "view", "cart"],
            "timestamp": [9, 9, 1, 9, 2],
        }
    )
    other = cfuica.RankingModel.from_artifact(model.snapshot())
    model.observe(events)
    monkeypatch.setattr("cfuica.live.live_model.MANY_EVENTS", 1)
    other.observe(events)
    for user in (1, 2, 3):
        assert history(model, user) == history(other, user)
        assert model.recommend(user).equals(other.recommend(user))


def test_views_are_context_that_purchases_are_predicted_from():
    """Whoever views item k buys k + 20 next; nobody is recommended what is only viewed."""
    rows = []
    for user in range(120):
        for step in range(6):
            item = (user + step) % 20
            rows += [(user, item, "view", 10 * step), (user, item + 20, "buy", 10 * step + 5)]
    rows += [(999, 3, "view", 1)]
    frame = pl.DataFrame(rows, ["user", "item", "type", "timestamp"], orient="row")
    table = cfuica.Interactions.from_frame(frame, targets=("buy",))
    settings = cfuica.ranking_preset("default").replaced(
        ensemble_size=1,
        hidden_users=16,
        hidden_items=16,
        residual_units=8,
        epochs=40,
        batch_users=30,
    )
    model = cfuica.RankingModel(settings).fit(table)
    assert model.recommend(999, 1)["item"].item() == 23
    top = model.recommend(history=[7], n=5)["item"]
    assert top[0] == 27
    assert (top >= 20).all()
