"""Arguments of the Python interface in one form: ids, pairs, ad-hoc histories, events.

Callers pass single values, lists, tuples, or frames of polars, pandas and pyarrow. `like` returns a
result in the library that the argument came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from cfuica.data.columns import as_polars, canonical_rows
from cfuica.data.table import Interactions
from cfuica.data.time_columns import SECONDS_BELOW
from cfuica.data.vocabulary import Vocabulary, as_ids
from cfuica.errors import DataError
from cfuica.forks import need_polars

_HISTORY = ("item", "rating")
# The range of Int64; polars has other types for larger numbers.
_IDS = range(-(2**63), 2**63)


def as_table(data: Interactions | Any, *, events: bool = False) -> Interactions:
    """A table or frame as Interactions; types and weights are read with `events` only."""
    if isinstance(data, Interactions):
        return data
    unread: dict[str, Any] = {} if events else {"type": None, "weight": None}
    return Interactions.from_frame(data, **unread)


def as_pairs(data: Interactions | Any) -> Interactions:
    """User and item of each row; unlike interactions, pairs to predict may repeat."""
    if isinstance(data, Interactions):
        return data
    if isinstance(data, list | tuple):
        data = _columns(data, ("user", "item"), "pair")
    return Interactions.from_frame(
        data, rating=None, timestamp=None, type=None, weight=None, repeats=True, may_be_empty=True
    )


def as_id_column(role: str, ids: Any) -> pl.Series:
    """One id, several, or a column, frame or vocabulary of them, as a column of integers or
    strings."""
    if isinstance(ids, Vocabulary):
        ids = ids.ids
    if isinstance(ids, pl.Series):
        return as_ids(ids)
    if _is_frame(ids):
        frame = _collected(ids)
        if role not in frame.columns and frame.width != 1:
            raise DataError(
                f"The frame has no column '{role}': its columns are {', '.join(frame.columns)}; "
                f"give one of that name, or the column alone."
            )
        return as_ids(frame[role] if role in frame.columns else frame.to_series())
    if ids is None:
        return pl.Series(role, [], pl.String)
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        ids = [ids]
    return as_ids(_column(role, list(ids)))


def as_exclusions(exclude: Any) -> pl.Series | pl.DataFrame:
    """Items that nobody is to get, as a column; or, of a mapping of users to their items or a frame
    with a column of users, user and item, as a frame."""
    if isinstance(exclude, Mapping):
        pairs = [
            (user, item) for user, own in exclude.items() for item in as_id_column("item", own)
        ]
        return as_pairs(pairs).frame
    if _is_frame(exclude) and "user" in as_polars(exclude).lazy().collect_schema().names():
        return as_pairs(exclude).frame
    return as_id_column("item", exclude)


def as_history(history: Any, *, rated: bool = True) -> pl.DataFrame:
    """A history as a frame of items and, with `rated`, ratings; each item once."""
    names = _HISTORY if rated else _HISTORY[:1]
    each = "item and rating" if rated else "item"
    if isinstance(history, list | tuple):
        frame = pl.DataFrame(_history_columns(history, rated))
    elif isinstance(history, pl.Series):
        frame = history.alias("item").to_frame()
    else:
        frame = _collected(history)
    for name in names:
        if name not in frame.columns:
            raise DataError(
                f"The history has no column '{name}': its columns are {', '.join(frame.columns)}; "
                f"give the {each.replace(' and', ' and the')} of each interaction."
            )
    rows, _ = canonical_rows(
        {name: frame[name] for name in names},
        lambda row: f"Row {row} (from 0) of the history",
    )
    check_once(rows["item"], "the history", rated=rated)
    return rows


def check_once(items: pl.Series, place: str, *, rated: bool) -> None:
    """Refuse a history, called `place` in the message, that repeats an item."""
    repeated = items.filter(items.is_duplicated())
    if len(repeated):
        remedy = "the one rating that counts" if rated else "its last place alone"
        raise DataError(
            f"The item {repeated[0]!r} is in {place} more than once; give each item {remedy}."
        )


def as_events(events: Any, *, rated: bool = True, types: tuple[str, ...] = ()) -> Interactions:
    """Events as Interactions, of several for a pair the latest; perhaps with a column `removed`.

    With `rated` every event that is not removed has a rating; without, ratings are not read. The
    timestamp is always optional. A column of types is read where the model has `types`.
    """
    if isinstance(events, list | tuple) and events and all(isinstance(e, dict) for e in events):
        columns = dict.fromkeys(name for event in events for name in event)
        events = {name: _column(name, [event.get(name) for event in events]) for name in columns}
    if isinstance(events, list | tuple):
        widths = [width for width in (4, 3) if any(_is_row(event, width) for event in events)]
        # If one event has a rating or a timestamp, all must have one.
        width = max([*widths, 3 if rated else 2])
        names = ("user", "item", "rating", "timestamp")
        events = _columns(events, names[:width], "event")
    if isinstance(events, Interactions):
        table = events
    else:
        # Removals need no rating.
        table = Interactions.from_frame(
            events,
            empty_rating="keep",
            type="type" if types else None,
            weight=None,
            types=types,
            removals=True,
            may_be_empty=True,
        )
    if rated:
        _check_rated(table)
    return table


def _check_rated(events: Interactions) -> None:
    """Refuse events without a rating that do not say that they remove an interaction."""
    # Without the threads of polars, which a forked process does not have.
    frame, given = events.frame, np.ones(events.n, np.bool_)
    if "removed" in frame.columns:
        given = ~frame["removed"].to_numpy()
    if not given.any():
        return
    if "rating" not in frame.columns:
        raise DataError(
            f"The events in {events.source} have no ratings; give a column 'rating', and to remove "
            f"interactions a column 'removed', model.remove or cfuica observe --remove."
        )
    unrated = np.flatnonzero(given & frame["rating"].is_null().to_numpy())
    if len(unrated):
        user, item = (frame[role][int(unrated[0])] for role in ("user", "item"))
        others = f", like {len(unrated) - 1:,} more" if len(unrated) > 1 else ""
        raise DataError(
            f"The event of user {user!r} and item {item!r} in {events.source} has no rating"
            f"{others}; give one, or to remove the interaction, true in a column 'removed', "
            f"model.remove or cfuica observe --remove."
        )


def as_plain_event(
    events: Any, *, rated: bool = True
) -> tuple[str | int, str | int, float | None, int | None] | None:
    """User, item, rating and timestamp of a single event of plain Python values, else None.

    With `rated` the event has a rating and no timestamp. Without, both are optional, and the rating
    may be None.
    """
    if not isinstance(events, list | tuple) or len(events) != 1 or not _is_row(events[0], 2):
        return None
    event, defaults = list(events[0]), [None, None]
    width = len(event)
    if width not in ((3,) if rated else (2, 3, 4)):
        return None
    user, item, rating, time = event + defaults[width - 2 :]
    if not (_is_plain_id(user) and _is_plain_id(item)):
        return None
    is_number = type(rating) in (int, float) and math.isfinite(rating)
    if not is_number and (rated or rating is not None):
        return None
    # The unit of larger numbers is found by `from_frame`.
    is_timed = width < 4 or (type(time) is int and abs(time) < SECONDS_BELOW)
    return (user, item, rating, time) if is_timed else None


def _is_plain_id(one: Any) -> bool:
    return bool(one) if type(one) is str else type(one) is int and one in _IDS


def _is_frame(given: Any) -> bool:
    return isinstance(given, dict | pl.LazyFrame) or hasattr(given, "columns")


def _collected(given: Any) -> pl.DataFrame:
    frame = as_polars(given)
    return frame.collect() if isinstance(frame, pl.LazyFrame) else frame


def _is_row(row: Any, width: int) -> bool:
    return isinstance(row, list | tuple) and len(row) >= width


def _history_columns(rows: Sequence[Any], rated: bool) -> dict[str, pl.Series]:
    if rated:
        return _columns(rows, _HISTORY, "interaction of the history")
    for row in rows:
        if isinstance(row, list | tuple):
            raise DataError(
                f"The interaction of the history {row!r} is not an item's id, and this model reads "
                f"no ratings; give item ids alone, newest last."
            )
    return {"item": _column("item", list(rows))}


def _columns(rows: Sequence[Any], names: tuple[str, ...], what: str) -> dict[str, pl.Series]:
    """Columns of rows that are lists or tuples."""
    for row in rows:
        if not _is_row(row, len(names)):
            raise DataError(
                f"The {what} {row!r} is not of the form ({', '.join(names)}); give all in this "
                f"form."
            )
    return {name: _column(name, [row[at] for row in rows]) for at, name in enumerate(names)}


def _column(role: str, values: list[Any]) -> pl.Series:
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = {type(value) for value in values} - {type(None)}
    try:
        # Integers among floats are floats.
        return pl.Series(role, values, pl.Float64 if kinds == {int, float} else None)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        there = [value for value in values if value is not None]
        if kinds == {int}:
            raise DataError(
                f"The {role} {max(there, key=abs)} is too large for a number; give it as a string."
            ) from None
        odd = next((value for value in there if type(value) is not type(there[0])), there[0])
        raise DataError(
            f"The {role} {odd!r} cannot stand in one column with {there[0]!r}; give numbers or "
            f"strings, all of one type."
        ) from None


def like(given: Any, result: pl.DataFrame, *, same_rows: bool = False) -> Any:
    """The result as a frame of the library that `given`, a frame or a column, comes from.

    polars, pandas, pyarrow and classes with `from_arrow` give their own kind (a pyarrow batch gives
    a table); everything else gives polars. With `same_rows` the rows of the result are those of
    `given`, and it gets the index of a pandas frame, so that columns of both align.
    """
    library = type(given).__module__.partition(".")[0]
    if library == "polars":
        return result
    if library == "pandas":
        need_polars("A frame of pandas")
        frame = result.to_pandas()
        return frame.set_axis(given.index) if same_rows else frame
    if library == "pyarrow":
        need_polars("A table of pyarrow")
        return result.to_arrow()
    if hasattr(given, "__arrow_c_stream__") and hasattr(type(given), "from_arrow"):
        return type(given).from_arrow(result.to_arrow())
    return result
