"""A verdict, and what to do about it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. Whoever sees that it is not `ok` is told what to do."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    """What to do; empty where all is well."""
    seconds: float | None = None
    """How long it took, where that is of interest."""


def with_tilde(path: Path | str) -> str:
    """A path without the name of the user whose home it is in."""
    text, home = str(path), str(Path.home())
    return "~" + text[len(home) :] if text == home or text.startswith(home + os.sep) else text
