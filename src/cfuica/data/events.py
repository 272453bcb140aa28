"""Events of several types, and with weights, as one interaction of a pair.

A shop's table has many rows of a pair: views, a cart, a purchase. `merged_events` keeps one of
them: of the strongest type, and of several of that type the latest. Types are ordered weakest
first, by default the most frequent first, which for views, carts and purchases is their order. The
weights of the rows of that type add up. An interaction of a type that is no target gets the weight
0: it is context only.
"""

from __future__ import annotations

import polars as pl

from cfuica.data.layout import MOST_TYPES, ReadOptions, listed
from cfuica.errors import DataError, SettingsError

# A column found by its name that has more values holds something else, such as categories.
LIKELY_TYPES = 20


def merged_events(
    frame: pl.DataFrame, options: ReadOptions
) -> tuple[pl.DataFrame, tuple[str, ...], int, tuple[str, ...]]:
    """(frame, types, how many rows were merged into others, notes).

    The frame has one row per (user, item), in the order of the rows, and a column `weight` where
    something gives weights: the data, counted repeats, or types that are no targets.
    """
    notes: list[str] = []
    frame, types = _rows_of_types(frame, options, notes)
    if options.count_repeats and "weight" not in frame.columns:
        frame = frame.with_columns(weight=pl.lit(1.0))
    rows = frame.height
    frame = _one_of_each_pair(frame, types)
    if merged := rows - frame.height:
        rule = "the latest counts"
        if types:
            rule = "the strongest type counts, and of its rows the latest"
        if "weight" in frame.columns:
            rule += "; their weights are added up"
        notes.append(f"{merged:,} of {rows:,} rows repeat a (user, item) pair: of each {rule}.")
    if options.targets:
        frame = _weighted_by_targets(frame, types, options, notes)
    return frame, types, merged, tuple(notes)


def _rows_of_types(
    frame: pl.DataFrame, options: ReadOptions, notes: list[str]
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The rows of the types that are read, and these types, weakest first."""
    if "type" not in frame.columns:
        if (options.types or options.targets) and not options.fixed_types:
            given = "--types" if options.types else "--targets"
            raise DataError(
                f"{given} names types of events, but the data has no column of types; name it with "
                f"--type-column."
            )
        return frame, ()
    counts = (
        frame["type"].value_counts(sort=False).sort(["count", "type"], descending=[True, False])
    )
    found = dict(counts.iter_rows())
    if len(found) > LIKELY_TYPES and not (options.types or options.type):
        notes.append(
            f"The column of types has {len(found):,} values, over {LIKELY_TYPES}, and was left "
            f"out; name it with --type-column if it holds types of events."
        )
        return frame.drop("type"), ()
    types = options.types or tuple(found)
    if options.fixed_types and (new := [name for name in found if name not in types]):
        raise DataError(
            f"The type {new[0]!r} is unknown: the types of events are {listed(list(types))}; "
            f"give events of these, or train with it."
        )
    if len(types) > MOST_TYPES:
        raise DataError(
            f"The column of types has {len(types):,} values, but events can be of {MOST_TYPES} "
            f"types; name the ones to read with --types."
        )
    for name in options.targets:
        if name in found and name not in types:
            raise SettingsError(
                f"The target {name!r} is none of the types to read, {listed(list(types))}; name it "
                f"in --types too."
            )
    for name in (*options.types, *options.targets):
        if name not in types or (name not in found and not options.fixed_types):
            raise SettingsError(
                f"The type {name!r} is none of the data: its types are {listed(list(found))}; "
                f"name some of these in --types and --targets."
            )
    if left_out := sum(count for name, count in found.items() if name not in types):
        frame = frame.filter(pl.col("type").is_in(types))
        notes.append(f"{left_out:,} events are of types that --types does not name: left out.")
    stated = ", ".join(f"{name} ({found.get(name, 0):,})" for name in types)
    notes.append(f"Types of events, weakest first: {stated}.")
    return frame, types


def _one_of_each_pair(frame: pl.DataFrame, types: tuple[str, ...]) -> pl.DataFrame:
    pair = ["user", "item"]
    repeated = frame.select((pl.col("user").hash(1) ^ pl.col("item").hash(2)).is_duplicated())
    if not repeated.to_series().any():
        return frame
    # Only the repeated rows are sorted: they may be few, and the table large.
    numbered = frame.with_row_index("row")
    rows = numbered.filter(repeated.to_series())
    strength = pl.lit(0)
    if types:
        strength = pl.col("type").replace_strict(types, range(len(types)), return_dtype=pl.Int32)
    rows = rows.with_columns(strength=strength)
    by = ["strength", "timestamp"] if "timestamp" in rows.columns else ["strength"]
    rows = rows.sort(by, maintain_order=True)
    if "weight" in rows.columns:
        rows = rows.with_columns(pl.col("weight").sum().over([*pair, "strength"]))
    last = rows.unique(pair, keep="last", maintain_order=True).drop("strength")
    single = numbered.filter(~repeated.to_series())
    return pl.concat([single, last]).sort("row").drop("row")


def _weighted_by_targets(
    frame: pl.DataFrame, types: tuple[str, ...], options: ReadOptions, notes: list[str]
) -> pl.DataFrame:
    own = pl.col("weight") if "weight" in frame.columns else pl.lit(1.0)
    is_target = pl.col("type").is_in(options.targets)
    frame = frame.with_columns(weight=pl.when(is_target).then(own).otherwise(0.0))
    context = [name for name in types if name not in options.targets]
    if context:
        count = frame["weight"].eq(0).sum()
        notes.append(f"{count:,} interactions ({', '.join(context)}) are context only.")
    return frame
