"""The tables of a training run: read from the arguments of `cfuica train`, saved, resumed, cleaned.

`read_split` gives the train, validation and test sets, and `prepared_split` the same from a cache
where the data is large. `save_inputs` and `saved_inputs` store them
with an unfinished run, so that it can be resumed without the original files. `forget_in_run`
removes users from the test set of a finished run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import polars as pl

from cfuica.data.datasets import located, resolve
from cfuica.data.layout import ReadOptions
from cfuica.data.split_tables import DataSplit, SplitRequest, split_targets
from cfuica.data.splits import GIVEN
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import CfuicaError, ModelFileError, SettingsError
from cfuica.io import parquet_bytes, read_parquet, sealed_folder, verify
from cfuica.models.recommender import kind_named, task_named
from cfuica.run_folder import FINISHED, RunFolder
from cfuica.runs.prepared import DESCRIPTION as PREPARED
from cfuica.runs.prepared import ITEMS, PreparedCache, link_entry, read_entry
from cfuica.settings import CommonSettings, RatingSettings, TrainingSettings
from cfuica.sizing import DataSize

S = TypeVar("S", bound=TrainingSettings)


def save_inputs(folder: Path, data_split: DataSplit, settings: TrainingSettings) -> None:
    """Write the sets and the settings into a folder with a manifest; link prepared data."""
    whole, prepared = data_split.whole, data_split.whole.prepared
    description = {
        "source": whole.source,
        "types": whole.types,
        "split": data_split.description,
        "task": settings.task,
        "model": settings.model,
        "settings": settings.model_dump(),
    }
    text = (json.dumps(description) + "\n").encode()
    if prepared is not None and prepared.train is data_split.train:
        own = {"about.json": text}
        if whole.items is not None:
            own[ITEMS] = parquet_bytes(whole.items)
        return link_entry(prepared, folder, own)
    sets = {"train": data_split.train, "valid": data_split.valid, "test": data_split.test}
    tables = {name: table.frame for name, table in sets.items() if table is not None}
    if whole.n > sum(frame.height for frame in tables.values()):
        # Interactions outside every set still add to the vocabulary.
        pair = ["user", "item"]
        used = pl.concat([frame.select(pair) for frame in tables.values()])
        tables["rest"] = whole.frame.join(used, on=pair, how="anti")
    if whole.items is not None:
        tables["items"] = whole.items
    if whole.item_space is not None:
        tables["item_space"] = whole.item_space.rename("item").to_frame()
    with sealed_folder(folder) as work:
        for name, frame in tables.items():
            (work / f"{name}.parquet").write_bytes(parquet_bytes(frame))
        (work / "about.json").write_bytes(text)


def saved_inputs(folder: Path) -> tuple[DataSplit, TrainingSettings]:
    """The sets and the settings that `save_inputs` wrote.

    Settings that an older version of cfuica did not have are at what it did: their defaults.
    """
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is missing, so the run cannot be resumed; train again.")
    verify(folder)
    try:
        return _read_inputs(folder)
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise ModelFileError(f"{folder} is damaged ({error}); train again.") from None


def _read_inputs(folder: Path) -> tuple[DataSplit, TrainingSettings]:
    description = json.loads((folder / "about.json").read_text("utf-8"))
    model = description.get("model", CommonSettings.model)
    settings = kind_named(model, description.get("task")).settings
    if (folder / PREPARED).is_file():
        return read_entry(folder), settings(**description["settings"])
    frames = {path.stem: read_parquet(path) for path in folder.glob("*.parquet")}
    space = frames["item_space"]["item"] if "item_space" in frames else None
    whole = Interactions(
        frames["train"],
        items=frames.get("items"),
        item_space=space,
        source=description["source"],
        types=tuple(description["types"]),
    )
    sets = [frames[name] for name in ("train", "valid", "test", "rest") if name in frames]
    common = [name for name in sets[0].columns if all(name in rows.columns for rows in sets)]
    train, valid, test = (
        replace(whole, frame=frames[name]) if name in frames else None
        for name in ("train", "valid", "test")
    )
    assert train is not None
    whole = replace(whole, frame=pl.concat([rows.select(common) for rows in sets]))
    data_split = DataSplit(whole, train, valid, test, description["split"])
    return data_split, settings(**description["settings"])


def run_around(model: Path) -> RunFolder | None:
    """The run that a model folder belongs to; None where there is none.

    An unfinished run is refused: its tables and its checkpoint belong together, so a user's rows
    cannot be removed from them.
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


def forget_in_run(folder: RunFolder, users: Sequence[str]) -> int:
    """Remove the users' rows from the test set of a finished run; returns how many."""
    if not folder.test.is_file():
        return 0
    table = folder.read_test()
    # By their text, as ids of a command line are meant.
    theirs = Vocabulary.from_ids(pl.Series("user", users)).encode(table.frame["user"]) >= 0
    rest = table.frame.filter(~theirs)
    if rest.is_empty():
        folder.test.unlink()  # a test set of nothing is none
    elif rest.height < table.n:
        folder.write_test(replace(table, frame=rest))
    return table.n - rest.height


def read_split(
    data: str | None,
    train_file: Path | None,
    test_file: Path | None,
    request: SplitRequest,
    options: ReadOptions,
    *,
    task: str,
    valid_file: Path | None = None,
) -> DataSplit:
    """The tables to train, validate and test on."""
    is_ranking = not task_named(task).model.reads_ratings
    if is_ranking:
        options = replace(options, empty_rating="keep")  # implicit feedback needs no rating
    else:
        for option in ("types", "targets", "count_repeats"):
            if getattr(options, option):
                raise SettingsError(
                    f"--{option.replace('_', '-')} is for rankings, but this training predicts "
                    f"ratings; add --task ranking, or leave it out."
                )
        options = replace(options, type=options.type or "", weight=options.weight or "")
    if train_file is None and test_file is None:
        if valid_file is not None:
            raise SettingsError(
                f"--valid {valid_file} is no share; give a number from 0 to below 1, or three "
                f"files (cfuica train --train FILE --valid FILE --test FILE)."
            )
        if data is None:
            raise SettingsError(
                "No data was given: name it (cfuica train ml-1m --out RUN), or give --train FILE "
                "and --test FILE."
            )
        split = request.splitter(protocols=True)
        if request.kind == GIVEN:
            raise SettingsError(f"--split {GIVEN} needs --train FILE and --test FILE.")
        table = resolve(data, options)
        # A rating model learns nothing from interactions without a rating: they are not split, but
        # add to the vocabulary.
        if is_ranking:
            return split_targets(table, split)
        return replace(split(table.rated()), whole=table)
    if data is not None:
        raise SettingsError(f"Give either DATA ({data}) or --train and --test, not both.")
    if train_file is None or test_file is None:
        raise SettingsError("--train and --test belong together; give both or DATA.")
    if request.kind not in (GIVEN, task_named(task).split):
        raise SettingsError(
            f"--train and --test are a split already; give DATA to have --split {request.kind}."
        )
    split = replace(request, kind=GIVEN).splitter()
    files = [train_file, test_file, *([] if valid_file is None else [valid_file])]
    tables = [Interactions.read(train_file, options)]
    if types := tables[0].types:
        options = replace(options, types=types, fixed_types=True)
    tables += [Interactions.read(path, options) for path in files[1:]]
    if is_ranking:
        return split(*tables, rated=False)
    return split(*(table.rated() for table in tables)).widened(tables)


def prepared_split(
    cache: PreparedCache,
    settings: TrainingSettings,
    data: str | None,
    train_file: Path | None,
    test_file: Path | None,
    request: SplitRequest,
    options: ReadOptions,
    *,
    valid_file: Path | None = None,
) -> DataSplit:
    """What `read_split` reads, from the cache where it was prepared before."""
    files = (train_file, test_file, valid_file)
    found = [None if data is None else located(data), *files]

    def make() -> DataSplit:
        return read_split(
            data, train_file, test_file, request, options, task=settings.task, valid_file=valid_file
        )

    places = [place for place in found if place is not None and place.exists()]
    asked = {
        "data": [data, *(None if path is None else str(path) for path in files)],
        "split": asdict(request),
        "options": {**asdict(options), "max_memory": None},  # which changes nothing that is read
        "task": settings.task,
    }
    bins = None
    if settings.task == RatingSettings.task:  # baselines of ratings share what CF-UIcA prepared
        bins = settings.bins if isinstance(settings, RatingSettings) else RatingSettings().bins
    return cache.split(places, asked, bins, make)


def settled_settings(settings: S, data_split: DataSplit) -> tuple[S, str]:
    """The settings for the size of the train set, and a sentence about those that it changed."""
    if not isinstance(settings, CommonSettings) or not settings.sized:
        return settings, ""
    train, whole = data_split.train, data_split.whole
    labels = 1
    if isinstance(settings, RatingSettings):
        labels = train.label_scale(vocabulary=whole, bins=settings.bins).size
    settled = settings.settled(DataSize(whole.users.size, whole.item_ids.size, train.n, labels))
    before = settings.model_dump()
    chosen = ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in settled.model_dump().items()
        if value != before[name] and name != "sized"
    )
    return settled, chosen and f"The size of the data chose {chosen}; --set changes them."


def training_notes(data_split: DataSplit, settings: TrainingSettings, preset: str) -> list[str]:
    """Notes before a training, one sentence each; an error where the data cannot be used."""
    train, whole = data_split.train, data_split.whole
    size = f"{whole.users.size:,} users, {whole.item_ids.size:,} items"
    notes = [*whole.source_notes, *train.source_notes, *data_split.notes]
    if isinstance(settings, RatingSettings):
        scale = train.label_scale(vocabulary=whole, bins=settings.bins)
        description = (
            f"Training on {train.n:,} ratings ({size}, {scale.size} labels), preset {preset}."
        )
        notes.append(scale.note or "")
    elif isinstance(settings, CommonSettings):
        description = f"Training on {train.n:,} interactions ({size}), preset {preset}."
    else:
        what = "ratings" if settings.task == RatingSettings.task else "interactions"
        description = f"Training on {train.n:,} {what} ({size}), model {settings.model}."
    return [*dict.fromkeys(filter(None, notes)), description]
