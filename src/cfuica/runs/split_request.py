"""How somebody at the command line wants data to be split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from cfuica.data.dates import seconds_of
from cfuica.errors import SettingsError
from cfuica.runs.parts import Parts

GIVEN = "given"
"""The kind that takes two tables, a split made elsewhere; every other kind takes one."""
NO_TEST = "none"
"""The kind that sets nothing aside to test on."""

# What makes the parts of each kind, and the options it has with their defaults.
_KINDS: Mapping[str, tuple[Callable[..., Parts], Mapping[str, Any]]] = {
    "random": (Parts.random, {"folds": 10, "fold": 0, "valid": 0.05, "seed": 0}),
    "leave-one-out": (Parts.leave_one_out, {}),
    "date": (Parts.by_date, {"test_from": None, "test_share": 0.1, "valid": 0.05}),
    "users": (Parts.strangers, {"test_share": 0.1, "valid": 0.05, "seed": 0}),
    NO_TEST: (Parts.everything, {"valid": 0.05, "seed": 0}),
    GIVEN: (Parts.given, {"valid": 0.05, "seed": 0}),
}


@dataclass(frozen=True)
class SplitRequest:
    """What was asked for; an option that is None was not, and has the default of the kind."""

    kind: str = "random"
    """random, leave-one-out, date, users, none or given."""
    folds: int | None = None
    """How many random folds."""
    fold: int | None = None
    """The fold to test on, from 0."""
    valid: float | None = None
    """Share of the rest to validate on."""
    seed: int | None = None
    """Seed of what is drawn."""
    test_from: str | None = None
    """Date, or seconds since 1970, from which on everything is tested."""
    test_share: float | None = None
    """Share of the behaviours, or of the users, to test on."""

    def splitter(self, *, protocols: bool = False) -> Callable[..., Parts]:
        """From the table (for `given`: from two) to its parts.

        Whatever no table could satisfy is refused here, before one is read. With `protocols`,
        leave-one-out sets aside what every protocol of ranking tests.
        """
        if self.kind not in _KINDS:
            *others, last = _KINDS
            raise SettingsError(
                f"--split {self.kind} is not known; the splits are {', '.join(others)} and {last}."
            )
        make, defaults = _KINDS[self.kind]
        given = {
            field.name: value
            for field in fields(self)
            if field.name != "kind" and (value := getattr(self, field.name)) is not None
        }
        for name in given:
            if name not in defaults:
                known = ", ".join(map(_as_typed, defaults)) or "none"
                raise SettingsError(
                    f"{_as_typed(name)} does not belong to --split {self.kind}, whose options are: "
                    f"{known}."
                )
        if self.valid is not None and not 0 <= self.valid < 1:
            raise SettingsError(
                f"--valid {self.valid} is not a share: give a number from 0 to below 1."
            )
        if self.test_from is not None:
            if self.test_share is not None:
                raise SettingsError(
                    "--test-from and --test-share both say where the test part begins; give one "
                    "of them."
                )
            given["test_from"] = seconds_of(self.test_from)
        if protocols and self.kind == "leave-one-out":
            given["protocols"] = True
        return partial(make, **{**defaults, **given})


def _as_typed(option: str) -> str:
    """An option as the command line has it."""
    return "--split-seed" if option == "seed" else "--" + option.replace("_", "-")
