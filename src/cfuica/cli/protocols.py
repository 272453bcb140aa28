"""How a ranking is tested: the options that `evaluate` and `compare` share."""

from __future__ import annotations

from typing import Annotated

import typer

from cfuica.errors import SettingsError

Protocol = Annotated[
    str | None,
    typer.Option(
        metavar="full|paper|ncf|date",
        help="How a ranking is tested; without it 'full', or 'date' after --split date.",
        show_default=False,
    ),
]
At = Annotated[
    str,
    typer.Option("--at", metavar="K,K,...", help="Cut-offs: what the first K of a list hold."),
]
DEFAULT_AT = "5,10,20"


def cutoffs_of(at: str) -> tuple[int, ...]:
    """The cut-offs that --at names."""
    words = [word.strip() for word in at.split(",")]
    if not all(word.isascii() and word.isdecimal() and int(word) >= 1 for word in words):
        raise SettingsError(
            f"--at {at!r} is not of the form K,K,... with whole numbers of at least 1; give for "
            f"example --at 1,5,10."
        )
    return tuple(sorted({int(word) for word in words}))
