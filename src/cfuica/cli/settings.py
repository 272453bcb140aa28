"""`--set key=value` into settings, and values as they are written there."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from cfuica.errors import SettingsError
from cfuica.settings import CommonSettings, Settings

S = TypeVar("S", bound=CommonSettings)


def changed(settings: S, set_: list[str], seed: int | None) -> S:
    """Settings with the command line's changes."""
    changes = ({} if seed is None else {"seed": seed}) | assignments(set_)
    if "l2" in changes and isinstance(settings, Settings):
        # Who names a penalty means it as it is.
        changes = {"l2_ratings": None} | changes
    return settings.replaced(**changes)


def assignments(set_: list[str]) -> dict[str, Any]:
    """Name to value of each `key=value`; values are read as JSON, else as text."""
    changes: dict[str, Any] = {}
    for assignment in set_:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise SettingsError(
                f"--set {assignment!r} is not of the form KEY=VALUE, for example "
                f"--set hidden_users=200."
            )
        changes[key.strip()] = _value(text.strip())
    return changes


def written(value: Any) -> str:
    """A value as `--set` reads it."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
