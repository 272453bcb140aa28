"""cfuica observe"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.asking import Run
from cfuica.cli.changing import ModelOut
from cfuica.cli.reading import reads_files
from cfuica.data.options import FIND_OUT, ReadOptions


@reads_files
def observe(
    run: Run,
    events: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Behaviours: new ones are added, others changed; an empty rating takes one out.",
        ),
    ],
    out: ModelOut = None,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Give a model new behaviours, of known or new users and items, without training.

    Example:  cfuica observe runs/ml-1m --events today.csv

    The next prediction takes them into account. Parameters stay as they are. Where the
    model ranks, what has no timestamp comes after all that is known.
    """
    from dataclasses import replace

    from cfuica.cli.changing import to_be_changed
    from cfuica.data.reading import read_table
    from cfuica.runs.tasks import load

    with to_be_changed(run, out) as destination:
        model = load(run)
        options = replace(options, empty_rating="keep")
        if model.reads_ratings:
            # A rating that means none was never given, and takes none back.
            options = replace(options, no_rating_means="drop")
        else:
            options = replace(options, no_rating=())  # whatever it was rated, it was done
        table = read_table(events, options)
        for note in table.source_notes:
            typer.echo(note, err=True)
        observed = model.observe(table)
        model.save(destination.folder)
    typer.echo(
        f"{observed.added:,} behaviours added, {observed.changed:,} changed, "
        f"{observed.removed:,} taken out; {observed.new_users:,} new users and "
        f"{observed.new_items:,} new items. Written to {destination.folder}."
    )
