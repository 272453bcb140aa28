"""cfuica data show"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.reading import reads_files
from cfuica.data.options import FIND_OUT, ReadOptions


@reads_files
def show(
    data: Annotated[str, typer.Argument(help="Name, file or folder of the data.", metavar="DATA")],
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw ratings and long tail into this .svg, or a page (.html)."
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Show what is in the data: counts, ratings, the long tail, times, repeats.

    Example:  cfuica data show ml-1m --picture ml-1m.html
    """
    import json

    from cfuica.data.registry import resolve
    from cfuica.data.summary import Summary
    from cfuica.runs.show import check_picture, in_terminal, write_picture

    if picture is not None:
        check_picture(picture)
    summary = Summary.of(resolve(data, options))
    if picture is not None:
        write_picture(summary, picture)
    if json_:
        typer.echo(json.dumps(summary.as_json()))
        return
    from rich.console import Console

    Console(emoji=False).print(in_terminal(summary))
