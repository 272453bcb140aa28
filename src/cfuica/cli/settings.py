"""`cfuica settings`: all settings of `train --set`, with their values in a preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_origin

import typer

from cfuica.cli.output import FOR_PEOPLE, Output, gives_a_table

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


@gives_a_table
def settings(
    task: Annotated[str, typer.Option(help="'rating' or 'ranking', as in train.")] = "rating",
    preset: Annotated[str, typer.Option(help="The preset whose values are shown.")] = "default",
    output: Output = FOR_PEOPLE,
) -> None:
    """List the settings of train --set: name, value in a preset, meaning.

    Example:  cfuica settings --task ranking --preset paper
    """
    import polars as pl

    from cfuica.cli.options import written
    from cfuica.cli.tables import titled
    from cfuica.models.recommender import task_named

    of = task_named(task).preset(preset)
    fields, values = type(of).model_fields, of.model_dump()
    frame = pl.DataFrame(
        {
            "setting": list(values),
            "value": [written(value) for value in values.values()],
            "meaning": [_meaning(fields[name]) for name in values],
        }
    )
    output.give(
        frame,
        what="settings",
        shown=lambda: titled(f"Settings for {task}, preset {preset}", frame),
        as_json=lambda: [
            {**row, "value": values[row["setting"]]} for row in frame.iter_rows(named=True)
        ],
    )


def _meaning(field: FieldInfo) -> str:
    """The description, and the choices of a setting that has only these."""
    words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return f"{field.description} {' | '.join(words)}" if words else str(field.description)
