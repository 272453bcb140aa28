"""Which items may be recommended at all.

`max_per`: groups of items of which a list may hold only so many.

Columns of the item table by the names that rules give them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.matrix import Csr
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
        stored = ", ".join(repr(column) for column in table.columns)
        raise SettingsError(
            f"{rule} names the column {name!r}, which the items do not have; they have {stored}."
        )
    return table[name]


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
    """An error unless it is a number of interactions."""
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


@dataclass(frozen=True, eq=False)
class Groups(Csr):
    """The groups of each of M items, and how many items of each group a list may hold."""

    limits_g: NDArray[np.int64]

    @classmethod
    def none(cls, n_items: int) -> Groups:
        """No item is in a group."""
        return cls(np.zeros(n_items + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))

    @classmethod
    def of(cls, table: pl.DataFrame | None, max_per: Mapping[str, int]) -> Groups:
        """The groups of the columns that `max_per` names, with their limits.

        `table` has one row per item in index order. Items with the same value in a column are a
        group; an item of a list column is in the group of each of its values. Where there is no
        value, the item is in no group.
        """
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
