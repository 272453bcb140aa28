from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from cfuica.errors import SettingsError
from cfuica.settings import RatingSettings


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


def test_the_l2_penalty_is_scaled_by_the_root_of_the_number_of_ratings():
    settings = RatingSettings(l2=1e-4, l2_ratings=10_000)
    assert settings.settled(10_000).l2 == pytest.approx(1e-4)
    assert settings.settled(100).l2 == pytest.approx(1e-3)
    assert settings.settled(100).settled(5) == settings.settled(100)
    assert RatingSettings(l2=3e-4).settled(7).l2 == 3e-4


def test_the_cold_start_network_comes_after_the_ensemble():
    assert RatingSettings(ensemble_size=3).networks == 3
    assert RatingSettings(ensemble_size=3, cold_start_units=16).networks == 4
    for settings, expected in (
        (RatingSettings(ensemble_size=2), [False, False]),
        (RatingSettings(ensemble_size=2, cold_start_units=16), [False, False, True]),
    ):
        networks = range(settings.networks)
        assert [settings.is_cold_start(network) for network in networks] == expected
