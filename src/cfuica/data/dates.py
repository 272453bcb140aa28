"""The dates that people write in options and read in messages; every one is in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from cfuica.data.times import seconds
from cfuica.errors import SettingsError


def seconds_of(text: str) -> int:
    """Seconds since 1970 of '974678400', '2000-11-20' or '2000-11-20T12:00:00+01:00'.

    Times are whole seconds, so a moment between two of them is the later one: what is at or
    after it stays the same.
    """
    found = seconds(text, up=True)
    if found is None:
        raise SettingsError(
            f"'{text}' is not a date: give one like 2000-11-20 or 2000-11-20T12:00:00 (UTC unless "
            f"it says otherwise), or seconds since 1970."
        )
    return found


def date_of(moment: int) -> str:
    """'2000-11-20T00:00:00Z', or the bare number where it is in no year that a calendar has."""
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(moment)


def day_of(moment: int) -> str:
    """'2000-11-20', or the bare number where it is in no year that a calendar has."""
    return date_of(moment).partition("T")[0]
