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
from cfuica.runs.tasks import task_named
from cfuica.settings import CommonSettings, RankingSettings, Settings


def parts_of(
    data: str | None,
    train_file: Path | None,
    test_file: Path | None,
    request: SplitRequest,
    options: ReadOptions,
    *,
    task: str,
) -> Parts:
    """The tables to train, validate and test on."""
    is_ranking = task == RankingSettings.task

    def used(table: BehaviourTable) -> BehaviourTable:
        """What the task can learn from: behaviours without a rating only rank."""
        return table if is_ranking else table.rated()

    if train_file is None and test_file is None:
        if data is None:
            raise SettingsError(
                "No data was given: name it (cfuica train ml-1m --out RUN), or give --train FILE "
                "and --test FILE."
            )
        if request.kind == GIVEN:
            raise SettingsError(f"--split {GIVEN} needs --train FILE and --test FILE.")
        split = request.splitter(protocols=is_ranking)
        table = resolve(data, options)
        # What the task cannot learn from is not split: it only widens the axes.
        return replace(split(used(table)), whole=table)
    if data is not None:
        raise SettingsError(f"Give either DATA ({data}) or --train and --test, not both.")
    if train_file is None or test_file is None:
        raise SettingsError("--train and --test belong together; give both or DATA.")
    if request.kind not in (GIVEN, task_named(task).split):
        raise SettingsError(
            f"--train and --test are a split already; give DATA to have --split {request.kind}."
        )
    split = replace(request, kind=GIVEN).splitter()
    tables = [BehaviourTable.read(path, options) for path in (train_file, test_file)]
    return split(*map(used, tables)).widened(tables)


def about_training(parts: Parts, settings: CommonSettings, preset: str) -> list[str]:
    """What is to be said before a training, one sentence each; an error where it cannot be."""
    train, whole = parts.train, parts.whole
    size = f"{whole.users.size:,} users, {whole.item_ids.size:,} items"
    notes = [*whole.source_notes, *train.source_notes, *parts.notes]
    if isinstance(settings, Settings):
        scale = train.label_scale(spans=whole, bins=settings.bins)
        about = (
            f"Training on {train.n:,} ratings ({size}, {scale.size} labels), preset {preset}, "
            f"l2 {settings.settled(train.n).l2:.2g}."
        )
        notes.append(scale.note or "")
    else:
        if isinstance(settings, RankingSettings) and settings.rating_inputs:
            whole.require_ratings()
        about = f"Training on {train.n:,} behaviours ({size}), preset {preset}."
    return [*dict.fromkeys(filter(None, notes)), about]
