"""Columns of the item table by the names that rules give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from cfuica.errors import SettingsError


def by_column(given: Any, rule: str, example: str) -> Mapping[str, Any]:
    """What a rule asks of each column it names; an error where it is no mapping."""
    if not isinstance(given, Mapping):
        raise SettingsError(
            f"{rule} is {given!r}, but it is a dict from columns of the items to what is asked of "
            f"them; give one such as {example}."
        )
    return given


def column_of(table: pl.DataFrame | None, name: str, rule: str) -> pl.Series:
    """The column that a rule (`where`, --where, ...) names; an error that lists those there are."""
    if table is None:
        raise SettingsError(
            f"{rule} names the column {name!r}, but this model knows nothing of its items except "
            f"their ids; train it on data that says more about the items."
        )
    if name not in table.columns:
        known = ", ".join(repr(column) for column in table.columns)
        raise SettingsError(
            f"{rule} names the column {name!r}, which the items do not have; they have {known}."
        )
    return table[name]
