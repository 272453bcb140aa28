"""The tables of an unfinished run, so that it can be resumed wherever its data has gone since."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from cfuica.data.table import BehaviourTable
from cfuica.disk import parquet_bytes, read_parquet
from cfuica.errors import ModelFileError
from cfuica.runs.parts import Parts
from cfuica.runs.sealed import sealed_folder, verify
from cfuica.runs.tasks import task_named
from cfuica.settings import CommonSettings, Settings


def keep_inputs(folder: Path, parts: Parts, settings: CommonSettings) -> None:
    """Write the parts and the settings into a folder that proves to be whole."""
    whole = parts.whole
    tables = {"train": parts.train.frame}
    tables |= {"valid": parts.valid.frame} if parts.valid else {}
    tables |= {"test": parts.test.frame} if parts.test else {}
    pair = ["user", "item"]
    used = pl.concat([frame.select(pair) for frame in tables.values()])
    # Behaviours outside every part still widen the axes.
    tables["rest"] = whole.frame.join(used, on=pair, how="anti")
    if whole.items is not None:
        tables["items"] = whole.items
    if whole.item_space is not None:
        tables["item_space"] = whole.item_space.rename("item").to_frame()
    with sealed_folder(folder) as work:
        for name, frame in tables.items():
            (work / f"{name}.parquet").write_bytes(parquet_bytes(frame))
        about = {
            "source": whole.source,
            "about": parts.about,
            "task": settings.task,
            "settings": settings.model_dump(),
        }
        (work / "about.json").write_text(json.dumps(about) + "\n", encoding="utf-8")


def kept_settings(folder: Path) -> CommonSettings:
    """The settings that the run began with; `kept_inputs` verifies the folder.

    Those that an older version of cfuica did not have are at what it did: their defaults.
    """
    about = json.loads((folder / "about.json").read_text("utf-8"))
    return task_named(about.get("task", Settings.task)).settings(**about["settings"])


def kept_inputs(folder: Path) -> Parts:
    """The parts that were kept there."""
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is missing, so the run cannot be resumed; train again.")
    verify(folder)
    try:
        return _read_inputs(folder)
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise ModelFileError(f"{folder} is damaged ({error}); train again.") from None


def _read_inputs(folder: Path) -> Parts:
    def frame(name: str) -> pl.DataFrame | None:
        path = folder / f"{name}.parquet"
        return read_parquet(path) if path.is_file() else None

    about = json.loads((folder / "about.json").read_text("utf-8"))
    source, items, space = about["source"], frame("items"), frame("item_space")
    frames = {name: frame(name) for name in ("train", "valid", "test", "rest")}
    item_space = None if space is None else space["item"]

    def table(rows: pl.DataFrame | None) -> BehaviourTable | None:
        if rows is None:
            return None
        return BehaviourTable(rows, items=items, item_space=item_space, source=source)

    parts = [rows for rows in frames.values() if rows is not None]
    common = [name for name in parts[0].columns if all(name in rows.columns for rows in parts)]
    whole, train = table(pl.concat([rows.select(common) for rows in parts])), table(frames["train"])
    assert whole is not None
    assert train is not None
    return Parts(whole, train, table(frames["valid"]), table(frames["test"]), about["about"])
