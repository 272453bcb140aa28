from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cfuica.errors import SettingsError
from cfuica.settings import PRESETS, RANKING_PRESETS, RatingSettings, rating_preset


def test_every_setting_is_described() -> None:
    for name, field in RatingSettings.model_fields.items():
        assert field.description, name


def test_settings_come_back_from_json() -> None:
    settings = RatingSettings(sides="items", max_norm=None, learning_rate=0.1 + 0.2)
    assert RatingSettings(**json.loads(json.dumps(settings.model_dump()))) == settings


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RatingSettings().seed = 3  # type: ignore[misc]


def test_a_changed_copy_leaves_the_original() -> None:
    settings = RatingSettings()
    assert settings.replaced(seed=3).seed == 3
    assert settings.seed == 0
    assert settings.replaced() == settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sides", "neither"),
        ("hidden_users", 0),
        ("hidden_items", 2.5),
        ("activation", "swish"),
        ("ensemble_size", 0),
        ("length_normalisation", -0.1),
        ("length_normalisation", 1.1),
        ("cold_start_units", -1),
        ("cold_start_units", 2.5),
        ("ordinal_weight", 1.1),
        ("ordinal_weight", float("nan")),
        ("l2", -1e-9),
        ("l2", float("inf")),
        ("estimator", "biased"),
        ("batch_users", 0),
        ("learning_rate", 0),
        ("learning_rate", float("inf")),
        ("beta1", 1),
        ("epsilon", 0),
        ("max_norm", 0),
        ("max_norm", float("nan")),
        ("schedule", "never"),
        ("validate_every", 0),
        ("patience", 0),
        ("rate_divisor", 1),
        ("max_steps", 0),
        ("hold", 1.01),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", None),
    ],
)
def test_a_value_out_of_range_is_one_sentence_that_names_it(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"Setting {name} = ") as caught:
        RatingSettings().replaced(**{name: value})
    assert "\n" not in str(caught.value)
    assert repr(value) in str(caught.value)


def test_an_unknown_setting_is_answered_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match="There is no setting 'hiden_users'") as caught:
        RatingSettings().replaced(hiden_users=3)
    for name in RatingSettings.model_fields:
        assert name in str(caught.value)


def test_the_cold_start_network_comes_after_the_ensemble():
    assert RatingSettings(ensemble_size=3).networks == 3
    assert RatingSettings(ensemble_size=3, cold_start_units=16).networks == 4
    for settings, expected in (
        (RatingSettings(ensemble_size=2), [False, False]),
        (RatingSettings(ensemble_size=2, cold_start_units=16), [False, False, True]),
    ):
        networks = range(settings.networks)
        assert [settings.is_cold_start(network) for network in networks] == expected


@pytest.mark.parametrize(
    "settings", [each for _, each in [*PRESETS.values(), *RANKING_PRESETS.values()]]
)
def test_settings_come_back_from_toml(settings: Any, tmp_path: Path) -> None:
    odd = settings.replaced(learning_rate=0.1 + 0.2, device='cu"da\\ü', max_norm=None)
    (tmp_path / "settings.toml").write_text(odd.toml("two\nlines"), encoding="utf-8")
    assert type(settings)().with_file(tmp_path / "settings.toml") == odd


def test_a_file_of_some_settings_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text('hidden_users = 9\nl2 = 0.5\nmax_entry = "none"\n')
    preset = rating_preset("default")
    found = preset.with_file(tmp_path / "some.toml")
    assert found == preset.replaced(hidden_users=9, l2=0.5, max_entry=None)
    assert {"hidden_users", "l2"}.isdisjoint(found.sized)
    assert "hidden_items" in found.sized


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden_users", "is not TOML"),
        ("hiden_users = 3", r"some.toml: There is no setting 'hiden_users'"),
        ("hidden_users = 0", r"some.toml: Setting hidden_users = 0 is not usable"),
        ("[rating]\nseed = 3", "There is no setting 'rating'"),
        ('task = "ranking"', "settings of the task ranking, but the task is rating; add --task"),
    ],
)
def test_a_file_that_holds_no_settings_is_explained(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "some.toml").write_text(text)
    with pytest.raises(SettingsError, match=message):
        RatingSettings().with_file(tmp_path / "some.toml")
    with pytest.raises(SettingsError, match="cannot be read"):
        RatingSettings().with_file(tmp_path / "none.toml")
