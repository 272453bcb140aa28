"""Which items may be recommended at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.errors import SettingsError
from cfuica.recommending.columns import by_column, column_of

Where: TypeAlias = Mapping[str, Any]
"""Column of the item table -> the value, or several values, of which an item has one."""

Mask: TypeAlias = NDArray[np.bool_]


def allowed(
    support_m: NDArray[np.integer],
    *,
    candidates: NDArray[np.integer] | None = None,
    exclude: NDArray[np.integer] | None = None,
    min_support: int = 1,
    table: pl.DataFrame | None = None,
    where: Where | None = None,
) -> Mask:
    """(M,) whether each item may be recommended.

    `support_m` is how many users rated each item, `candidates` and `exclude` are item indices,
    `table` says what is known of each item, one row per item in index order. All rules hold
    together; perhaps nothing is left.
    """
    check_min_support(min_support)
    mask = np.asarray(support_m) >= min_support
    if candidates is not None:
        is_candidate = np.zeros_like(mask)
        is_candidate[candidates] = True
        mask &= is_candidate
    if exclude is not None:
        mask[exclude] = False
    asked = by_column({} if where is None else where, "where", '{"genres": "Comedy"}')
    for name, values in asked.items():
        mask &= matching(column_of(table, name, "where"), values)
    return mask


def check_min_support(min_support: int) -> None:
    """An error unless it is a number of behaviours."""
    is_whole = isinstance(min_support, int | np.integer) and not isinstance(min_support, bool)
    if not is_whole or min_support < 0:
        raise SettingsError(
            f"min_support is {min_support!r}, but it is how many ratings there must be: give a "
            f"whole number from 0 upwards."
        )


def matching(column: pl.Series, values: Any) -> Mask:
    """(M,) whether each cell is one of the values; a list is where it contains one of them."""
    kind = _kind(column, "where")
    wanted = _as_list(values)
    for value in wanted:
        if not kind.holds(value):
            raise SettingsError(
                f"where asks for {value!r} in the column {column.name!r}, which holds "
                f"{kind.plural}; give {kind.plural}, one or several."
            )
    cells = pl.DataFrame({"row": np.arange(len(column)), "cell": column})
    if column.dtype.is_nested():
        cells = cells.explode("cell")
    # Compared as Python compares, where 1999 is 1999.0.
    distinct, asked = cells["cell"].unique(), set(wanted)
    chosen = pl.Series([cell in asked for cell in distinct.to_list()], dtype=pl.Boolean)
    found = cells.join(distinct.filter(chosen).to_frame(), on="cell")
    mask = np.zeros(len(column), np.bool_)
    mask[found["row"].to_numpy()] = True
    return mask


def read_where(table: pl.DataFrame | None, texts: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """`where` from what somebody typed behind --where: each text becomes a value of its column's
    kind."""
    where = {}
    for name, several in texts.items():
        kind = _kind(column_of(table, name, "--where"), "--where")
        try:
            where[name] = [kind.read(text) for text in several]
        except ValueError:
            raise SettingsError(
                f"--where asks for {', '.join(several)} in the column {name!r}, which holds "
                f"{kind.plural}; give {kind.plural}, {kind.example}."
            ) from None
    return where


@dataclass(frozen=True)
class _Kind:
    """What the cells of a column are, and how they are written."""

    plural: str
    example: str
    python: tuple[type, ...]
    read: Callable[[str], Any]

    def holds(self, value: Any) -> bool:
        """Whether a value can be one of them; to Python True is a number and a time is a date."""
        if isinstance(value, bool | datetime):
            return type(value) in self.python
        return isinstance(value, self.python)


def _read_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _read_truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_TEXT = _Kind("text", "such as Comedy", (str,), str)
_NUMBERS = _Kind("numbers", "such as 1999", (int, float), _read_number)
_TRUTHS = _Kind("true or false", "such as true", (bool,), _read_truth)
_DATES = _Kind("dates", "such as 2024-12-31", (date,), date.fromisoformat)
_TIMES = _Kind("times", "such as 2024-12-31T23:59", (datetime,), datetime.fromisoformat)


def _kind(column: pl.Series, rule: str) -> _Kind:
    """The kind of a column's cells, or of what is in them where they are lists."""
    inner = getattr(column.dtype, "inner", column.dtype)
    if inner.is_numeric():
        return _NUMBERS
    # A column without a single value is one of text that matches nothing.
    if inner in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        return _TEXT
    for polars, kind in ((pl.Boolean, _TRUTHS), (pl.Date, _DATES), (pl.Datetime, _TIMES)):
        if inner == polars:
            return kind
    raise SettingsError(
        f"{rule} names the column {column.name!r}, which holds {inner}; items can be chosen by "
        f"columns of text, numbers, dates, or true and false, and by lists of them."
    )


def _as_list(values: Any) -> list[Any]:
    """One value or several, as plain Python values."""
    if isinstance(values, np.generic | np.ndarray | pl.Series):
        values = values.tolist() if not isinstance(values, pl.Series) else values.to_list()
    if isinstance(values, str) or not isinstance(values, Iterable):
        return [values]
    return [value.item() if isinstance(value, np.generic) else value for value in values]
