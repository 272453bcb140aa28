"""Checks of the settings that baselines are made with."""

import math

from cfuica.errors import SettingsError


def not_negative(name: str, value: float) -> float:
    """The value as a float, if it is finite and at least 0."""
    if not (math.isfinite(value) and value >= 0.0):
        raise SettingsError(f"{name} is {value}; it must be a finite number, 0 or larger.")
    return float(value)


def positive(name: str, value: float) -> float:
    """The value as a float, if it is finite and above 0."""
    if not (math.isfinite(value) and value > 0.0):
        raise SettingsError(f"{name} is {value}; it must be a finite number above 0.")
    return float(value)


def at_least(least: int, name: str, value: int) -> int:
    """The value, if it is a whole number of at least `least`."""
    if value % 1 != 0 or value < least:
        raise SettingsError(f"{name} is {value}; it must be a whole number, {least} or larger.")
    return int(value)
