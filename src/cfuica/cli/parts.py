"""The data arguments of `cfuica train` into tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cfuica.data.options import ReadOptions
from cfuica.data.registry import resolve
from cfuica.data.table import BehaviourTable
from cfuica.errors import SettingsError
from cfuica.runs.parts import Parts
from cfuica.runs.split_request import GIVEN, SplitRequest


def parts_of(
    data: str | None,
    train_file: Path | None,
    test_file: Path | None,
    request: SplitRequest,
    options: ReadOptions,
) -> Parts:
    """The tables to train, validate and test on."""
    if train_file is None and test_file is None:
        if data is None:
            raise SettingsError(
                "No data was given: name it (cfuica train ml-1m --out RUN), or give --train FILE "
                "and --test FILE."
            )
        if request.kind == GIVEN:
            raise SettingsError(f"--split {GIVEN} needs --train FILE and --test FILE.")
        split = request.splitter()
        table = resolve(data, options)
        # Behaviours without a rating are not split: they only widen the axes.
        return replace(split(table.rated()), whole=table)
    if data is not None:
        raise SettingsError(f"Give either DATA ({data}) or --train and --test, not both.")
    if train_file is None or test_file is None:
        raise SettingsError("--train and --test belong together; give both or DATA.")
    if request.kind not in (GIVEN, SplitRequest.kind):
        raise SettingsError(
            f"--train and --test are a split already; give DATA to have --split {request.kind}."
        )
    split = replace(request, kind=GIVEN).splitter()
    tables = [BehaviourTable.read(path, options) for path in (train_file, test_file)]
    return split(*(table.rated() for table in tables)).widened(tables)
