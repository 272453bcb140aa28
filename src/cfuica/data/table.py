"""The behaviours as people have them: one row per behaviour, with the ids of the outside world."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.ids import IdMap, as_ids
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.options import FIND_OUT, ReadOptions
from cfuica.errors import DataError


@dataclass(frozen=True, eq=False)
class BehaviourTable:
    """Behaviours in file order, at most one per (user, item)."""

    frame: pl.DataFrame
    """`user`, `item`, and where the data has them `rating` (Float64), `timestamp` (Int64, s)."""
    items: pl.DataFrame | None = None
    """What is known of the items: `item`, `title`, and perhaps `genres` (a list of strings)."""
    item_space: pl.Series | None = None
    """All item ids that the item axis spans, where they are more than those that occur."""
    source: str = "a frame"
    """Where the rows came from, for messages."""
    source_notes: tuple[str, ...] = ()
    """What reading changed, one sentence each, for the log."""
    repeats_dropped: int = 0
    """How many rows of the source went because a later one is of the same pair."""

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: str = "user",
        item: str = "item",
        rating: str | None = "rating",
        timestamp: str | None = "timestamp",
        items: Any = None,
    ) -> BehaviourTable:
        """Take the named columns of a polars, pandas or pyarrow table, or of any that speaks Arrow.

        A rating or timestamp column under its default name may be absent; under another name, it
        was asked for and must be there. Dates become whole seconds since 1970.
        """
        given = _as_polars(frame)
        wanted = {"user": user, "item": item}
        wanted |= {
            role: name
            for role, name in (("rating", rating), ("timestamp", timestamp))
            if name is not None and (name != role or name in given.columns)
        }
        for role, name in wanted.items():
            if name not in given.columns:
                raise DataError(
                    f"The frame has no column '{name}' for the {role}: its columns are "
                    f"{_listed(given.columns)}; name the right one with {role}=..."
                )
        if given.height == 0:
            raise DataError("The frame has no rows, but at least one behaviour was expected.")
        canonical = pl.DataFrame(
            {role: _canonical(role, given[name]) for role, name in wanted.items()}
        )
        about = None if items is None else _canonical_items(_as_polars(items))
        return cls.of_rows(canonical, items=about, source="a frame")

    @classmethod
    def of_rows(
        cls, frame: pl.DataFrame, *, options: ReadOptions | None = None, **fields: Any
    ) -> BehaviourTable:
        """Finish what every reader starts: keep one row per pair and note how many went."""
        notes: tuple[str, ...] = fields.pop("source_notes", ())
        table, dropped = cls(frame, source_notes=notes, **fields).deduplicated()
        if dropped == 0:
            return table
        note = f"{dropped:,} earlier behaviours of a repeated (user, item) pair were dropped."
        return replace(table, source_notes=(*notes, note), repeats_dropped=dropped)

    @classmethod
    def read(cls, path: str | Path, options: ReadOptions = FIND_OUT) -> BehaviourTable:
        """Read delimited text, Parquet, Arrow IPC, or a folder or zip of MovieLens."""
        # Imported here because the readers build tables.
        from cfuica.data.reading import read_table

        return read_table(path, options)

    @property
    def n(self) -> int:
        """How many behaviours there are."""
        return self.frame.height

    @cached_property
    def users(self) -> IdMap:
        """The users that occur."""
        return IdMap.from_ids(self.frame["user"])

    @cached_property
    def item_ids(self) -> IdMap:
        """The items of the item space, or without one, those that occur."""
        occurring = self.frame["item"]
        if self.item_space is None:
            return IdMap.from_ids(occurring)
        return IdMap.from_ids(pl.concat([self.item_space.alias("item"), occurring.unique()]))

    @cached_property
    def scale(self) -> LabelScale:
        """The values that the ratings take."""
        return LabelScale.from_ratings(self._ratings())

    def take(self, indices: NDArray[np.integer[Any]]) -> BehaviourTable:
        """The rows of these numbers, in this order; what is known of the items stays."""
        rows = pl.Series(np.asarray(indices, dtype=np.int64), dtype=pl.Int64)
        return replace(self, frame=self.frame[rows])

    def matrix(self, *, users: IdMap, items: IdMap, scale: LabelScale) -> BehaviourMatrix:
        """Compressed rows, for ids and ratings that these maps know."""
        return BehaviourMatrix.from_triplets(
            self._encoded("user", users),
            self._encoded("item", items),
            scale.encode(self._ratings()),
            n_users=users.size,
            n_items=items.size,
            n_labels=scale.size,
        )

    def deduplicated(self) -> tuple[BehaviourTable, int]:
        """One row per (user, item): the latest by timestamp, and among equals by file order."""
        repeated = self._repeated()
        if not repeated.any():
            return self, 0
        # Only these rows are sorted: they are few, and the table may be large.
        rows = self.frame.with_row_index("row").filter(repeated)
        if "timestamp" in rows.columns:
            rows = rows.sort("timestamp", maintain_order=True)
        # maintain_order: "last" is only defined in the order of the rows.
        last = rows.unique(["user", "item"], keep="last", maintain_order=True)["row"]
        kept = ~repeated.to_numpy()
        kept[last.to_numpy()] = True
        dropped = self.n - int(np.count_nonzero(kept))
        return (replace(self, frame=self.frame.filter(kept)), dropped) if dropped else (self, 0)

    def _repeated(self) -> pl.Series:
        """(n,) which rows may share their pair with another; by hashes, so rarely one too many."""
        pair = pl.col("user").hash(seed=1) ^ pl.col("item").hash(seed=2)
        key = self.frame.select(pair).to_series()
        ordered = np.sort(key.to_numpy())
        twice = pl.Series(ordered[1:][ordered[1:] == ordered[:-1]], dtype=pl.UInt64).unique()
        if twice.is_empty():
            return pl.repeat(False, self.n, eager=True)
        return key.is_in(twice.implode())

    def sha256(self) -> str:
        """Hash of the canonical columns, and of the item space where there is one.

        Integers count by value, whatever their width, and the item space counts because it decides
        the size of the item axis: two runs on the same hash saw the same matrix.
        """
        digest = hashlib.sha256()
        columns = self.frame.get_columns()
        if self.item_space is not None:
            columns.append(self.item_space.alias("item_space"))
        for column in columns:
            _hash_column(digest, column)
        return digest.hexdigest()

    def _ratings(self) -> pl.Series:
        if "rating" not in self.frame.columns:
            raise DataError(
                f"{self.source} has no ratings, but predicting ratings needs them; give a column "
                f"'rating'."
            )
        return self.frame["rating"]

    def _encoded(self, role: str, ids: IdMap) -> NDArray[np.int32]:
        index = ids.encode(self.frame[role])
        unknown = np.flatnonzero(index < 0)
        if unknown.size:
            raise DataError(
                f"{unknown.size:,} of {self.n:,} behaviours in {self.source} have an unknown "
                f"{role}, the first one {self.frame[role][int(unknown[0])]!r}; only ids that the "
                f"model was built with can enter its matrix."
            )
        return index


def _as_polars(frame: Any) -> pl.DataFrame:
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    try:
        if hasattr(frame, "__arrow_c_stream__") or isinstance(frame, dict):
            return pl.DataFrame(frame)
        # Before pandas 2.2 a frame does not speak Arrow.
        if type(frame).__module__.partition(".")[0] == "pandas":
            return pl.from_pandas(frame)
    except (pl.exceptions.PolarsError, ImportError, TypeError, ValueError) as error:
        raise DataError(
            f"The {type(frame).__name__} could not be converted to a polars frame: {error}"
        ) from error
    raise DataError(
        f"A {type(frame).__name__} was given, but a polars, pandas or pyarrow table was expected."
    )


def _canonical(role: str, column: pl.Series) -> pl.Series:
    """The column in its canonical type, every value usable; errors name row and value."""
    name = column.name
    if role in ("user", "item"):
        result = as_ids(column)
        bad = result.is_null()
        if result.dtype == pl.String:
            bad = bad | (result == "").fill_null(True)
        expected = "an id"
    elif role == "rating":
        result = column.cast(pl.Float64, strict=False)
        bad = ~result.is_finite().fill_null(False)
        expected = "a finite number"
    else:
        result = _seconds(column)
        bad = result.is_null()
        expected = "a date or seconds since 1970"
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise DataError(
            f"Row {row} (from 0) of the frame has {column[row]!r} in column '{name}', but the "
            f"{role} must be {expected}; repair or remove {int(bad.sum())} such rows."
        )
    return result.alias(role)


def _seconds(column: pl.Series) -> pl.Series:
    if column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
        return column.cast(pl.Datetime("us")).dt.epoch("s")
    if column.dtype.is_float():
        # A cast truncates towards zero; seconds before 1970 deserve the same floor as later ones.
        return column.floor().cast(pl.Int64, strict=False)
    return column.cast(pl.Int64, strict=False)


def _canonical_items(items: pl.DataFrame) -> pl.DataFrame:
    for name in ("item", "title"):
        if name not in items.columns:
            raise DataError(
                f"The items frame has no column '{name}': its columns are "
                f"{_listed(items.columns)}; expected 'item', 'title' and perhaps 'genres'."
            )
    kept = [name for name in ("item", "title", "genres") if name in items.columns]
    return items.select(kept).with_columns(as_ids(items["item"]))


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def _hash_column(digest: Any, column: pl.Series) -> None:
    """Feed name, kind and values, in a form that no two different columns share."""
    if column.dtype == pl.String:
        kind, lengths = "text", column.str.len_bytes().to_numpy().astype("<u8")
        chunks = [lengths.tobytes(), str(column.str.join("").item()).encode()]
    elif column.dtype.is_float():
        kind, chunks = "real", [column.to_numpy().astype("<f8").tobytes()]
    elif column.dtype == pl.UInt64 and (column.max() or 0) > 2**63 - 1:  # type: ignore[operator]
        kind, chunks = "natural", [column.to_numpy().astype("<u8").tobytes()]
    else:
        kind, chunks = "integer", [column.to_numpy().astype("<i8").tobytes()]
    digest.update(f"{column.name} {kind} {column.len()}\n".encode())
    for chunk in chunks:
        digest.update(chunk)
