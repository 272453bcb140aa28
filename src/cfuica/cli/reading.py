"""How a file is to be read: the options that all commands share which read one."""

from __future__ import annotations

from typing import Annotated

import typer

from cfuica.cli.options import check_known, in_place_of
from cfuica.data.options import ReadOptions

_PANEL = "How the file is read (found out where not given)"


def _column(role: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar="COLUMN",
        help=f"Name of the {role} column, or its number from 1.",
        rich_help_panel=_PANEL,
    )
    return option


UserColumn = Annotated[str | None, _column("user")]
ItemColumn = Annotated[str | None, _column("item")]
RatingColumn = Annotated[str | None, _column("rating")]
TimeColumn = Annotated[str | None, _column("time")]
Separator = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="What separates the fields.", rich_help_panel=_PANEL),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line names the columns.",
        rich_help_panel=_PANEL,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="utf-8|latin-1", help="Encoding of a text file.", rich_help_panel=_PANEL),
]
BadRows = Annotated[
    str,
    typer.Option(
        metavar="refuse|skip",
        help="What becomes of a file with a row that is no behaviour: refuse it, or skip the row.",
        rich_help_panel=_PANEL,
    ),
]
NoRating = Annotated[
    list[float] | None,
    typer.Option(
        metavar="VALUE",
        help="A rating that means none was given; may be repeated.",
        rich_help_panel=_PANEL,
    ),
]
NoRatingMeans = Annotated[
    str,
    typer.Option(
        metavar="implicit|drop",
        help="Keep a behaviour without a rating as implicit, or drop it.",
        rich_help_panel=_PANEL,
    ),
]


def read_options(
    *,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    rating_column: RatingColumn = None,
    time_column: TimeColumn = None,
    separator: Separator = None,
    header: Header = None,
    encoding: Encoding = None,
    bad_rows: BadRows = "refuse",
    no_rating: NoRating = None,
    no_rating_means: NoRatingMeans = "implicit",
) -> ReadOptions:
    """The options under their names at the command line as the readers take them."""
    check_known("--encoding", encoding, "utf-8", "latin-1")
    check_known("--bad-rows", bad_rows, "refuse", "skip")
    check_known("--no-rating-means", no_rating_means, "implicit", "drop")
    return ReadOptions(
        user=user_column,
        item=item_column,
        rating=rating_column,
        timestamp=time_column,
        separator=separator,
        header=header,
        encoding=encoding,  # type: ignore[arg-type]
        bad_rows=bad_rows,  # type: ignore[arg-type]
        no_rating=tuple(no_rating or ()),
        no_rating_means=no_rating_means,  # type: ignore[arg-type]
    )


reads_files = in_place_of("options", read_options)
"""Give a command all these options in the place of its one argument `options`."""
