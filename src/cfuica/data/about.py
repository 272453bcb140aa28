"""What is known of the items: a table with a row for each of them, in index order."""

from __future__ import annotations

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap


def about_items(given: pl.DataFrame | None, items: IdMap) -> pl.DataFrame | None:
    """What is told of each item, if anything was given."""
    if given is None:
        return None
    return by_index(given, items.encode(given["item"]), items.size).with_columns(item=items.ids)


def by_index(given: pl.DataFrame, index: np.ndarray, n_items: int) -> pl.DataFrame:
    """The rows of n items, null where there is none; of several of an item the first counts.

    `index` are the items of the given rows, -1 where an item is unknown.
    """
    own, first = np.unique(index, return_index=True)
    row = pl.Series([None] * n_items, dtype=pl.UInt32)
    return given.select(pl.all().gather(row.scatter(own[own >= 0], first[own >= 0])))


def completed(known: pl.DataFrame | None, more: pl.DataFrame) -> pl.DataFrame:
    """What is known of n items, and where that is nothing, what there is more of the same items.

    Columns that are new come last. What cannot be of a known column's kind is not known.
    """
    if known is None:
        return more
    columns = dict(zip(more.columns, more, strict=True))
    for column in known:
        if column.name in columns:
            found = _as_kind(columns[column.name], column.dtype)
            columns[column.name] = column if found is None else _filled(column, found)
    return known.with_columns(columns.values())


def _filled(column: pl.Series, more: pl.Series) -> pl.Series:
    return pl.select(pl.coalesce(column, more).alias(column.name)).to_series()


def _as_kind(column: pl.Series, kind: pl.DataType) -> pl.Series | None:
    """The column as one of this kind, None where that would be another thing."""
    if column.dtype == kind or kind == pl.Null:
        return column
    if column.dtype.is_nested() or kind.is_nested():
        return None
    return column.cast(kind, strict=False)
