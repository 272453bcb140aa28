"""Commands that change a model: where it goes, and one of them at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

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
    from cfuica.errors import ModelFileError
    from cfuica.lock import locked
    from cfuica.model_folder import may_be_replaced

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
