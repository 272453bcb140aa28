"""cfuica forget"""

from __future__ import annotations

from typing import Annotated

import typer

from cfuica.cli.asking import Run
from cfuica.cli.changing import ModelOut


def forget(
    run: Run,
    user: Annotated[list[str], typer.Option(help="A user's id; may be repeated.")],
    out: ModelOut = None,
) -> None:
    """Take a user's behaviours and own parameters out of a model, and out of the run's test part.

    Example:  cfuica forget runs/ml-1m --user 42

    What the parameters of others learned from the user in training stays until
    the next training, which must be without the user's rows.
    """
    from cfuica.cli.asking import ids
    from cfuica.cli.changing import to_be_changed
    from cfuica.runs.tasks import load
    from cfuica.runs.forgetting import clear_left_over, forget_in_run, run_around

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
    for one, behaviours in gone.items():
        typer.echo(f"User {one}: {behaviours:,} behaviours are gone, and the user's parameters.")
    if rows:
        typer.echo(f"{rows:,} rows of the run's test part are gone too.")
    typer.echo(f"Written to {destination.folder}.")
    if not destination.in_place:
        typer.echo(f"{run} itself is as it was; without --out it is changed.")
    typer.echo(
        "Parameters of other users and of items were trained with these behaviours and keep what "
        "they learned from them: leave the rows out of the data of the next training."
    )
