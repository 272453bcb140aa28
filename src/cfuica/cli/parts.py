"""The data arguments of `cfuica train` into tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cfuica.data.options import ReadOptions
from cfuica.data.registry import resolve
from cfuica.data.table import BehaviourTable
from cfuica.errors import SettingsError
from cfuica.runs.parts import Parts
from cfuica.runs.split_request import GIVEN, NO_TEST, SplitRequest
from cfuica.runs.tasks import task_named
from cfuica.runs.test_items import SPLIT_OF
from cfuica.settings import CommonSettings, RankingSettings, Settings

_TESTED = " or ".join(f"--split {split}" for split in dict.fromkeys(SPLIT_OF.values()))


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
    if train_file is None and test_file is None:
        if data is None:
            raise SettingsError(
                "No data was given: name it (cfuica train ml-1m --out RUN), or give --train FILE "
                "and --test FILE."
            )
        split = request.splitter(protocols=is_ranking)
        if is_ranking and request.kind not in (*SPLIT_OF.values(), NO_TEST):
            raise SettingsError(
                f"--split {request.kind} makes a test part that no protocol of ranking asks about; "
                f"take {_TESTED}, or --split {NO_TEST} to train on everything."
            )
        if request.kind == GIVEN:
            raise SettingsError(f"--split {GIVEN} needs --train FILE and --test FILE.")
        if is_ranking:
            options = replace(options, empty_rating="keep")  # without a rating, it was done
        table = resolve(data, options)
        # Behaviours without a rating only rank. What cannot be learned from is not split: it only
        # widens the axes.
        return replace(split(table if is_ranking else table.rated()), whole=table)
    if data is not None:
        raise SettingsError(f"Give either DATA ({data}) or --train and --test, not both.")
    if train_file is None or test_file is None:
        raise SettingsError("--train and --test belong together; give both or DATA.")
    if is_ranking:
        raise SettingsError(
            f"--train and --test make a test part that no protocol of ranking asks about; give all "
            f"behaviours as DATA, with {_TESTED}."
        )
    if request.kind not in (GIVEN, task_named(task).split):
        raise SettingsError(
            f"--train and --test are a split already; give DATA to have --split {request.kind}."
        )
    split = replace(request, kind=GIVEN).splitter()
    tables = [BehaviourTable.read(path, options) for path in (train_file, test_file)]
    return split(*(table.rated() for table in tables)).widened(tables)


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
        about = f"Training on {train.n:,} behaviours ({size}), preset {preset}."
    return [*dict.fromkeys(filter(None, notes)), about]
