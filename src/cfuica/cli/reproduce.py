"""`cfuica reproduce` computes the tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.options import names_of, seeds_of
from cfuica.errors import SettingsError


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="table1, table2, table3, table4, figure-hidden, figure-clusters, figure-tsne or "
            "all.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the runs, figures and the report.")
    ],
    folds: Annotated[
        str, typer.Option(metavar="FOLD,FOLD,...", help="Folds of the ratings, from 0.")
    ] = "1",
    seeds: Annotated[
        str, typer.Option(metavar="SEED,SEED,...", help="Seeds of the trainings.")
    ] = "0",
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Name, file or folder of the ratings.",
            show_default="ml-1m, with --quick ml-100k or demo",
        ),
    ] = None,
    netflix: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Ratings of Netflix, for its column and figure."),
    ] = None,
    systems: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Only these systems; the report has all of them."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Little data and short trainings: a rehearsal.")
    ] = False,
) -> None:
    """Reproduce the paper: train and test every row of its tables, and draw its figures.

    Example:  cfuica reproduce table1 --out reproduction --folds 1

    Writes DIR/report.md and DIR/report.html after every cell: the paper's figure,
    ours, the difference, time and memory, and paired differences of CF-UIcA and
    each other row. A cell is one system on one split with one seed, trained in
    a process of its own. The same command goes on where it was stopped, however
    that was, and never computes a finished cell again. Folds and seeds of an
    earlier command are part of the report too.
    """
    from rich.console import Console

    from cfuica.reproduction.cells import CellFolder
    from cfuica.reproduction.plan import Plan
    from cfuica.reproduction.progress_display import ProgressDisplay
    from cfuica.reproduction.reproduce_all import experiments_named
    from cfuica.reproduction.reproduce_all import reproduce as reproduce_all

    names, wanted = experiments_named(what), names_of(systems)
    if systems is not None and not wanted:
        raise SettingsError("--systems names no system; give names, or leave it out for all.")
    plan = Plan.of(
        CellFolder(out),
        data=data,
        netflix=None if netflix is None else str(netflix),
        folds=tuple(seeds_of(folds, option="--folds")),
        seeds=tuple(seeds_of(seeds)),
        quick=quick,
    )
    with ProgressDisplay(Console(stderr=True)) as display:
        reproduce_all(plan, names, wanted, display)
    typer.echo(f"Done. Read it:  {out / 'report.md'}, {out / 'report.html'}", err=True)
