"""Forms of a time: a number, a date in one of the usual orders, or a format of the user's.

`cfuica.data.time_columns` reads columns of them, which alone can tell the unit of numbers, and the
day from the month.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping

from cfuica.errors import SettingsError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LIMIT = 2**63

# Units of numbers, by how many of them are a second.
UNITS: Mapping[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_YEAR, _MONTH, _DAY = "(?P<Y>[0-9]{4})", "(?P<m>[0-9]{1,2})", "(?P<d>[0-9]{1,2})"
_CLOCK = (
    "(?:(?:T| +)(?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,][0-9]+)?)?)?"
    " *(?P<zone>Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})?"
)


def _form(separator: str, *parts: str) -> str:
    """A pattern of the regular expressions of both Python and polars."""
    return f"(?i)^{separator.join(parts)}{_CLOCK}$"


DATES = (
    *(_form(separator, _YEAR, _MONTH, _DAY) for separator in ("-", "/", r"\.")),
    _form(r"\.", _DAY, _MONTH, _YEAR),
)
# Separator to the patterns with the day first and with the month first.
EITHER = {
    separator: (_form(separator, _DAY, _MONTH, _YEAR), _form(separator, _MONTH, _DAY, _YEAR))
    for separator in ("/", "-")
}


def seconds(text: str, *, up: bool = False) -> int | None:
    """Whole seconds since 1970; None if the text is neither number nor ISO date.

    A number is taken as it stands. A date without a time is its midnight, and a time without an
    offset is UTC. A fraction of a second is rounded down, or with `up` rounded up.
    """
    text = text.strip()
    if "_" in text:  # which Python's numbers may contain
        return None
    try:
        whole = int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return _of_iso(text, up)
        if not math.isfinite(number):
            return None
        whole = math.ceil(number) if up else math.floor(number)
    return whole if -_LIMIT <= whole < _LIMIT else None


def _of_iso(text: str, up: bool) -> int | None:
    try:
        return _since_1970(dt.datetime.fromisoformat(text), up)
    except ValueError:
        return None


def _since_1970(time: dt.datetime, up: bool = False) -> int:
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    # Not timestamp(): it goes through a float, and differs between platforms before 1970.
    since, second = time - _EPOCH, dt.timedelta(seconds=1)
    return -(-since // second) if up else since // second


def check_format(time_format: str) -> None:
    """Refuse a format that no date can be read with."""
    try:
        written = dt.datetime(2001, 12, 31, tzinfo=dt.UTC).strftime(time_format)
        read = dt.datetime.strptime(written, time_format)
    except (ValueError, re.error) as error:
        raise SettingsError(
            f"The time format {time_format!r} cannot be read with ({error}); give one such as "
            f"'%d/%m/%Y %H:%M'."
        ) from None
    if (read.year, read.month) != (2001, 12):
        raise SettingsError(
            f"The time format {time_format!r} has no day, month or year; give one such as "
            f"'%d/%m/%Y %H:%M'."
        )


def seconds_by_format(text: str, time_format: str) -> int | None:
    """Seconds since 1970 of a text in the form of `strptime`, in UTC unless it has a zone."""
    try:
        return _since_1970(dt.datetime.strptime(text, time_format))
    except ValueError:
        return None


def pattern_of(time_format: str) -> str | None:
    """A pattern of the texts of a format that have every leading zero; None if there is none."""
    literals, names = re.split("%(.)", time_format)[::2], re.split("%(.)", time_format)[1::2]
    plain = all(re.fullmatch("[-/.:, T]*", literal) for literal in literals)
    if not plain or not {*"Ymd"} <= set(names) <= {*"YmdHMS"} or len(set(names)) < len(names):
        return None
    groups = [f"(?P<{name}>[0-9]{{{4 if name == 'Y' else 2}}})" for name in names]
    parts = zip((literal.replace(".", r"\.") for literal in literals), [*groups, ""], strict=True)
    return f"^{''.join(literal + group for literal, group in parts)}$"
