"""`cfuica observe`, `forget` and `retire`: add interactions to a model or remove them, remove a
user, retire items.

They change a saved model, in place or into a new folder; `to_be_changed` lets one command at a time
do that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.options import Items, Run, ids, reads_files, table_of_file
from cfuica.cli.output import say_notes
from cfuica.data.layout import FIND_OUT, PAIR, ReadOptions

ModelOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Model folder to write; without it the model of RUN is replaced.",
    ),
]


@contextmanager
def to_be_changed(run: Path, out: Path | None) -> Iterator[tuple[Path, bool]]:
    """(where the changed model of `run` goes, whether it replaces it); refused if not writable.

    A model that is replaced is locked, so that no change of another process is lost.
    """
    from cfuica.artifact import may_be_replaced
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
        folder = folder.parent  # the others will be created
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ModelFileError(
            f"The model cannot be written to {target}: {folder} is no folder that may be written "
            f"to; give another place with --out."
        )
    if os.path.realpath(target) != os.path.realpath(own):
        yield target, False
        return
    # The lock is on the parent, because the folder of the model is replaced.
    with locked(folder, lambda: typer.echo(f"Waiting for another process in {folder}.", err=True)):
        yield target, True


@reads_files
def observe(
    run: Run,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Interactions to add or change; true in a column removed removes one.",
        ),
    ] = None,
    items: Items = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the interactions of all rows: user, item.")
    ] = False,
    out: ModelOut = None,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Add interactions of warm or cold-start users and items to a model, without training.

    Example:  cfuica observe runs/ml-1m --events today.csv

    The next prediction takes them into account; the parameters do not change. In a
    ranking model, an interaction without a timestamp comes last in the history.
    """
    from dataclasses import replace

    from cfuica.data.item_files import read_items
    from cfuica.models.recommender import load

    if events is None and items is None:
        raise typer.BadParameter("give --events FILE, --items FILE or both")
    with to_be_changed(run, out) as (target, _):
        model = load(run)
        # A removal needs no rating; whether others need one, the model says.
        options = replace(options, empty_rating="keep", removals=True, weight="")
        type_column = options.type if model.types else ""
        options = replace(options, type=type_column, types=model.types, fixed_types=True)
        if model.reads_ratings:
            # A value that means no rating is not added.
            options = replace(options, no_rating_means="drop")
        else:
            options = replace(options, no_rating=())  # it is an interaction, whatever the rating
        observed = None
        if events is not None:
            table = table_of_file(events, options, only=PAIR if remove else None)
            say_notes(table.source_notes)
            observed = model.remove(table) if remove else model.observe(table)
        if items is not None:
            # After the events, which may bring new items.
            note = model.update_items(read_items(items, options), source=str(items))
            say_notes([note] if note else [])
        model.save(target)
    if observed is None:
        typer.echo(f"Item metadata updated. Written to {target}.")
        return
    typer.echo(
        f"{observed.added:,} interactions added, {observed.changed:,} changed, "
        f"{observed.removed:,} removed; {observed.new_users:,} new users and "
        f"{observed.new_items:,} new items. Written to {target}."
    )


def forget(
    run: Run,
    user: Annotated[list[str], typer.Option(help="A user's id; may be repeated.")],
    out: ModelOut = None,
) -> None:
    """Remove a user's interactions and parameters from a model and from the run's test set.

    Example:  cfuica forget runs/ml-1m --user 42

    The parameters of other users and of items were trained with the user's data:
    train again without it to remove its influence.
    """
    from cfuica.models.recommender import load
    from cfuica.runs.inputs import forget_in_run, run_around

    users = ids("--user", user)
    with to_be_changed(run, out) as (target, in_place):
        folder = run_around(target) if in_place else None
        model = load(run)
        if folder is not None:
            # What killed processes left may have rows of any user. First, because model.forget
            # refuses a user whom a killed command already removed.
            folder.clean()
            folder.finish()
        gone = {one: model.forget(one) for one in users}
        # Before the model, so that an interrupted command can be run again.
        rows = 0 if folder is None else forget_in_run(folder, users)
        model.save(target)
    for one, interactions in gone.items():
        typer.echo(
            f"User {one}: {interactions:,} interactions and the user's parameters were removed."
        )
    if rows:
        typer.echo(f"{rows:,} rows of the run's test set were removed too.")
    typer.echo(f"Written to {target}.")
    if not in_place:
        typer.echo(f"{run} itself is unchanged; without --out it is changed.")
    typer.echo(
        "Parameters of other users and of items were trained with these interactions: leave the "
        "rows out of the data of the next training."
    )


def retire(
    run: Run,
    item: Annotated[list[str], typer.Option(help="An item's id; may be repeated.")],
    undo: Annotated[bool, typer.Option("--undo", help="Take the items back.")] = False,
    out: ModelOut = None,
) -> None:
    """Never recommend an item again, nor list it as similar to another.

    Example:  cfuica retire runs/ml-1m --item 318

    Its interactions stay: what users did with it still says what they like.
    """
    from cfuica.models.recommender import load

    items = ids("--item", item)
    with to_be_changed(run, out) as (target, _):
        model = load(run)
        count = model.retire(items, retired=not undo)
        model.save(target)
    what = "taken back" if undo else "retired"
    typer.echo(f"{count:,} of {len(items):,} items {what}. Written to {target}.")
