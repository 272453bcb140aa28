from __future__ import annotations

from typing import Any

import pytest

from cfuica.cli.settings import changed
from cfuica.errors import SettingsError
from cfuica.settings import Settings


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
    assert getattr(changed(Settings(), [assignment], None), name) == value


def test_the_seed_has_an_option_of_its_own_and_set_comes_after_it() -> None:
    assert changed(Settings(seed=3), [], None).seed == 3
    assert changed(Settings(seed=3), [], 4).seed == 4
    assert changed(Settings(), ["seed=5"], 4).seed == 5


def test_the_last_of_several_counts() -> None:
    assert changed(Settings(), ["patience=3", "patience=4"], None).patience == 4


def test_what_is_no_assignment_is_explained() -> None:
    with pytest.raises(SettingsError, match="KEY=VALUE"):
        changed(Settings(), ["patience"], None)
