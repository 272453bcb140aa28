"""What a run folder keeps of its users beside the model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from cfuica.data.ids import IdMap
from cfuica.errors import CfuicaError
from cfuica.runs.folder import FINISHED, RunFolder


def run_around(model: Path) -> RunFolder | None:
    """The run that a model folder is of; None where it is of none.

    A run that is not finished is refused: the tables and the checkpoint that it keeps to go on
    with belong together, so that nobody's rows can be taken out of them.
    """
    model = Path(os.path.realpath(model))
    folder = RunFolder(model.parent)
    if model != folder.model or not folder.can_be_resumed:
        return None
    if folder.read_record().get("status") != FINISHED:
        raise CfuicaError(
            f"The run {folder.path} is not finished and keeps all its data to go on with, so "
            f"nobody can be forgotten in it; finish it ({folder.how_to_resume}), or remove it."
        )
    return folder


def clear_left_over(folder: RunFolder) -> None:
    """Remove what killed processes left in a finished run, which may have anybody's rows in it."""
    folder.clean()
    folder.finish()


def forget_in_run(folder: RunFolder, users: Sequence[str]) -> int:
    """Take the users' rows out of the test part of a finished run; how many it had."""
    if not folder.test.is_file():
        return 0
    table = folder.read_test()
    # By their text, as ids of a command line are meant.
    theirs = IdMap.from_ids(pl.Series("user", users)).encode(table.frame["user"]) >= 0
    rest = table.frame.filter(~theirs)
    if rest.is_empty():
        folder.test.unlink()  # a test part of nothing is none
    elif rest.height < table.n:
        folder.write_test(replace(table, frame=rest))
    return table.n - rest.height
