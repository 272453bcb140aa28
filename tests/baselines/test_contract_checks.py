from __future__ import annotations

import pytest

from cfuica.baselines.contract import at_least, not_negative, positive
from cfuica.errors import SettingsError


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_what_is_no_size_is_refused(value: float) -> None:
    for check in (not_negative, positive):
        with pytest.raises(SettingsError, match=f"l2 is {value}; it must be a finite number"):
            check("l2", value)


def test_only_one_of_the_two_takes_zero() -> None:
    assert not_negative("l2", 0) == 0.0
    with pytest.raises(SettingsError, match="l2 is 0; it must be a finite number above 0"):
        positive("l2", 0)


@pytest.mark.parametrize("value", [0, -3, 1.5, float("nan"), float("inf")])
def test_a_count_is_a_whole_number_from_the_least(value: float) -> None:
    with pytest.raises(SettingsError, match=f"k is {value}; it must be a whole number, 1 or"):
        at_least(1, "k", value)  # type: ignore[arg-type]
    assert at_least(1, "k", 1) == 1
