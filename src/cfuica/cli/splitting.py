"""The options of a split, for the commands that make one: `cfuica train` and `cfuica tune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfuica.cli.options import in_place_of
from cfuica.data.layout import is_number

if TYPE_CHECKING:
    from cfuica.data.split_tables import SplitRequest


@dataclass(frozen=True)
class SplitOptions:
    """A split as the command line has it."""

    kind: str | None = None  # None: that of the task
    share: float | None = None  # To validate on, or
    valid_file: Path | None = None  # the file to validate on.
    others: tuple[tuple[str, Any], ...] = ()

    def request(self, default_kind: str) -> SplitRequest:
        """As the data room takes it."""
        from cfuica.data.split_tables import SplitRequest

        return SplitRequest(self.kind or default_kind, valid=self.share, **dict(self.others))


DEFAULT_SPLIT = SplitOptions()  # For signatures.


def _option(text: str, *, metavar: str | None = None, default: str | bool = True) -> Any:
    return typer.Option(
        help=text, metavar=metavar, show_default=default, rich_help_panel="The split"
    )


def _split_options(
    *,
    split: Annotated[
        str | None,
        _option(
            "'random' folds; 'leave-one-out': each user's last interaction tests; 'date': the "
            "latest interactions test; 'users': held-out users test; 'none': no test set.",
            default="random, for ranking leave-one-out",
        ),
    ] = None,
    folds: Annotated[int | None, _option("Folds of the random split.", default="10")] = None,
    fold: Annotated[int | None, _option("The random fold to test on, from 0.", default="0")] = None,
    test_from: Annotated[
        str | None,
        _option("Split 'date': test from this day on, or from these seconds on.", metavar="DATE"),
    ] = None,
    test_share: Annotated[
        float | None,
        _option(
            "Split 'date' or 'users': share of the interactions or users to test on.", default="0.1"
        ),
    ] = None,
    valid: Annotated[
        str | None,
        _option(
            "Share of the rest to validate on (the latest, where the split is by date); or, of "
            "`cfuica train --train FILE`, the file to validate on.",
            metavar="SHARE|FILE",
            default="0.05",
        ),
    ] = None,
    split_seed: Annotated[int | None, _option("Seed of the split.", default="0")] = None,
) -> SplitOptions:
    share, file = None, None
    if valid is not None:
        share, file = (float(valid), None) if is_number(valid) else (None, Path(valid))
    others: dict[str, Any] = {"folds": folds, "fold": fold, "seed": split_seed}
    others |= {"test_from": test_from, "test_share": test_share}
    return SplitOptions(split, share, file, tuple(others.items()))


# Give a command the options of a split in place of its argument `splitting`.
splits_data = in_place_of("splitting", _split_options)
