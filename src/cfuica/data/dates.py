"""Seconds since 1970 and the dates that people write; every date is in UTC."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from cfuica.errors import SettingsError


def seconds_of(text: str) -> int:
    """Seconds since 1970 of '974678400', '2000-11-20' or '2000-11-20T12:00:00+01:00'.

    Times are whole seconds, so a moment between two of them is the later one: what is at or
    after it stays the same.
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"'{text}' is not a date: give one like 2000-11-20 or 2000-11-20T12:00:00 (UTC unless "
            f"it says otherwise), or seconds since 1970."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return math.ceil(moment.timestamp())


def date_of(seconds: int) -> str:
    """'2000-11-20T00:00:00Z', or the bare number where it is in no year that a calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(seconds)
