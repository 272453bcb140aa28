"""Item metadata: what is known of the items (title, price, genres), one row per item.

It comes as a frame of `item` and any other columns (`item_files.py` reads files). A model stores it
by item index; newer values take the place of older ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from cfuica.data.columns import as_polars
from cfuica.data.layout import listed
from cfuica.data.vocabulary import Vocabulary, as_ids
from cfuica.errors import DataError
from cfuica.forks import need_polars


def canonical_items(given: Any) -> pl.DataFrame:
    """Item metadata of any Arrow library, with ids as integers or text."""
    items = as_polars(given).lazy().collect()
    if "item" not in items.columns:
        raise DataError(
            f"The items frame has no column 'item': its columns are "
            f"{listed(items.columns) or 'none'}; expected 'item' and any others."
        )
    if items["item"].null_count():
        raise DataError(
            f"{items['item'].null_count():,} of {items.height:,} rows of the items have no id in "
            f"the column 'item'; give one, or leave the rows out."
        )
    if "row" in items.columns:
        raise DataError(
            "The items frame has a column 'row', a name that saved models reserve; rename it."
        )
    return items.with_columns(as_ids(items["item"]))


def item_metadata_of(given: pl.DataFrame | None, items: Vocabulary) -> pl.DataFrame | None:
    """Item metadata with one row per item of the vocabulary; None where none is given."""
    if given is None:
        return None
    return by_index(given, items.encode(given["item"]), items.size).with_columns(item=items.ids)


def by_index(given: pl.DataFrame, index: np.ndarray, n_items: int) -> pl.DataFrame:
    """One row per item index, null where an item has none; of several rows the first counts.

    `index` has the item index of each given row, -1 where the item is unknown.
    """
    need_polars("Adding item metadata")
    own, first = np.unique(index, return_index=True)
    row = pl.Series([None] * n_items, dtype=pl.UInt32)
    return given.select(pl.all().gather(row.scatter(own[own >= 0], first[own >= 0])))


def updated(
    stored: pl.DataFrame | None, more: pl.DataFrame, source: str = "the items frame"
) -> pl.DataFrame:
    """Item metadata with the values of `more`, which has the same items in the same order.

    Where `more` has none, the stored value stays. New columns come last. Values of another type
    than the stored ones are refused.
    """
    if stored is None:
        return more
    columns = dict(zip(more.columns, more, strict=True))
    for column in stored:
        found = columns.get(column.name)
        if found is None or column.name == "item":
            continue
        both = pl.select(pl.coalesce(_as_type_of(column, found, source), column))
        columns[column.name] = both.to_series().alias(column.name)
    return stored.with_columns(columns.values())


def check_types(stored: pl.DataFrame | None, more: pl.DataFrame, source: str) -> None:
    """Refuse item metadata that `updated` would refuse."""
    if stored is not None:
        for column in more.drop("item"):
            if column.name in stored.columns:
                _as_type_of(stored[column.name], column, source)


def _as_type_of(stored: pl.Series, found: pl.Series, source: str) -> pl.Series:
    """The values that were found in the type of the stored ones; numbers keep their fractions."""
    same = stored.dtype == found.dtype or pl.Null in (stored.dtype, found.dtype)
    if same or (stored.dtype.is_numeric() and found.dtype.is_numeric()):
        return found
    try:
        if stored.dtype == pl.List and found.dtype != pl.List:
            one = pl.when(found.is_not_null()).then(pl.concat_list(found))
            return pl.select(one.alias(found.name)).to_series().cast(stored.dtype)
        return found.cast(stored.dtype)
    except pl.exceptions.PolarsError:
        raise DataError(
            f"The column '{found.name}' of {source} holds {found.dtype}, but the model has "
            f"{stored.dtype} in it; give values of that type, or another name."
        ) from None


def matched_note(given: pl.Series, items: Vocabulary, source: str, whose: str) -> str | None:
    """One sentence where not all items have metadata; an error where none has.

    `given` are the ids in `source`, `whose` says in words whose ids `items` are.
    """
    ids = given.unique(maintain_order=True)
    if ids.is_empty():
        raise DataError(f"{source} has no rows; give the metadata of at least one item.")
    matched, size = int(np.count_nonzero(items.encode(ids) >= 0)), items.size
    kinds = ["whole numbers" if each.dtype.is_integer() else "text" for each in (ids, items.ids)]
    types = f"the ids are {kinds[0]}, such as {ids[0]!r}, those of {whose} are {kinds[1]}"
    if matched == 0:
        example = f", such as {items.ids[0]!r}" if size else ""
        raise DataError(
            f"{source} has metadata of none of the {size:,} items of {whose}: {types}{example}; "
            f"write the ids in the same form."
        )
    if kinds[0] != kinds[1] and matched < len(ids):
        return f"{source}: {types}; {matched:,} of {len(ids):,} match, the others were left out."
    return f"{source} has metadata of {matched:,} of {size:,} items." if matched < size else None
