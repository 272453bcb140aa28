from __future__ import annotations

import csv
import json
from io import StringIO
from typing import Any

import pytest

from cfuica.cli.options import changed
from cfuica.errors import SettingsError
from cfuica.settings import (
    PRESETS,
    RANKING_PRESETS,
    CommonSettings,
    RankingSettings,
    RatingSettings,
)
from tests.cli.harness import done, run


@pytest.mark.parametrize(
    ("assignment", "name", "value"),
    [
        ("hidden_users=12", "hidden_users", 12),
        (" hidden_users = 12 ", "hidden_users", 12),
        ("max_steps=1e3", "max_steps", 1000),
        ("learning_rate=1e-2", "learning_rate", 0.01),
        ("share_labels=False", "share_labels", False),
        ("share_labels=true", "share_labels", True),
        ("max_norm=None", "max_norm", None),
        ("max_norm=null", "max_norm", None),
        ("sides=items", "sides", "items"),
        ('sides="items"', "sides", "items"),
    ],
)
def test_values_are_read_as_people_write_them(assignment: str, name: str, value: Any) -> None:
    assert getattr(changed(RatingSettings(), [assignment], None), name) == value


def test_the_seed_has_an_option_of_its_own_and_set_comes_after_it() -> None:
    assert changed(RatingSettings(seed=3), [], None).seed == 3
    assert changed(RatingSettings(seed=3), [], 4).seed == 4
    assert changed(RatingSettings(), ["seed=5"], 4).seed == 5


def test_the_last_of_several_counts() -> None:
    assert changed(RatingSettings(), ["patience=3", "patience=4"], None).patience == 4


def test_what_is_no_assignment_is_explained() -> None:
    with pytest.raises(SettingsError, match="KEY=VALUE"):
        changed(RatingSettings(), ["patience"], None)


OF_PRESETS = [
    pytest.param(kind, name, id=f"{kind.task}-{name}")
    for kind, presets in ((RatingSettings, PRESETS), (RankingSettings, RANKING_PRESETS))
    for name in presets
]


@pytest.mark.parametrize(("kind", "name"), OF_PRESETS)
def test_every_setting_of_a_preset_is_printed_as_set_takes_it(
    kind: type[CommonSettings], name: str
) -> None:
    arguments = ("settings", "--task", kind.task, "--preset", name)
    rows = list(csv.DictReader(StringIO(done(*arguments, "--format", "csv").out)))
    assert [row["setting"] for row in rows] == list(kind.model_fields)
    assert all("." in row["meaning"] for row in rows)
    assert rows[1]["meaning"].endswith("both. both | users | items")
    printed = changed(kind(), [f"{row['setting']}={row['value']}" for row in rows], None)
    presets = RANKING_PRESETS if kind is RankingSettings else PRESETS
    assert printed == presets[name][1]
    as_json = json.loads(done(*arguments, "--json").out)
    assert {row["setting"]: row["value"] for row in as_json} == printed.model_dump()


def test_the_settings_are_printed_as_a_table() -> None:
    text = done("settings", "--task", "ranking", "--preset", "paper").out
    assert "Settings for ranking, preset paper" in text
    assert "batch_items" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "rank"], "--task rank is not known; the tasks are rating and ranking."),
        (["--preset", "best"], "There is no preset 'best'"),
        (["--preset", "paper-uniform"], "belongs to the task ranking"),
    ],
)
def test_unknown_tasks_and_presets_have_no_settings(arguments: list[str], said: str) -> None:
    outcome = run("settings", *arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert said in outcome.err
