"""`cfuica data get` fetches public data sets; `cfuica data show` prints statistics of any data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.options import EXIT_CODES, JsonOnly, print_result, reads_files
from cfuica.data.datasets import MOVIELENS, RELEASES
from cfuica.data.layout import FIND_OUT, ReadOptions


def get(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(RELEASES)}.", metavar="NAME")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Local zip or folder, instead of the network."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch again and replace the data set in the cache.")
    ] = False,
    mirror: Annotated[
        str,
        typer.Option(envvar="CFUICA_MIRROR", help="Base address of the archives."),
    ] = MOVIELENS,
) -> None:
    """Fetch a MovieLens data set into the cache, verified, ready to be used by its name.

    Example:  cfuica data get ml-10m

    The cache is the user's, or the folder CFUICA_CACHE.
    """
    from rich.console import Console

    from cfuica.cli.tables import download_progress
    from cfuica.data.datasets import cache_folder, fetch, found
    from cfuica.errors import SettingsError
    from cfuica.io import expanded

    if name not in RELEASES:
        raise SettingsError(
            f"'{name}' cannot be fetched: the data sets are {', '.join(RELEASES)}; any other file "
            f"of ratings can be given to the commands by its path."
        )
    with download_progress(Console(stderr=True)) as callbacks:
        fetched = fetch(
            RELEASES[name],
            cache_folder(),
            source=None if source is None else expanded(source),
            force=force,
            mirror=mirror,
            callbacks=callbacks,
        )
    typer.echo(f"{name} {'lies' if fetched.new else 'was there already'} in {fetched.folder}.")
    typer.echo(fetched.verified)
    if (used := found()[name]) != fetched.folder:
        typer.echo(f"Note: the name {name} stands for {used}, which is looked for first.")
    typer.echo(
        "MovieLens may not be redistributed, nor used commercially without permission: the terms "
        "are in the README in that folder."
    )
    typer.echo(f"Next:  cfuica train {name} --out runs/{name}")


@reads_files
def show(
    data: Annotated[str, typer.Argument(help="Name, file or folder of the data.", metavar="DATA")],
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw ratings and long tail into this .svg, or a page (.html)."
        ),
    ] = None,
    json_: JsonOnly = False,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Show statistics of the data: counts, ratings, the long tail, times, repeats.

    Example:  cfuica data show ml-1m --picture ml-1m.html
    """
    from cfuica.cli.data_tables import check_picture, in_terminal, write_picture
    from cfuica.data.datasets import resolve
    from cfuica.data.summary import Summary

    if picture is not None:
        check_picture(picture)
    summary = Summary.of(resolve(data, options))
    if picture is not None:
        write_picture(summary, picture)
    print_result(json_, summary.as_json, lambda: in_terminal(summary))


app = typer.Typer(
    help="Fetch data sets and look at data.",
    epilog="Example:  cfuica data show ml-1m",
    no_args_is_help=True,
)
app.command("get", epilog=EXIT_CODES)(get)
app.command("show", epilog=EXIT_CODES)(show)
