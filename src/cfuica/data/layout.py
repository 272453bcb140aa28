"""Layout of a delimited text file: separator, header and columns, found or given by options.

`ReadOptions` are the options of every reader. `Layout.of_text` finds out from the beginning of the
file what the options leave open.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cfuica.errors import DataError, SettingsError

ROLES = ("user", "item", "rating", "timestamp")  # In this order where there is no header.
# Roles that a column may have by its name or by an option: the type of an event, how much it
# counts, and whether it takes its interaction away, which is read from events alone.
EVENT_ROLES = ("type", "weight", "removed")
MOST_TYPES = 255  # Types of events that can be told apart.
PAIR = ROLES[:2]  # The columns of a pair to predict; ratings and times beside them are not read.
_KEYS = {
    "user": "user (or user_id, uid)",
    "item": "item (or item_id, movie_id, product_id)",
    "rating": "rating",
}


def option_of(role: str) -> str:
    """The option of the command line that names the column of a role."""
    return f"--{'time' if role == 'timestamp' else role}-column"


# Usual names of columns, compared without case, underscores, hyphens and spaces; the first wins.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "user": (
        "user", "userid", "uid", "username", "reviewerid", "customerid", "visitorid", "customer",
        "clientid", "client", "visitor", "memberid", "member", "buyerid", "buyer",
    ),
    "item": (
        "item", "itemid", "movieid", "iid", "productid", "asin", "parentasin", "isbn", "bookid",
        "businessid", "songid", "trackid", "artistid", "animeid", "gameid", "jokeid", "recipeid",
        "movie", "product", "book", "sku", "skuid", "articleid", "article", "stockcode",
        "productcode", "itemcode", "listingid", "contentid", "videoid", "newsid",
    ),
    "rating": ("rating", "score", "stars", "label", "overall", "bookrating"),
    "timestamp": (
        "timestamp", "time", "ts", "unixtimestamp", "unixreviewtime", "datetime", "date",
        "eventtime", "eventtimestamp", "eventdate", "occurredat", "createdat", "orderedat",
        "purchasedat", "viewedat", "clickedat", "ratedat", "orderdate", "purchasedate",
        "invoicedate", "tdat",
    ),
    "type": (
        "type", "event", "eventtype", "interactiontype", "action", "actiontype", "behavior",
        "behaviour", "behaviortype", "behaviourtype",
    ),
    # Neither count nor quantity, which may be negative for what was sent back.
    "weight": ("weight", "playcount", "plays", "listencount"),
    "removed": ("removed",),
}  # fmt: skip
_NO_HEADER = ", or leave the header out and give 3 or 4 columns: user, item, rating, timestamp"
_SEPARATORS = ("\t", ",", ";", "|")
# RecBole's atomic files write the type of a column behind its name: user_id:token.
_TYPES = (":token", ":float", ":token_seq", ":float_seq")


class NoSuchColumn(DataError):
    """A file does not have a column that is needed; it may have one of another name."""


@dataclass(frozen=True)
class ReadOptions:
    """Options of every reader. The defaults mean: find out, and refuse bad rows."""

    user: str | None = None  # Name of the user column, or its number from 1.
    item: str | None = None  # Name of the item column, or its number from 1.
    rating: str | None = None  # Name of the rating column, or its number from 1.
    timestamp: str | None = None  # Name of the column of times, or its number from 1.
    # Of the two below, "" means that the table has none, whatever its columns are called.
    type: str | None = None  # Name of the column of the types of events, or its number from 1.
    weight: str | None = None  # Name of the column of weights, or its number from 1.
    types: tuple[str, ...] = ()  # Types of events, weakest first; (): all, most frequent first.
    # Whether `types` are those of a model or a training set: some may be missing, none be new.
    fixed_types: bool = False
    targets: tuple[str, ...] = ()  # Types that are predicted, others are context only; (): all.
    count_repeats: bool = False  # Whether the rows of a pair without weights count one each.
    removals: bool = False  # Whether a column `removed` is read: rows that take one away.
    # Unit of times that are numbers; without it, it is found by their size.
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    time_format: str | None = None  # Form of the times, as `strptime` has it; UTC without a zone.
    separator: str | None = None  # What separates the fields of a line; one character or several.
    header: bool | None = None  # Whether the first line names the columns.
    encoding: Literal["utf-8", "latin-1"] | None = None  # Encoding of a text file.
    # Whether a row that is no interaction is an error, or is left out and counted.
    bad_rows: Literal["refuse", "skip"] = "refuse"
    # Whether a row whose rating is empty is no interaction, or stays with a null rating.
    empty_rating: Literal["refuse", "keep"] = "refuse"
    # Values of the rating that mean: no rating was given (Book-Crossing's 0).
    no_rating: tuple[float, ...] = ()
    # Whether an interaction without a rating stays, with a null rating, or is dropped.
    no_rating_means: Literal["implicit", "drop"] = "implicit"
    max_memory: float | None = None  # Most that the rows may take, in GB; half of the machine's.
    # Is told the name of a file and how much of it is read, from 0 to 1.
    progress: Callable[[str, float], None] | None = field(default=None, compare=False, repr=False)


FIND_OUT = ReadOptions()  # The defaults, for signatures.


def refuse_column_options(options: ReadOptions, what: str) -> None:
    """Refuse options about columns for a release whose columns are fixed; `what` begins the
    sentence."""
    given = [
        name
        for name in (*ROLES, "type", "weight", "time_unit", "time_format", "separator", "header")
        if getattr(options, name) not in (None, "")
    ]
    if given:
        raise SettingsError(
            f"{what}, whose columns are known, but {' and '.join(given)} was given; leave it out, "
            f"or give the file of ratings itself."
        )


@dataclass(frozen=True)
class Layout:
    """Where in a line each part of an interaction stands."""

    separator: str
    names: tuple[str, ...]  # What to call each field of a line in a message.
    columns: Mapping[str, int]  # Role (user, item, rating, ...) to the position of its field.
    # Lines before the first interaction: blank ones, and the header if there is one.
    skip_lines: int

    @property
    def quotes(self) -> bool:
        """Whether a field may be quoted; longer separators, such as '::', know no quotes."""
        return _has_quotes(self.separator)

    @classmethod
    def positional(cls, separator: str) -> Layout:
        """No header: user, item, rating and timestamp, in this order."""
        return cls(separator, ROLES, {role: at for at, role in enumerate(ROLES)}, 0)

    @classmethod
    def of_text(
        cls,
        start: str,
        name: str,
        options: ReadOptions = FIND_OUT,
        *,
        only: tuple[str, ...] | None = None,
    ) -> Layout:
        """Find where the roles stand from the beginning of the file called `name`.

        They are those of an interaction, or `only` these, which then must all be there.
        """
        needed = only or PAIR
        lines = [line.rstrip("\r") for line in start.removeprefix("\ufeff").split("\n")]
        first = next((at for at, line in enumerate(lines) if line.strip()), None)
        if first is None:
            raise DataError(
                f"{name} is empty, but interactions were expected: one per line, with a header "
                f"that names {_spelt(needed)}."
            )
        line, place = lines[first], f"{name}, line {first + 1}"
        if "\r" in line:
            raise DataError(
                f"{place}: {short(line)} contains a carriage return, but lines must end with a "
                f"newline; save the file again with the line ends of today."
            )
        separator, fields = _split(line, place, options, needed)
        header = _is_header(fields, options)
        remedy = _NO_HEADER if needed == PAIR else ""
        columns = columns_of(fields, options, place, only=only, header=header, remedy=remedy)
        roles = {at: role for role, at in columns.items()}
        positional = [roles.get(at, f"field {at + 1}") for at in range(len(fields))]
        names = tuple(fields if header else positional)
        return cls(separator, names, columns, first + header)


def _has_quotes(separator: str) -> bool:
    """Whether quotes protect the separator; they do where it is one byte."""
    return len(separator.encode()) == 1


def split_line(line: str, separator: str) -> list[str]:
    """The fields of one line."""
    if not _has_quotes(separator):
        return line.split(separator)
    return next(csv.reader([line], delimiter=separator))


def is_number(text: str) -> bool:
    """Whether the text is a finite number in the notation that a reader of columns accepts."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def short(text: str) -> str:
    """The text in quotes and on one line, cut where it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names of columns for a message, at most a dozen."""
    return ", ".join(short(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")


def _split(
    line: str, place: str, options: ReadOptions, needed: tuple[str, ...]
) -> tuple[str, list[str]]:
    """(separator, fields) of the first line."""
    try:
        separator = _found_separator(line) if options.separator is None else _given(options, place)
        if separator is None and len(needed) == 1:
            separator = ","  # which only quotes can then be around
        fields = [] if separator is None else split_line(line, separator)
    except csv.Error as error:
        raise DataError(
            f"{place}: {short(line)} cannot be split into fields ({error}); close every quoted "
            f"field, and double a quote that belongs to a value."
        ) from error
    if separator is None or (len(fields) == 1 and len(needed) > 1):
        remedy = (
            "separate the fields by a comma, tab, semicolon, '|' or '::', or say by --separator "
            "what separates them"
            if options.separator is None
            else f"{options.separator!r} was given as the separator, give the right --separator"
        )
        raise DataError(
            f"{place}: {short(line)} has only one field, but at least {' and '.join(needed)} were "
            f"expected; {remedy}."
        )
    return separator, [field.strip() for field in fields]


def _given(options: ReadOptions, place: str) -> str:
    # A tab cannot be typed in most shells; everybody writes it as an escape, or by its name.
    given = options.separator or ""
    separator = "\t" if given == "tab" else given.replace("\\t", "\t")
    if not separator or any(char in separator for char in '"\r\n\0'):
        raise SettingsError(
            f"{place}: {options.separator!r} cannot separate fields; give one character or "
            f"several, but no quote and no line end."
        )
    return separator


def _found_separator(line: str) -> str | None:
    best = max(_SEPARATORS, key=lambda separator: len(split_line(line, separator)))
    n_fields = len(split_line(line, best))
    if "::" in line and (n_fields < 3 or _by_double_colons(line)):
        return "::"
    return best if n_fields > 1 else None


def _by_double_colons(line: str) -> bool:
    """Whether '::' separates, and other separators are only inside a field, such as a title.

    They are not inside the first one; if they are, it is '::' that is inside another.
    """
    first, *others = line.split("::")
    return len(others) > 1 and not any(separator in first for separator in _SEPARATORS)


def _asked(options: ReadOptions) -> dict[str, str]:
    """Role to the name or number of its column, where one was given."""
    asked = {role: getattr(options, role, None) for role in (*ROLES, *EVENT_ROLES)}
    return {role: column for role, column in asked.items() if column}


def _is_header(fields: list[str], options: ReadOptions) -> bool:
    """Whether the first line names the columns; a name is never a number."""
    if options.header is not None:
        return options.header
    asked = _asked(options)
    if any(not column.isdecimal() for column in asked.values()):
        return True
    if any(is_number(field) for field in fields):
        return _has_usual_names(fields)
    if not asked:
        return True
    # Without a number in the line, only a value that should be one tells a header from ids.
    values = [int(asked[role]) - 1 for role in ("rating", "timestamp") if role in asked]
    telling = [fields[at] for at in values if 0 <= at < len(fields)]
    if not telling or _has_usual_names(fields):
        return _has_usual_names(fields)
    # Imported here because few files need it, and every command the options.
    import polars as pl

    from cfuica.data.time_columns import as_times

    return as_times(pl.Series(telling), options).null_count() > 0


def _has_usual_names(fields: list[str]) -> bool:
    """Whether a column has a usual name; "action" or "plays" may be an item as well."""
    return not columns_by_name(fields).keys() <= set(EVENT_ROLES)


def columns_of(
    fields: list[str],
    options: ReadOptions,
    place: str,
    *,
    only: tuple[str, ...] | None = None,
    header: bool = True,
    remedy: str = "",
) -> dict[str, int]:
    """Role to position: as given by the options, the rest by name or by the usual order.

    User and item must be there, or all of `only` and nothing else. `place` and `remedy` are for
    messages: where the columns are, and what else may be done.
    """
    needed = only or PAIR
    asked = {
        role: _position(role, column, fields, header, place)
        for role, column in _asked(options).items()
    }
    for role, at in asked.items():
        other = next((r for r, a in asked.items() if a == at and r != role), None)
        if other is not None:
            raise DataError(
                f"{place}: column {at + 1} was given for both {role} and {other}; give each its "
                f"own."
            )
    if header:
        usual = columns_by_name(fields)
    elif asked:
        usual = {"user": 0, "item": 1}
    else:
        usual = {role: at for at, role in enumerate(_usual_order(fields, options, needed))}
    taken = set(asked.values())
    unread = {"removed"} if not options.removals else set()
    unread |= {role for role in EVENT_ROLES if getattr(options, role, None) == ""}
    columns = {
        role: at
        for role, at in usual.items()
        if role not in asked and at not in taken and role not in unread
    }
    roles = (*ROLES, *EVENT_ROLES)
    columns = {role: (columns | asked)[role] for role in roles if role in columns | asked}
    missing = " and ".join(role for role in needed if role not in columns)
    if missing:
        raise NoSuchColumn(
            f"{place}: no column for {missing} among {listed(fields)}; name the columns "
            f"{_spelt(needed)}, or say which they are by "
            f"{' and '.join(map(option_of, needed))}, by name or number from 1{remedy}."
        )
    return {role: at for role, at in columns.items() if role in (only or roles)}


def _usual_order(
    fields: list[str], options: ReadOptions, needed: tuple[str, ...]
) -> tuple[str, ...]:
    """The roles of the first columns of a file without a header; none where nothing tells."""
    width, stated = len(fields), options.header is False
    if needed != PAIR and width == len(needed):
        return needed if stated or is_number(fields[-1]) else ()
    # Two columns could be anything, unless the options say that there is no header.
    if (width in (3, 4) and (stated or is_number(fields[2]))) or (width == 2 and stated):
        return ROLES[:width]
    return ()


def _spelt(needed: tuple[str, ...]) -> str:
    return " and ".join(_KEYS[role] for role in needed)


def _position(role: str, column: str, fields: list[str], header: bool, place: str) -> int:
    if column.isdecimal() and not (header and column in fields):
        at = int(column) - 1
        if 0 <= at < len(fields):
            return at
    elif header and column in fields:
        return fields.index(column)
    elif header and _plain(column) in (plain := [_plain(field) for field in fields]):
        return plain.index(_plain(column))
    raise NoSuchColumn(
        f"{place}: no column {column!r} for the {role} among {listed(fields)}; give "
        f"{option_of(role)} {'a name of these or ' if header else ''}a number from 1 to "
        f"{len(fields)}."
    )


def columns_by_name(fields: list[str]) -> dict[str, int]:
    """Role to the position of its column, for the roles whose usual names occur."""
    plain = [_plain(field) for field in fields]
    found = {role: [name for name in names if name in plain] for role, names in _NAMES.items()}
    return {role: plain.index(names[0]) for role, names in found.items() if names}


def _plain(field: str) -> str:
    name = next((field.removesuffix(kind) for kind in _TYPES if field.endswith(kind)), field)
    return name.casefold().translate(str.maketrans("", "", "_- "))
