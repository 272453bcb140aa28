"""`Interactions`: the table of interactions with the ids of the user's data, one row each.

Readers and frames become an `Interactions`; from it come vocabularies, label scale, matrix and
timeline. Item metadata (titles, genres) is a frame beside the interactions, with one row per item.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.columns import EventCounts, as_polars, canonical_rows, rows_of
from cfuica.data.item_metadata import canonical_items, item_metadata_of, matched_note, updated
from cfuica.data.layout import FIND_OUT, PAIR, ReadOptions, listed
from cfuica.data.matrix import InteractionMatrix, RatedPairs, Timeline
from cfuica.data.vocabulary import DEFAULT_BINS, LabelScale, Vocabulary
from cfuica.errors import DataError
from cfuica.forks import need_polars

# So few rows are compared one by one.
_FEW = 10_000
# Rows that are hashed at a time.
_SLICE = 1 << 20


@dataclass(frozen=True, eq=False)
class Interactions:
    """Interactions in file order, at most one per (user, item).

    One of weight 0 is context only: it is read, but never a target of a ranking.
    """

    # `user`, `item`, and where the data has them `rating` (Float64, null where an interaction has
    # none), `timestamp` (Int64, s), `type` (String), `weight` (Float64, 0 or more) and `removed`
    # (Boolean; in events alone: the row takes the interaction away).
    frame: pl.DataFrame
    # Item metadata: `item` and any other columns, such as `title` or `genres` (a list of strings).
    items: pl.DataFrame | None = None
    # All ids of the item vocabulary, where they are more than those that occur.
    item_space: pl.Series | None = None
    source: str = "a frame"  # Where the rows came from, for messages.
    source_notes: tuple[str, ...] = ()  # Changes made by reading, one sentence each, for the log.
    # How many rows of the source were dropped because another one has the same pair.
    repeats_dropped: int = 0
    types: tuple[str, ...] = ()  # The types of events, weakest first; () where there are none.
    events: EventCounts | None = None  # What all rows of the source were.

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: str = "user",
        item: str = "item",
        rating: str | None = "rating",
        timestamp: str | None = "timestamp",
        type: str | None = "type",
        weight: str | None = "weight",
        types: tuple[str, ...] = (),
        targets: tuple[str, ...] = (),
        count_repeats: bool = False,
        removals: bool = False,
        time_unit: Literal["s", "ms", "us", "ns"] | None = None,
        time_format: str | None = None,
        items: Any = None,
        bad_rows: Literal["refuse", "skip"] = "refuse",
        empty_rating: Literal["refuse", "keep"] = "refuse",
        no_rating: tuple[float, ...] = (),
        no_rating_means: Literal["implicit", "drop"] = "implicit",
        repeats: bool = False,
        may_be_empty: bool = False,
    ) -> Interactions:
        """Take the named columns of a polars, pandas, pyarrow or other Arrow table.

        A column of ratings, timestamps, types or weights under its default name is optional; under
        another name, it must exist. `types` are the types of events that are read, weakest first
        (default: all, the most frequent first): of a pair the strongest counts. Where `targets` are
        given, events of other types are context only. The weights of a pair add up; with
        `count_repeats` rows without weights count one each. With `removals` a column `removed` is
        read too. Times become whole seconds since 1970. `time_unit`, `time_format`, `bad_rows`,
        `empty_rating`, `no_rating` and `no_rating_means` are those of `ReadOptions`. With `repeats`
        every row stays: a pair is one interaction, but may be predicted twice. With `may_be_empty`
        there may be no rows.
        """
        options = ReadOptions(
            type=None if type == "type" else type,
            types=types,
            fixed_types=removals,
            targets=targets,
            count_repeats=count_repeats,
            time_unit=time_unit,
            time_format=time_format,
            bad_rows=bad_rows,
            empty_rating=empty_rating,
            no_rating=no_rating,
            no_rating_means=no_rating_means,
        )
        given = as_polars(frame)
        names = given.collect_schema().names()
        given_names = {
            "user": user,
            "item": item,
            "rating": rating,
            "timestamp": timestamp,
            "type": type,
            "weight": weight,
            "removed": "removed" if removals else None,
        }
        wanted = {
            role: name
            for role, name in given_names.items()
            if name is not None and (role in PAIR or name != role or name in names)
        }
        for role, name in wanted.items():
            if name not in names:
                raise DataError(
                    f"The frame has no column '{name}' for the {role}: its columns are "
                    f"{listed(names) or 'none'}; name the right one with {role}=..."
                )
        # A lazy frame fetches no more than these; one may serve two roles.
        chosen = sorted(set(wanted.values()))
        if isinstance(given, pl.LazyFrame):
            given = given.select(chosen).collect()
        needed = pl.DataFrame([given[name] for name in chosen])
        if needed.height == 0 and not may_be_empty:
            raise DataError("The frame has no rows, but at least one interaction was expected.")
        if empty_rating == "keep" and "rating" in wanted:
            _refuse_nan(frame, wanted["rating"])
        canonical, notes = canonical_rows(
            {role: needed[name] for role, name in wanted.items()}, _place, options
        )
        item_metadata = None if items is None else canonical_items(items)
        return cls.of_rows(
            canonical,
            options=options,
            repeats=repeats,
            items=item_metadata,
            source_notes=notes,
        )

    @classmethod
    def of_rows(
        cls,
        frame: pl.DataFrame,
        *,
        options: ReadOptions = FIND_OUT,
        repeats: bool = False,
        **fields: Any,
    ) -> Interactions:
        """The last step of every reader: mark missing ratings and keep one row per pair.

        A rating that means "no rating" becomes null, or its row is dropped, before the latest row
        of a pair is chosen. So a later interaction without a rating replaces an earlier rating, and
        a dropped one does not. With `repeats` every row stays as it is.
        """
        if repeats:
            return cls(frame, **fields)
        if options.fixed_types and frame.height <= _FEW:  # events, perhaps of a forked process
            table = cls(frame, **fields)._without_ratings(options)
            return table._noting_repeats(*table._few_deduplicated(options.types))
        table = cls(frame, events=EventCounts.of(frame), **fields)._without_ratings(options)
        has_events = bool({"type", "weight"} & set(frame.columns))
        has_events |= bool(options.types or options.targets or options.count_repeats)
        # Where events take interactions away, the latest of a pair counts, whatever its type.
        if has_events and "removed" not in frame.columns:
            from cfuica.data.events import merged_events

            frame, types, merged, notes = merged_events(table.frame, options)
            notes = (*table.source_notes, *notes)
            return replace(
                table, frame=frame, types=types, repeats_dropped=merged, source_notes=notes
            )
        return table._noting_repeats(*table.deduplicated())

    @staticmethod
    def _noting_repeats(table: Interactions, dropped: int) -> Interactions:
        if dropped == 0:
            return table
        note = f"{dropped:,} earlier interactions of a repeated (user, item) pair were dropped."
        return replace(table.noted(note), repeats_dropped=dropped)

    @classmethod
    def read(cls, path: str | Path, options: ReadOptions = FIND_OUT) -> Interactions:
        """Read delimited text, Parquet, Arrow IPC, or a MovieLens folder or zip."""
        # Imported here because the readers build tables.
        from cfuica.data.readers import read_table

        return read_table(path, options)

    def __repr__(self) -> str:
        users, items = (self.frame[role].n_unique() for role in PAIR)
        extra = [name for name in self.frame.columns if name not in PAIR]
        metadata = [] if self.items is None else [f"item metadata {', '.join(self.items.columns)}"]
        parts = [f"{self.n:,} of {users:,} users and {items:,} items", *extra, *metadata]
        return f"Interactions({'; '.join(parts)}; from {self.source})"

    @property
    def n(self) -> int:
        """How many interactions there are."""
        return self.frame.height

    @cached_property
    def users(self) -> Vocabulary:
        """The user vocabulary: the users that occur."""
        return Vocabulary.from_ids(self.frame["user"])

    @cached_property
    def item_ids(self) -> Vocabulary:
        """The item vocabulary: the item space, or without one, the items that occur."""
        occurring = self.frame["item"]
        if self.item_space is None:
            return Vocabulary.from_ids(occurring)
        return Vocabulary.from_ids(pl.concat([self.item_space.alias("item"), occurring.unique()]))

    @cached_property
    def scale(self) -> LabelScale:
        """The label scale of these ratings alone; see `label_scale`."""
        return self.label_scale()

    def label_scale(
        self, *, vocabulary: Interactions | None = None, bins: int = DEFAULT_BINS
    ) -> LabelScale:
        """The label scale for training on this table, a subset of `vocabulary`."""
        train, whole = (table.rated().frame["rating"] for table in (self, vocabulary or self))
        return LabelScale.of(train, whole, bins=bins)

    @property
    def has_times(self) -> bool:
        """Whether the interactions have timestamps."""
        return "timestamp" in self.frame.columns

    def rated(self) -> Interactions:
        """The rows with a rating; the same object where all of them have one."""
        if "rating" not in self.frame.columns:
            raise DataError(
                f"{self.source} has no ratings, but predicting ratings needs them; give a column "
                f"'rating' (--rating-column), or rank the items without any: --task ranking."
            )
        missing = self.frame["rating"].null_count()
        if missing == 0:
            return self
        if missing == self.n:
            raise DataError(
                f"None of the {self.n:,} interactions in {self.source} has a rating, but "
                f"predicting ratings needs them; check which values were given as meaning no "
                f"rating, or rank the items without any: --task ranking."
            )
        rows = replace(self, frame=self.frame.filter(self.frame["rating"].is_not_null()))
        return rows.noted(
            f"{missing:,} of {self.n:,} interactions have no rating and are left out of the "
            f"ratings."
        )

    def noted(self, note: str) -> Interactions:
        """A copy with one more note."""
        return replace(self, source_notes=(*self.source_notes, note))

    def with_items(self, items: Any, source: str = "the items frame") -> Interactions:
        """A copy with item metadata, in place of the same columns that it has; items without
        interactions are left out."""
        given = canonical_items(items)
        note = matched_note(given["item"], self.item_ids, source, "the interactions")
        more = item_metadata_of(given, self.item_ids)
        stored = item_metadata_of(self.items, self.item_ids)
        assert more is not None
        table = replace(self, items=updated(stored, more, source))
        return table if note is None else table.noted(note)

    def take(self, indices: NDArray[np.integer[Any]]) -> Interactions:
        """The rows with these numbers, in this order; item metadata stays."""
        return replace(self, frame=self.frame[np.asarray(indices, dtype=np.int64)])

    def matrix(
        self, *, users: Vocabulary, items: Vocabulary, scale: LabelScale
    ) -> InteractionMatrix:
        """The ratings as a sparse matrix; vocabularies and scale must contain them all."""
        rated = self.rated()
        return InteractionMatrix.from_triplets(
            rated.encoded("user", users),
            rated.encoded("item", items),
            rated.labels(scale),
            n_users=users.size,
            n_items=items.size,
            n_labels=scale.size,
        )

    def timeline(
        self,
        *,
        users: Vocabulary,
        items: Vocabulary,
        has_times: bool,
        types: tuple[str, ...] | None = None,
    ) -> Timeline:
        """Each user's interactions in temporal order; all ids must be in the vocabularies.

        Without timestamps the order of the rows is the temporal order. The numbers of types are
        those of `types`, by default of the table's own.
        """
        weights = None
        if "weight" in self.frame.columns:
            weights = self.frame["weight"].to_numpy().astype(np.float32)
        return Timeline.of(
            self.encoded("user", users),
            self.encoded("item", items),
            self.frame["timestamp"].to_numpy() if has_times else None,
            n_users=users.size,
            n_items=items.size,
            types=self.type_numbers(self.types if types is None else types),
            weights=weights,
        )

    def type_numbers(self, types: tuple[str, ...]) -> NDArray[np.uint8] | None:
        """(n,) the place of each interaction's type among these; None where there are none.

        In a table without types every interaction is of the strongest.
        """
        if not types:
            return None
        if "type" not in self.frame.columns:
            return np.full(self.n, len(types) - 1, np.uint8)
        place = {name: at for at, name in enumerate(types)}
        column = self.frame["type"]
        distinct = dict.fromkeys(column.to_list() if self.n <= _FEW else column.unique().to_list())
        if unknown := [name for name in distinct if name not in place]:
            raise DataError(
                f"The type {unknown[0]!r} in {self.source} is unknown: the types of events are "
                f"{listed(list(types))}; give events of these, or train with it."
            )
        if self.n <= _FEW:
            return np.array([place[name] for name in column.to_list()], np.uint8)
        return column.replace_strict(place, return_dtype=pl.UInt8).to_numpy()

    def rated_pairs(self, *, users: Vocabulary, items: Vocabulary, scale: LabelScale) -> RatedPairs:
        """The ratings with their pairs, in the order of the matrix, to evaluate predictions."""
        rated = self.rated()
        users_p, items_p = rated.encoded("user", users), rated.encoded("item", items)
        labels_p = rated.labels(scale)
        # Without bins the label's value is the rating, whatever precision the data has.
        exact = scale.values_array().astype(np.float64)
        ratings_p = rated.frame["rating"].to_numpy() if scale.is_binned else exact[labels_p]
        order = np.lexsort((items_p, users_p))
        return RatedPairs(users_p[order], items_p[order], labels_p[order], ratings_p[order])

    def deduplicated(self) -> tuple[Interactions, int]:
        """One row per (user, item): the latest by timestamp, among equals by file order."""
        if self.n <= _FEW:
            return self._few_deduplicated()
        need_polars(f"Finding repeated pairs among {self.n:,} interactions")
        repeated = self._repeated()
        if not repeated.any():
            return self, 0
        # Only the repeated rows are sorted: they are few, and the table may be large.
        rows = self.frame.with_row_index("row").filter(repeated)
        if "timestamp" in rows.columns:
            rows = rows.sort("timestamp", maintain_order=True)
        # maintain_order: "last" is only defined in the order of the rows.
        last = rows.unique(["user", "item"], keep="last", maintain_order=True)["row"]
        remaining = ~repeated.to_numpy()
        remaining[last.to_numpy()] = True
        dropped = self.n - int(np.count_nonzero(remaining))
        return replace(self, frame=self.frame.filter(remaining)), dropped

    def _few_deduplicated(self, types: tuple[str, ...] = ()) -> tuple[Interactions, int]:
        """The same without the threads of polars, which take longer to begin than so few rows.

        With `types`, weakest first, the latest of the strongest type counts, unless some rows take
        their interaction away.
        """
        times = self.frame["timestamp"].to_list() if self.has_times else [0] * self.n
        numbers = self.type_numbers(types)
        if numbers is not None and "removed" not in self.frame.columns:
            times = list(zip(numbers.tolist(), times, strict=True))
        pairs = zip(self.frame["user"].to_list(), self.frame["item"].to_list(), strict=True)
        latest: dict[Any, int] = {}
        for row, pair in enumerate(pairs):
            if pair not in latest or times[row] >= times[latest[pair]]:
                latest[pair] = row
        if len(latest) == self.n:
            return self, 0
        rows = np.sort(np.fromiter(latest.values(), np.int64))
        return replace(self, frame=rows_of(self.frame, rows)), self.n - len(rows)

    def _repeated(self) -> pl.Series:
        """(n,) which rows share their pair with another; by hashes, so rarely one too many."""
        pair = pl.col("user").hash(seed=1) ^ pl.col("item").hash(seed=2)
        # In slices, and by sorting: a table of groups takes more memory than the rows.
        hashes = pl.concat(
            (part.select(pair).to_series() for part in self.frame.iter_slices(_SLICE)), rechunk=True
        )
        ordered = hashes.sort()
        return hashes.is_in(ordered.filter(ordered == ordered.shift()).unique().implode())

    def sha256(self) -> str:
        """Hash of the canonical columns, and of the item space where there is one.

        Integers are hashed by value, whatever their width. The item space is included because it
        decides the number of items: two runs with the same hash had the same matrix.
        """
        digest = hashlib.sha256()
        columns = self.frame.get_columns()
        if self.item_space is not None:
            columns.append(self.item_space.alias("item_space"))
        for column in columns:
            _hash_column(digest, column)
        return digest.hexdigest()

    def _without_ratings(self, options: ReadOptions) -> Interactions:
        """Null, or no row, where the value of the rating means no rating."""
        if "rating" not in self.frame.columns or not options.no_rating:
            return self
        rating = self.frame["rating"]
        values = pl.Series(options.no_rating, dtype=pl.Float64)
        # Empty ratings are handled elsewhere.
        none = rating.is_in(values.implode()).fill_null(False)
        count = int(none.sum())
        if count == 0:
            return self
        stated = " or ".join(f"{value:g}" for value in options.no_rating)
        found = (
            f"{count:,} of {self.n:,} interactions have the rating {stated}, which means no rating"
        )
        if options.no_rating_means == "implicit":
            unrated = pl.when(~none).then(rating).alias("rating")
            table = replace(self, frame=self.frame.with_columns(unrated))
            return table.noted(f"{found}: they stay, without a rating.")
        if count == self.n:
            raise DataError(f"{self.source}: {found}, and nothing is left once they are dropped.")
        return replace(self, frame=self.frame.filter(~none)).noted(f"{found}: they were dropped.")

    def labels(self, scale: LabelScale) -> NDArray[np.uint8]:
        """(n,) the labels of the ratings; all of them must exist and be on the scale."""

        def place(row: int) -> str:
            # By its pair: row numbers of a subset are not those of the source.
            user, item = self.frame["user"][row], self.frame["item"][row]
            return f"of user {user!r} and item {item!r} in {self.source}"

        return scale.encode(self.frame["rating"], place)

    def encoded(self, role: str, ids: Vocabulary) -> NDArray[np.int32]:
        """(n,) the index of each user or item (`role`); all must be in the vocabulary."""
        index = ids.encode(self.frame[role])
        unknown = np.flatnonzero(index < 0)
        if unknown.size:
            raise DataError(
                f"{unknown.size:,} of {self.n:,} interactions in {self.source} have an unknown "
                f"{role}, the first one {self.frame[role][int(unknown[0])]!r}; only ids of the "
                f"vocabulary can enter a matrix."
            )
        return index


def _place(row: int) -> str:
    return f"Row {row} (from 0) of the frame"


def _refuse_nan(frame: Any, name: str) -> None:
    """pandas has NaN both for a failed computation and for a missing value."""
    if type(frame).__module__.partition(".")[0] != "pandas" or not frame[name].isna().any():
        return
    for row, value in enumerate(frame[name]):
        if isinstance(value, float | np.floating) and value != value:
            raise DataError(
                f"{_place(row)} has nan in column '{name}', which may be a missing rating or a "
                f"failed computation; write a missing rating as None or pandas.NA "
                f"(frame.astype({{{name!r}: 'Float64'}}) does that for every nan)."
            )


def _hash_column(digest: Any, column: pl.Series) -> None:
    """Feed name, kind and values; different columns give different bytes."""
    gaps = ""
    if column.null_count():
        gaps = f" {hashlib.sha256(column.is_null().to_numpy().tobytes()).hexdigest()}"
        column = column.fill_null(0)
    if column.dtype == pl.String:
        kind, number = "text", None
    elif column.dtype.is_float():
        kind, number = "real", "<f8"
    elif column.dtype == pl.UInt64 and (column.max() or 0) > 2**63 - 1:  # type: ignore[operator]
        kind, number = "natural", "<u8"
    else:
        kind, number = "integer", "<i8"
    digest.update(f"{column.name} {kind} {column.len()}{gaps}\n".encode())
    if number is not None:
        digest.update(np.ascontiguousarray(column.to_numpy(), dtype=number))
        return
    digest.update(np.ascontiguousarray(column.str.len_bytes().to_numpy(), dtype="<u8"))
    # In slices, because all strings of a column may not fit into memory as one text.
    for start in range(0, column.len(), _SLICE):
        digest.update(str(column.slice(start, _SLICE).str.join("").item()).encode())
