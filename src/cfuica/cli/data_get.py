"""cfuica data get"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.data.catalogue import MOVIELENS, RELEASES


def get(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(RELEASES)}.", metavar="NAME")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Zip or folder that you have, instead of the network."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Fetch anew what is there already, and accept a release that has changed since.",
        ),
    ] = False,
    mirror: Annotated[
        str,
        typer.Option(envvar="CFUICA_MIRROR", help="Address that the archives are offered under."),
    ] = MOVIELENS,
) -> None:
    """Fetch a MovieLens data set into the cache, verified, ready to be used by its name.

    Example:  cfuica data get ml-10m

    An interrupted download is resumed. The cache is the user's, or the folder CFUICA_CACHE.
    """
    from rich.console import Console

    from cfuica.data.fetch import fetch
    from cfuica.data.registry import cache_folder, found
    from cfuica.errors import SettingsError
    from cfuica.paths import expanded
    from cfuica.runs.transfer import watching

    if name not in RELEASES:
        raise SettingsError(
            f"'{name}' cannot be fetched: the data sets are {', '.join(RELEASES)}; any other file "
            f"of ratings can be given to the commands by its path."
        )
    with watching(Console(stderr=True)) as watcher:
        fetched = fetch(
            RELEASES[name],
            cache_folder(),
            source=None if source is None else expanded(source),
            force=force,
            mirror=mirror,
            watcher=watcher,
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
