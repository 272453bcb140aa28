"""Memory and time of a training, before it starts."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from cfuica.data.matrix import RatedPairs
from cfuica.errors import SettingsError
from cfuica.settings import RankingSettings, RatingSettings, ranking_preset, rating_preset
from cfuica.sizing import DataSize
from cfuica.training import budget as budgets
from cfuica.training.budget import Budget, Sizes, budget_of, check_memory, fitting_floor, plan
from cfuica.training.ranking_task import NextItems
from cfuica.training.rating_task import validation_sample
from tests.model.reference import matrix_of, random_cells
from tests.training.test_clusters import STARS, Noted

SHOP = Sizes(300_000, 300_000, 3_000_000, 5, 300_000)
LONG_TAIL = np.maximum(1, 10_000 / np.arange(1, 300_001)).astype(np.int64)


def test_more_of_anything_needs_more():
    small = RatingSettings(max_steps=100, schedule="planned")
    sizes = Sizes(1000, 500, 60_000, 5, 6000)
    one = budget_of(small, sizes, resident=0)
    for larger in (
        budget_of(small.replaced(hidden_users=1000), sizes, resident=0),
        budget_of(small.replaced(ensemble_size=2), sizes, resident=0),
        budget_of(small.replaced(weight_average=0.1), sizes, resident=0),
        budget_of(small, Sizes(9000, 500, 60_000, 5, 6000), resident=0),
        budget_of(small, sizes, resident=1e9),
    ):
        assert larger.bytes > one.bytes
    assert budget_of(small.replaced(max_steps=200), sizes, resident=0).seconds > one.seconds


@pytest.mark.parametrize(
    ("preset", "sizes", "steps", "measured"),
    [
        # Seconds on two cores (docs/results.md); a prediction within a factor of three is enough.
        ("default", Sizes(6040, 3706, 980_000, 1, 6040), 189, 745),
        ("paper", Sizes(6040, 3706, 980_000, 1, 6040), 620, 1400),
        ("default", Sizes(300_000, 300_000, 2_537_586, 1, 3333), 1172, 148),
    ],
)
def test_the_time_of_a_ranking_is_about_what_was_measured(
    preset, sizes, steps, measured, monkeypatch
):
    monkeypatch.setattr(budgets, "thread_count", lambda: 2)
    size = DataSize(sizes.users, sizes.items, sizes.interactions)
    settings = ranking_preset(preset).settled(size).planned(steps)
    assert measured / 3 < budget_of(settings, sizes, resident=0).seconds < 3 * measured


def test_a_ranking_that_starts_from_factors_and_does_not_fit_is_refused_with_settings_that_do():
    size = DataSize(300_000, 300_000, 2_537_586)
    settings, sizes = ranking_preset("default").settled(size).planned(1172), SHOP
    found = budgets.smaller_settings(settings, sizes, {})
    changes = "hidden_users=8 hidden_items=8 start_from_factors=8"
    assert found[-1][0] == changes
    assert found[-1][1].bytes < found[0][1].bytes < budget_of(settings, sizes).bytes


def test_a_floor_is_as_low_as_memory_allows():
    settings, counts = rating_preset("default"), {"users": LONG_TAIL, "items": LONG_TAIL}
    floors = [
        fitting_floor(settings, SHOP, counts, available=gigabytes * 1e9)
        for gigabytes in (400, 60, 24, 12)
    ]
    assert floors[0] == 0
    assert floors == sorted(floors)
    assert floors[-1] > floors[0]
    lowest = floors[2]
    below = budgets.FLOORS[budgets.FLOORS.index(lowest) - 1] if lowest > 2 else None
    fits = budget_of(settings, SHOP, budgets.with_floor(counts, lowest)).bytes
    assert fits <= budgets.COMFORTABLE * 24e9
    if below:
        assert budget_of(settings, SHOP, budgets.with_floor(counts, below)).bytes > fits


def test_what_cannot_fit_is_refused_with_settings_that_do():
    wanted = Budget(40e9, None)
    smaller = [("ensemble_size=1", Budget(30e9, None)), ("hidden_users=8", Budget(3e9, None))]
    with pytest.raises(SettingsError) as refused:
        check_memory(wanted, lambda: smaller, available=8e9)
    assert str(refused.value) == (
        "Training needs about 40.0 GB of memory, but 8.0 GB are there; set hidden_users=8 (about "
        "3.0 GB)."
    )
    check_memory(wanted, lambda: smaller, available=41e9)


def test_a_training_says_what_it_needs_and_that_a_floor_was_chosen(monkeypatch):
    matrix = matrix_of(random_cells(7, 6, 3, 30), 7, 6, 3)
    settings = RatingSettings(hidden_users=4, hidden_items=4)
    silent = Noted()
    assert plan(matrix, STARS, settings, None, silent) == (settings, {})
    assert silent.notes == []
    monkeypatch.setattr(budgets, "fitting_floor", lambda *_: 4)
    monkeypatch.setattr(budgets, "WORTH_SAYING_BYTES", 0)
    said = Noted()
    settings, shared = plan(matrix, STARS, settings, None, said)
    assert settings.min_row_interactions == 4
    assert "users" in shared or "items" in shared
    assert said.notes[0] == "So that training fits into memory, min_row_interactions is 4."
    assert said.notes[-1].startswith("Training needs about ")


def test_a_large_validation_predicts_a_sample_and_says_how_near_it_is():
    matrix = matrix_of(random_cells(40, 30, 3, 900), 40, 30, 3)
    users, items = (each.ravel().astype(np.int32) for each in np.mgrid[:40, :30])
    labels = np.zeros(1200, np.uint8)
    valid = RatedPairs(users, items, labels, np.arange(1200.0))
    callback = Noted()
    assert validation_sample(valid, matrix, callback, most=1800) is valid
    assert callback.notes == []
    some = validation_sample(valid, matrix, callback, most=900)
    assert (len(set(some.users_p)), len(set(some.items_p)), some.n) == (20, 15, 300)
    assert (some.ratings_p == some.users_p * 30.0 + some.items_p).all()
    assert callback.notes == [
        "Validation predicts a sample of 300 of 1,200 ratings; its RMSE is within 8.0% of that of "
        "all (95%)."
    ]
    again = validation_sample(valid, matrix, Noted(), most=900)
    assert (again.ratings_p == some.ratings_p).all()


def test_a_large_ranking_validation_takes_a_sample_of_users():
    valid, callback = NextItems(np.arange(100), np.arange(100) * 2), Noted()
    assert valid.sample(10, callback, most=1000) is valid
    some = valid.sample(10, callback, most=250)
    assert len(some.users_p) == 25
    assert (some.items_p == 2 * some.users_p).all()
    assert callback.notes == [
        "Validation ranks the items for a sample of 25 of 100 users; its NDCG is within 0.196 of "
        "that of all (95%)."
    ]


MEASURE = """
import json, sys
import numpy as np
from cfuica.data.matrix import InteractionMatrix
from cfuica.ops.runtime import peak_memory_gb
from cfuica.settings import RatingSettings
from cfuica.training.budget import Sizes, budget_of
from cfuica.training.rating_task import train, trained_networks
rng = np.random.default_rng(0)
pairs = np.unique(rng.integers(0, 12000 * 3000, 200_000))
matrix = InteractionMatrix.from_triplets(
    pairs // 3000, pairs % 3000, rng.integers(0, 5, len(pairs)),
    n_users=12000, n_items=3000, n_labels=5,
)
settings = RatingSettings(
    hidden_users=256, hidden_items=256, ensemble_size=2, schedule="planned", max_steps=3
)
sizes = Sizes(12000, 3000, len(pairs), 5, 0)
said = budget_of(settings, sizes)
trained_networks(train(matrix, settings, np.arange(5.0)), matrix, take=True)
print(json.dumps([said.bytes / 1e9, peak_memory_gb()]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_memory_said_is_about_the_peak():
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True
    )
    said, peak = json.loads(ran.stdout)
    assert said == pytest.approx(peak, rel=0.15)


def test_a_ranking_budget_knows_the_catalogue():
    settings = RankingSettings(max_steps=10, schedule="planned")
    few = budget_of(settings, Sizes(1000, 1000, 20_000, 1, 1000), resident=0)
    many = budget_of(settings, Sizes(1000, 300_000, 20_000, 1, 1000), resident=0)
    assert many.bytes > few.bytes + 300_000 * 4 * 500
