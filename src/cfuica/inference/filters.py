"""Filters by item metadata: which items a ranked list may have (`where`), and how many of a kind
(`max_per`).

`where` is a dict of columns and their values, {"genres": "Comedy"}, or a polars expression,
`pl.col("price") < 10`. `read_where` makes one of what is typed at a command line.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.matrix import Csr
from cfuica.errors import SettingsError
from cfuica.forks import need_polars

# Column of the item metadata -> the value, or several values, of which an item has one; or an
# expression that is true for the items.
Where: TypeAlias = Mapping[str, Any] | pl.Expr
# Column, comparison and text of a value, as typed.
Condition: TypeAlias = tuple[str, str, str]
Mask: TypeAlias = NDArray[np.bool_]


def passing(table: pl.DataFrame | None, where: Where, n_items: int) -> Mask:
    """(M,) whether each item passes all filters; `table` has one row per item in index order."""
    need_polars("A filter by item metadata")
    if isinstance(where, pl.Expr):
        return _chosen(table, where, n_items)
    mask = np.ones(n_items, np.bool_)
    for name, values in by_column(where, "where", '{"genres": "Comedy"}').items():
        mask &= matching(column_of(table, name, "where"), values)
    return mask


def by_column(given: Any, rule: str, example: str) -> Mapping[str, Any]:
    """The filter by column of the item metadata; an error where it is no mapping."""
    if not isinstance(given, Mapping):
        raise SettingsError(
            f"{rule} is {given!r}, but it is a dict by columns of the item metadata; give one such "
            f"as {example}."
        )
    return given


def _chosen(table: pl.DataFrame | None, where: pl.Expr, n_items: int) -> Mask:
    """(M,) where the expression is true; where it has no value, the item does not pass."""
    for name in where.meta.root_names():
        column_of(table, name, "where")
    try:
        chosen = (pl.DataFrame() if table is None else table).select(where).to_series()
    except pl.exceptions.PolarsError as error:
        raise SettingsError(
            f"where is {where}, which the columns of the items do not allow "
            f"({str(error).splitlines()[0]}); they have {_columns(table)}."
        ) from None
    if chosen.dtype != pl.Boolean or len(chosen) != n_items:
        raise SettingsError(
            f"where is {where}, which gives {len(chosen):,} values of type {chosen.dtype}, but it "
            f"is true or false for each of {n_items:,} items; give one such as "
            f'pl.col("price") < 10.'
        )
    return chosen.fill_null(False).to_numpy()


def column_of(table: pl.DataFrame | None, name: str, rule: str) -> pl.Series:
    """The column that a filter (`where`, --where, ...) names; an error that lists the columns."""
    if table is None:
        raise SettingsError(
            f"{rule} names the column {name!r}, but this model knows nothing of its items except "
            f"their ids; train it on data with item metadata."
        )
    if name not in table.columns:
        raise SettingsError(
            f"{rule} names the column {name!r}, which the items do not have; they have "
            f"{_columns(table)}."
        )
    return table[name]


def _columns(table: pl.DataFrame | None) -> str:
    return "none" if table is None else ", ".join(repr(column) for column in table.columns)


def matching(column: pl.Series, values: Any) -> Mask:
    """(M,) whether each cell is one of the values; a list matches where it contains one of them."""
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
    distinct, wanted_set = cells["cell"].unique(), set(wanted)
    chosen = pl.Series([cell in wanted_set for cell in distinct.to_list()], dtype=pl.Boolean)
    found = cells.join(distinct.filter(chosen).to_frame(), on="cell")
    mask = np.zeros(len(column), np.bool_)
    mask[found["row"].to_numpy()] = True
    return mask


def read_where(table: pl.DataFrame | None, typed: Iterable[Condition]) -> pl.Expr:
    """`where` from what --where was given: each text becomes a value of its column's type.

    Of several conditions col=value of one column one must hold, of all others each. An item without
    a value passes those with != alone. A list passes where one of its values does, and != where
    none is the value.
    """
    alternatives: dict[str, list[pl.Expr]] = {}
    each = [pl.lit(True)]
    for name, comparison, text in typed:
        column = column_of(table, name, "--where")
        kind = _kind(column, "--where")
        try:
            value = kind.read(text)
        except (KeyError, ValueError):
            raise SettingsError(
                f"--where asks for {text} in the column {name!r}, which holds {kind.plural}; give "
                f"{kind.plural}, {kind.example}."
            ) from None
        if comparison == "=":
            alternatives.setdefault(name, []).append(_holds(column, _EQUAL, value))
        elif comparison == "!=":
            each.append(~_holds(column, _EQUAL, value))
        else:
            each.append(_holds(column, _COMPARISONS[comparison], value))
    return pl.all_horizontal(*each, *(pl.any_horizontal(*some) for some in alternatives.values()))


_EQUAL = operator.eq
_COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _holds(column: pl.Series, compare: Callable[[Any, Any], pl.Expr], value: Any) -> pl.Expr:
    """Whether a cell, or one value of a list, compares so; false where there is none."""
    inner = getattr(column.dtype, "inner", column.dtype)

    def holds(cell: pl.Expr) -> pl.Expr:
        if inner in (pl.Categorical, pl.Enum, pl.Null):
            cell = cell.cast(pl.String)
        if isinstance(inner, pl.Datetime) and inner.time_zone is not None:
            cell = cell.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        found = compare(cell, pl.lit(value))
        # To polars nan is larger than every number.
        return found & cell.is_not_nan() if inner.is_float() else found

    if column.dtype.is_nested():
        cells = pl.col(column.name).cast(pl.List(inner))
        return cells.list.eval(holds(pl.element())).list.any().fill_null(False)
    return holds(pl.col(column.name)).fill_null(False)


@dataclass(frozen=True)
class _Kind:
    """The type of a column's cells, and how they are written on a command line."""

    plural: str
    example: str
    python: tuple[type, ...]
    read: Callable[[str], Any]

    def holds(self, value: Any) -> bool:
        """Whether a value is of this type; to Python True is a number and a time is a date."""
        if isinstance(value, bool | datetime):
            return type(value) in self.python
        return isinstance(value, self.python)


def _read_time(text: str) -> datetime:
    """Without an offset it is UTC, as in the readers of files."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def _read_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


_BY_TEXT = {"true": True, "false": False}
_TEXT = _Kind("text", "such as Comedy", (str,), str)
_NUMBERS = _Kind("numbers", "such as 1999", (int, float), _read_number)
_TRUTHS = _Kind("true or false", "such as true", (bool,), lambda text: _BY_TEXT[text.lower()])
_DATES = _Kind("dates", "such as 2024-12-31", (date,), date.fromisoformat)
_TIMES = _Kind("times", "such as 2024-12-31T23:59", (datetime,), _read_time)


def _kind(column: pl.Series, rule: str) -> _Kind:
    """The type of a column's cells, or of what is in them where they are lists."""
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


@dataclass(frozen=True, eq=False)
class Groups(Csr):
    """The groups of each of M items, and how many items of each group a ranked list may hold."""

    limits_g: NDArray[np.int64]

    @classmethod
    def of(cls, table: pl.DataFrame | None, max_per: Mapping[str, int]) -> Groups:
        """The groups of the columns that `max_per` names, with their limits.

        `table` has one row per item in index order. Items with the same value in a column are a
        group; an item of a list column is in the group of each of its values. Where there is no
        value, the item is in no group.
        """
        need_polars("A limit by item metadata")
        items, groups = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        limits: list[int] = []
        for name, limit in by_column(max_per, "max_per", '{"series": 1}').items():
            if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
                raise SettingsError(
                    f"max_per allows {limit!r} items of the same {name}, but it is the largest "
                    f"number of them that a list may hold: give a whole number from 1 upwards."
                )
            item_e, group_e, count = _same(column_of(table, name, "max_per"))
            items.append(item_e)
            groups.append(group_e + len(limits))
            limits += [min(int(limit), len(item_e))] * count  # no more than there are
        item_e, group_e = np.concatenate(items), np.concatenate(groups)
        n_items = table.height if table is not None else 0
        return cls(
            np.concatenate(([0], np.cumsum(np.bincount(item_e, minlength=n_items)))),
            group_e[np.argsort(item_e, kind="stable")].astype(np.int32),
            np.array(limits, np.int64),
        )


def _same(column: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Item and group of each membership (an item once per group), and the number of groups."""
    cells = pl.DataFrame({"item": np.arange(len(column)), "cell": column})
    if isinstance(column.dtype, pl.List | pl.Array):
        cells = cells.explode("cell")
    by_value = cells.drop_nulls().unique(maintain_order=True)
    by_value = by_value.group_by("cell", maintain_order=True).agg("item").with_row_index("group")
    pairs = by_value.explode("item")
    return (
        pairs["item"].cast(pl.Int64).to_numpy(),
        pairs["group"].cast(pl.Int64).to_numpy(),
        by_value.height,
    )
