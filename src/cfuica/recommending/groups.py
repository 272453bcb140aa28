"""`max_per`: groups of items of which a list may hold only so many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.errors import SettingsError
from cfuica.recommending.columns import by_column, column_of


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of each of M items, and how many items of each group a list may hold."""

    offsets: NDArray[np.int64]
    """(M + 1,) and"""
    members: NDArray[np.int32]
    """compressed rows: the groups of each item"""
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
