"""How a file of behaviours is to be read, where finding out by itself is not enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ReadOptions:
    """Everything a reader may be told. The defaults mean: find out, and refuse what is wrong."""

    user: str | None = None
    """Name of the user column, or its number from 1."""
    item: str | None = None
    """Name of the item column, or its number from 1."""
    rating: str | None = None
    """Name of the rating column, or its number from 1."""
    timestamp: str | None = None
    """Name of the column of times, or its number from 1."""
    separator: str | None = None
    """What separates the fields of a line; one character or several."""
    header: bool | None = None
    """Whether the first line names the columns."""
    encoding: Literal["utf-8", "latin-1"] | None = None
    """Encoding of a text file."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a row that is no behaviour is an error, or is left out and counted."""
    empty_rating: Literal["refuse", "keep"] = "refuse"
    """Whether a row whose rating is empty is no behaviour, or stays with a null rating."""
    no_rating: tuple[float, ...] = ()
    """Values of the rating that mean: no rating was given (Book-Crossing's 0)."""
    no_rating_means: Literal["implicit", "drop"] = "implicit"
    """Whether a behaviour without a rating stays, with a null rating, or is dropped."""


FIND_OUT = ReadOptions()
"""The defaults, for signatures."""
