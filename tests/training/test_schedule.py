"""When the rate changes and when training ends."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from cfuica.settings import RatingSettings
from cfuica.training.schedule import Patience, Planned, make_schedule


def patience(**changes):
    settings = RatingSettings(
        schedule="patience", **{"patience": 3, "learning_rate": 1e-3, **changes}
    )
    return make_schedule(settings, has_validation=True)


def test_patience_cuts_the_rate_after_so_many_validations_without_a_new_best():
    schedule = patience()
    verdicts = [schedule.judge(rmse) for rmse in (1.0, 0.9, 0.95, 0.9, 0.91, 0.8)]
    assert verdicts == ["improved", "improved", "continue", "continue", "cut", "improved"]
    assert schedule.rate(0) == pytest.approx(1e-3 / 4)
    assert schedule.best == 0.8


def test_an_improvement_starts_the_waiting_anew():
    schedule = patience()
    verdicts = [schedule.judge(rmse) for rmse in (1.0, 1.1, 1.1, 0.9, 1.1, 1.1, 1.1)]
    assert verdicts[3:] == ["improved", "continue", "continue", "cut"]


def test_waiting_starts_anew_after_a_cut():
    schedule = patience()
    verdicts = [schedule.judge(rmse) for rmse in (1.0, *[2.0] * 6)]
    assert verdicts[1:] == ["continue", "continue", "cut", "continue", "continue", "cut"]
    assert schedule.rate(0) == pytest.approx(1e-3 / 16)


def test_the_published_schedule_cuts_three_times_and_stops_at_the_fourth():
    """1e-3 / 4^3 = 1.6e-5 is still above 1e-5; / 4^4 is not."""
    settings = RatingSettings()
    assert (settings.patience, settings.rate_divisor, settings.stop_rate) == (50, 4.0, 1e-5)
    schedule = make_schedule(settings, has_validation=True)
    schedule.judge(1.0)
    verdicts = []
    while "stop" not in verdicts:
        verdicts.append(schedule.judge(1.0))
    assert verdicts.count("cut") == 3
    assert len(verdicts) == 4 * 50


def test_a_rate_that_falls_to_the_stop_rate_exactly_stops():
    schedule = patience(learning_rate=1.0, rate_divisor=2.0, stop_rate=0.25, patience=1)
    assert [schedule.judge(rmse) for rmse in (1.0, 1.0, 1.0)] == ["improved", "cut", "stop"]


def test_patience_ends_at_the_limit_of_steps():
    schedule = patience(max_steps=10)
    assert [schedule.finished(step) for step in (0, 9, 10, 11)] == [False, False, True, True]


def planned(**changes):
    settings = RatingSettings(
        schedule="planned", **{"learning_rate": 0.01, "max_steps": 100, **changes}
    )
    return make_schedule(settings, has_validation=True)


def test_a_plan_holds_and_then_falls_in_a_straight_line():
    schedule = planned(hold=0.6)
    rates = [schedule.rate(step) for step in range(100)]
    assert rates[:61] == pytest.approx([0.01] * 61)
    assert rates[60:] == pytest.approx(np.linspace(0.01, 0, 41)[:-1])


@examples(max_examples=60, deadline=None)
@given(hold=st.floats(0, 1), max_steps=st.integers(1, 300))
def test_a_plan_stays_positive_and_below_its_height(hold, max_steps):
    schedule = planned(hold=hold, max_steps=max_steps)
    rates = [schedule.rate(step) for step in range(max_steps)]
    assert all(0 < rate <= 0.01 * (1 + 1e-9) for rate in rates)
    assert not schedule.finished(max_steps - 1)
    assert schedule.finished(max_steps)


def test_a_plan_is_not_moved_by_validation_and_stores_the_best():
    schedule = planned()
    before = [schedule.rate(step) for step in range(100)]
    verdicts = [schedule.judge(rmse) for rmse in (1.0, *[2.0] * 200, 0.5)]
    assert verdicts == ["improved", *["continue"] * 200, "improved"]
    assert [schedule.rate(step) for step in range(100)] == before
    assert schedule.best == 0.5


def test_settings_name_the_schedule_and_patience_needs_validation():
    assert isinstance(
        make_schedule(RatingSettings(schedule="patience"), has_validation=True), Patience
    )
    assert isinstance(
        make_schedule(RatingSettings(schedule="patience"), has_validation=False), Planned
    )
    assert isinstance(
        make_schedule(RatingSettings(schedule="planned"), has_validation=True), Planned
    )
    assert patience().keeps_best
    assert not planned().keeps_best


@pytest.mark.parametrize("judged", [0, 1, 4, 6])
@pytest.mark.parametrize("make", [patience, planned])
def test_a_fresh_schedule_with_the_state_of_another_judges_alike(make, judged):
    """Through JSON, which has no infinity."""
    losses = [1.0, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.1, 0.8]
    schedule, fresh = make(), make()
    for loss in losses[:judged]:
        schedule.judge(loss)
    fresh.load_state_dict(json.loads(json.dumps(schedule.state_dict(), allow_nan=False)))
    assert fresh == schedule
    verdicts = [[each.judge(loss) for loss in losses[judged:]] for each in (schedule, fresh)]
    assert verdicts[0] == verdicts[1]
    assert fresh.rate(3) == schedule.rate(3)
