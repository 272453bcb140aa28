"""What every explanation tells, of a rating or of a score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from cfuica.model.pairs import SideName

Lookup: TypeAlias = Callable[[np.ndarray], pl.Series]
"""(n,) indices to a column of n: `IdMap.decode` is one."""

PARTS: dict[SideName, str] = {"items": "IIC", "users": "UUC"}
SHOWN = 5
"""Behaviours of the history that are shown where all cannot be."""


class Told(ABC):
    """What an answer is made of: the history, and the parts."""

    user: Any
    item: Any
    title: str | None
    history: pl.DataFrame
    parts: pl.DataFrame
    too_few: ClassVar[str]
    """Why nothing is told of others, where that is so."""
    noun: ClassVar[str]
    """What a part has many of."""
    read_as: ClassVar[dict[str, str]]
    """What each part is, in words."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain values, tables as lists of rows."""
        return {
            name: value.to_dicts() if isinstance(value, pl.DataFrame) else value
            for name, value in vars(self).items()
        }

    def __repr__(self) -> str:
        of = "somebody with this history" if self.user is None else f"user {self.user}"
        answer, *more = self._answer()
        lines = [f"{titled(self.item, self.title)} for {of}: {answer}", *more]
        for part, behaviours, without, change in self.parts.iter_rows():
            read_as = self.read_as[part]
            if behaviours is None:
                lines.append(f"{read_as.capitalize()} is not told: {self.too_few} ({part}).")
                continue
            lines.append(
                f"{signed(change, 2)} by {read_as} "
                f"({part}, {counted(behaviours, self.noun)}; {without:.2f} without)"
            )
            lines += self._own() if part == PARTS["items"] else self._others()
        return "\n".join(lines)

    def _own(self) -> list[str]:
        """The largest changes by what the user did."""
        rows = self.history.head(SHOWN).iter_rows(named=True)
        lines = [f"  {signed(row['change'], 3)}  {self._behaviour(row)}" for row in rows]
        more = self.history.height - SHOWN
        return [*lines, f"  and {more} more in .history"] if more > 0 else lines

    @abstractmethod
    def _answer(self) -> list[str]:
        """What is explained; its first line ends a sentence."""

    def _behaviour(self, row: dict[str, Any]) -> str:
        """A row of the history."""
        return titled(row["item"], row["title"])

    def _others(self) -> list[str]:
        """What more there is to say of others."""
        return []


def signed(change: float, digits: int) -> str:
    """A change as it is shown."""
    return f"{round(change, digits) + 0.0:+.{digits}f}"  # no "-0.00"


def titled(item: Any, title: str | None) -> str:
    """An item as it is shown."""
    return f"item {item}" if title is None else f"{title} (item {item})"


def counted(count: int, what: str) -> str:
    """How many there are, in words."""
    return f"{count:,} {what}" + "s" * (count != 1)
