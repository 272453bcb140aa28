"""cfuica observe

cfuica forget

Commands that change a model: where it goes, and one of them at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.options import Run, reads_files
from cfuica.data.layout import FIND_OUT, ReadOptions

ModelOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Model folder to write; without it the model of RUN is replaced.",
    ),
]


@dataclass(frozen=True)
class Destination:
    """Where the changed model goes."""

    folder: Path
    in_place: bool
    """Whether it replaces the model that was changed."""


@contextmanager
def to_be_changed(run: Path, out: Path | None) -> Iterator[Destination]:
    """Where the changed model of `run` goes; refused at once where it cannot go there.

    A model that is replaced is kept from others who would change it meanwhile: one of the two
    changes would be lost.
    """
    from cfuica.artifact.model_folder import may_be_replaced
    from cfuica.errors import ModelFileError
    from cfuica.io import locked

    own = run if (run / "model.json").is_file() else run / "model"
    target = own if out is None else out
    if not may_be_replaced(target):
        raise ModelFileError(
            f"{target} exists and is not a model folder; give the name of a new one with --out."
        )
    folder = Path(os.path.realpath(target)).parent
    while not folder.exists():
        folder = folder.parent  # it will be made
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ModelFileError(
            f"The model cannot be written to {target}: {folder} is no folder that may be written "
            f"to; give another place with --out."
        )
    if os.path.realpath(target) != os.path.realpath(own):
        yield Destination(target, in_place=False)
        return
    # Not the model itself, which is replaced by another folder.
    with locked(folder, lambda: typer.echo(f"Waiting for who else works in {folder}.", err=True)):
        yield Destination(target, in_place=True)


@reads_files
def observe(
    run: Run,
    events: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Interactions: new ones are added, others changed; an empty rating takes one out.",
        ),
    ],
    out: ModelOut = None,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Give a model new interactions, of known or new users and items, without training.

    Example:  cfuica observe runs/ml-1m --events today.csv

    The next prediction takes them into account. Parameters stay as they are. Where the
    model ranks, what has no timestamp comes after all that is known.
    """
    from dataclasses import replace

    from cfuica.data.readers import read_table
    from cfuica.models.recommender import load

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
        f"{observed.added:,} interactions added, {observed.changed:,} changed, "
        f"{observed.removed:,} taken out; {observed.new_users:,} new users and "
        f"{observed.new_items:,} new items. Written to {destination.folder}."
    )


def forget(
    run: Run,
    user: Annotated[list[str], typer.Option(help="A user's id; may be repeated.")],
    out: ModelOut = None,
) -> None:
    """Take a user's interactions and own parameters out of a model, and out of the run's test set.

    Example:  cfuica forget runs/ml-1m --user 42

    What the parameters of others learned from the user in training stays until
    the next training, which must be without the user's rows.
    """
    from cfuica.cli.options import ids
    from cfuica.models.recommender import load
    from cfuica.runs.inputs import clear_left_over, forget_in_run, run_around

    users = ids("--user", user)
    with to_be_changed(run, out) as destination:
        folder = run_around(destination.folder) if destination.in_place else None
        model = load(run)
        if folder is not None:
            # First: who was forgotten by a command that was killed then is unknown by now.
            clear_left_over(folder)
        gone = {one: model.forget(one) for one in users}
        # Before the model, so that an interrupted command can be run again.
        rows = 0 if folder is None else forget_in_run(folder, users)
        model.save(destination.folder)
    for one, interactions in gone.items():
        typer.echo(
            f"User {one}: {interactions:,} interactions are gone, and the user's parameters."
        )
    if rows:
        typer.echo(f"{rows:,} rows of the run's test set are gone too.")
    typer.echo(f"Written to {destination.folder}.")
    if not destination.in_place:
        typer.echo(f"{run} itself is as it was; without --out it is changed.")
    typer.echo(
        "Parameters of other users and of items were trained with these interactions and keep what "
        "they learned from them: leave the rows out of the data of the next training."
    )
