"""What is wrong with the rows of a file: refused at the first one, or counted and left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cfuica.errors import DataError


@dataclass
class Faults:
    """The faulty rows met so far; only with `skip` may there be any."""

    name: str
    """The file, for messages."""
    skip: bool
    _counts: Counter[str] = field(default_factory=Counter)
    _first: str = ""

    def meet(self, reason: str, place: str, found: str, remedy: str) -> None:
        """A row at `place` is faulty; `reason` is what it shares with others, `found` its own."""
        if not self.skip:
            raise DataError(f"{self.name}, {place}: {found}; {remedy}.")
        if not self._counts:
            self._first = f"{place}: {found}"
        self._counts[reason] += 1

    def notes(self, kept: int) -> tuple[str, ...]:
        """What was left out, as a sentence, if anything was; it is an error if nothing is left."""
        total = self._counts.total()
        if total == 0:
            return ()
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self._counts.most_common())
        if kept == 0:
            raise DataError(
                f"{self.name}: every row is bad ({reasons}), the first one at {self._first}; say "
                f"which columns hold user, item and rating, and what separates them."
            )
        rows = "1 bad row was" if total == 1 else f"{total:,} bad rows were"
        return (f"{self.name}: {rows} left out ({reasons}), the first one at {self._first}.",)
