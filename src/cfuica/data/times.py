"""Times as text has them: seconds since 1970, or dates as ISO 8601 writes them."""

from __future__ import annotations

import datetime as dt
import math

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LIMIT = 2**63


def seconds(text: str, *, up: bool = False) -> int | None:
    """Whole seconds since 1970; None if the text is neither number nor date.

    A number is taken as it stands: milliseconds are not guessed. A date without a time is its
    midnight, and a time without an offset is UTC. A moment between two seconds is the earlier
    one, or with `up` the later one.
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
            return _of_date(text, up)
        if not math.isfinite(number):
            return None
        whole = math.ceil(number) if up else math.floor(number)
    return whole if -_LIMIT <= whole < _LIMIT else None


def _of_date(text: str, up: bool) -> int | None:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    # Not timestamp(): it goes through a float, and differs between platforms before 1970.
    since, second = moment - _EPOCH, dt.timedelta(seconds=1)
    return -(-since // second) if up else since // second
