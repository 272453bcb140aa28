"""cfuica data show"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli import reading


def show(
    data: Annotated[str, typer.Argument(help="Name, file or folder of the data.", metavar="DATA")],
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw ratings and long tail into this .svg, or a page (.html)."
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    user_column: reading.UserColumn = None,
    item_column: reading.ItemColumn = None,
    rating_column: reading.RatingColumn = None,
    time_column: reading.TimeColumn = None,
    separator: reading.Separator = None,
    header: reading.Header = None,
    encoding: reading.Encoding = None,
    bad_rows: reading.BadRows = "refuse",
    no_rating: reading.NoRating = None,
    no_rating_means: reading.NoRatingMeans = "implicit",
) -> None:
    """Show what is in the data: counts, ratings, the long tail, times, repeats.

    Example:  cfuica data show ml-1m --picture ml-1m.html
    """
    import json

    from cfuica.data.summary import Summary
    from cfuica.runs.show import check_picture, in_terminal, write_picture

    if picture is not None:
        check_picture(picture)
    options = reading.read_options(
        user_column=user_column,
        item_column=item_column,
        rating_column=rating_column,
        time_column=time_column,
        separator=separator,
        header=header,
        encoding=encoding,
        bad_rows=bad_rows,
        no_rating=no_rating,
        no_rating_means=no_rating_means,
    )
    summary = Summary.of(reading.table_of(data, options))
    if picture is not None:
        write_picture(summary, picture)
    if json_:
        typer.echo(json.dumps(summary.as_json()))
        return
    from rich.console import Console

    Console().print(in_terminal(summary))
