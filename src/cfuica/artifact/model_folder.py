"""A saved model is a folder: parameters, a card, ids and the behaviours it reads.

    model.safetensors    W, c, V, b of each side, `strangers.` before those of the strangers'
                         network
    model.json           settings, metrics, versions; of a rating model
                         also the label scale
    users.parquet        external user ids in index order, the row of the parameters each one has
    items.parquet        the same of items; titles and what else is known of them
    behaviours.parquet   user index, item index: what predictions are conditioned on; of a rating
                         model also label, of a ranking model timestamp, each user's in time order
    manifest.json        the SHA-256 of every other file

Nothing in it can execute when loaded.
"""

from __future__ import annotations

import json
import os
import shlex
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

import cfuica
from cfuica.artifact.artifact import (
    STRANGERS,
    CommonKnowledge,
    Knowledge,
    Predictor,
    RankingKnowledge,
    SavedTensors,
)
from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix, Timeline
from cfuica.errors import CfuicaError, DataError, ModelFileError
from cfuica.io import MANIFEST, parquet_bytes, read_parquet, sealed_folder, verify, write_tensors
from cfuica.model.calibration import Calibration
from cfuica.model.layers import Bridge
from cfuica.model.network import CoAutoregressive
from cfuica.model.pairs import AXES, SideName
from cfuica.model.side import Side
from cfuica.settings import CommonSettings, RankingSettings, Settings

FORMAT = 1
TASKS = (Settings.task, RankingSettings.task)
Fitted = tuple[CommonSettings, CommonKnowledge]
FILES = {
    "model.safetensors",
    "model.json",
    "users.parquet",
    "items.parquet",
    "behaviours.parquet",
    MANIFEST,
}
_REMEDY = "copy the folder again, or train anew"
# Whose model changes even more often while it is read, is told that it is damaged.
_MOST_READINGS = 4


def save(settings: CommonSettings, known: CommonKnowledge, folder: str | Path) -> Path:
    """Write the folder whole under another name, then rename it; an older one is replaced."""
    target = Path(os.path.realpath(folder))
    if not may_be_replaced(target):
        raise ModelFileError(
            f"{folder} exists and is not a model folder; choose another name for the model."
        )
    card = {
        **known.card,
        "format": FORMAT,
        "cfuica": cfuica.__version__,
        "task": settings.task,
        "settings": settings.model_dump(),
        **_about(known),
    }
    tables = {
        "users": pl.DataFrame({"user": known.users.ids, "row": known.rows["users"]}),
        "items": _items(known),
        "behaviours": _behaviours(known),
    }
    with ExitStack() as stack:
        try:
            work = stack.enter_context(sealed_folder(target))
        except OSError as error:
            raise ModelFileError(
                f"The model cannot be written to {folder}: nothing can be made in {target.parent} "
                f"({error.strerror}); choose another place."
            ) from None
        write_tensors(_tensors(known), work / "model.safetensors")
        for name, frame in tables.items():
            (work / f"{name}.parquet").write_bytes(parquet_bytes(frame))
        (work / "model.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def may_be_replaced(folder: Path) -> bool:
    """Whether a model can be written there: what has anything else in it is somebody's work,
    whatever its name."""
    return not folder.exists() or (folder.is_dir() and set(os.listdir(folder)) <= FILES)


def load_artifact(folder: str | Path) -> Fitted:
    """(settings, knowledge) of a model folder, or of a run folder, which has one.

    Where the model is replaced by another while it is read, it is that one.
    """
    folder = Path(folder)
    for _ in range(_MOST_READINGS - 1):
        manifest = _manifest_of(folder)
        try:
            return _loaded(folder)
        except ModelFileError:
            if _manifest_of(folder) == manifest:
                raise
    return _loaded(folder)


def _manifest_of(folder: Path) -> bytes | None:
    """The manifest as it is now, which has the hash of every file."""
    try:
        return (_own_folder(folder) / MANIFEST).read_bytes()
    except OSError:
        return None


def _own_folder(folder: Path) -> Path:
    """The model's own folder, where that of a run was given."""
    if not (folder / "model.json").is_file() and (folder / "model" / "model.json").is_file():
        return folder / "model"
    return folder


def _loaded(folder: Path) -> Fitted:
    folder = _own_folder(folder)
    if not (folder / "model.json").is_file():
        if (folder / "run.json").is_file():
            raise ModelFileError(
                f"The run {folder} has no model yet, its training was not finished; go on with:  "
                f"cfuica train --resume {shlex.quote(str(folder))}"
            )
        raise ModelFileError(
            f"There is no model in {folder} (no model.json); give the folder that `cfuica train "
            f"--out` or model.save wrote."
        )
    verify(folder, _REMEDY)
    try:
        card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        if card["format"] != FORMAT:
            raise ModelFileError(
                f"{folder} was written by cfuica {card.get('cfuica')} in format {card['format']}, "
                f"and this is {cfuica.__version__}, which reads format {FORMAT}; take the cfuica "
                f"that wrote it, or train again."
            )
        if card["task"] not in TASKS:
            raise ModelFileError(
                f"{folder} holds a model for the task {card['task']!r}, not for one of "
                f"{' and '.join(TASKS)}; give the folder of such a model, or upgrade cfuica."
            )
        return _read(folder, card)
    except CfuicaError:
        raise
    except (
        OSError,
        ValueError,  # pydantic's ValidationError is one
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,  # an integer that no float can hold
        SafetensorError,
        pl.exceptions.PolarsError,
    ) as error:
        reason = _reason(error)
        raise ModelFileError(f"The model in {folder} is damaged ({reason}); {_REMEDY}.") from None


def _read(folder: Path, card: dict[str, Any]) -> Fitted:
    user_table, item_table = (read_parquet(folder / f"{axis}.parquet") for axis in AXES)
    users = _ids(folder / "users.parquet", user_table["user"])
    items = _ids(folder / "items.parquet", item_table["item"])
    rows: dict[SideName, np.ndarray] = {
        "users": _rows(folder / "users.parquet", user_table["row"]),
        "items": _rows(folder / "items.parquet", item_table["row"]),
    }
    item_table = item_table.drop("row")
    about = item_table if item_table.width > 1 else None
    common = CommonKnowledge(users=users, items=items, rows=rows, item_table=about, card=card)
    read = _read_rating if card["task"] == Settings.task else _read_ranking
    return read(folder, common)


def _read_rating(folder: Path, common: CommonKnowledge) -> Fitted:
    card = common.card
    settings = Settings(**card["settings"])
    scale = LabelScale.restored(card["label_values"], card["label_edges"])
    matrix = _matrix(folder, read_parquet(folder / "behaviours.parquet"), common, scale.size)
    tensors = _saved_tensors(folder, common)

    def predictor(name: str, sides: dict[SideName, Side], bridge: Bridge | None) -> Predictor:
        calibration = Calibration.restored(**card["calibration"][name])
        return Predictor(CoAutoregressive(sides, bridge), calibration)

    known = predictor("known", tensors.sides_of_rating(settings, scale.size), None)
    strangers = None
    if settings.strangers:
        sides = tensors.sides_of_rating(settings, scale.size, strangers=True)
        has_bridge = settings.bridge_rate > 0 and len(sides) == 2
        strangers = predictor("strangers", sides, tensors.bridge(sides) if has_bridge else None)
    knowledge = Knowledge(
        known=known, strangers=strangers, scale=scale, behaviours=matrix, **vars(common)
    )
    return settings, knowledge


def _read_ranking(folder: Path, common: CommonKnowledge) -> Fitted:
    card = common.card
    settings = RankingSettings(**card["settings"])
    frame = read_parquet(folder / "behaviours.parquet")
    _matrix(folder, frame.with_columns(label=pl.lit(0, pl.UInt8)), common, 1)
    times = frame["timestamp"]
    if not times.dtype.is_integer() or times.null_count() or type(card["has_times"]) is not bool:
        raise ValueError("times are missing or no whole numbers")
    timeline = Timeline.of(
        frame["user"].to_numpy().astype(np.int32),
        frame["item"].to_numpy().astype(np.int32),
        times.to_numpy().astype(np.int64),
        n_users=common.users.size,
        n_items=common.items.size,
    )
    sides = _saved_tensors(folder, common).sides_of_ranking(settings)
    knowledge = RankingKnowledge(
        network=CoAutoregressive(sides),
        timeline=timeline,
        has_times=card["has_times"],
        **vars(common),
    )
    return settings, knowledge


def _matrix(
    folder: Path, frame: pl.DataFrame, common: CommonKnowledge, n_labels: int
) -> BehaviourMatrix:
    """The behaviours, all of them in range and none there twice."""
    try:
        return BehaviourMatrix.from_triplets(
            frame["user"].to_numpy(),
            frame["item"].to_numpy(),
            frame["label"].to_numpy(),
            n_users=common.users.size,
            n_items=common.items.size,
            n_labels=n_labels,
        )
    except DataError:
        raise ModelFileError(
            f"{folder / 'behaviours.parquet'} has behaviours that do not fit the ids and labels "
            f"beside it; copy the folder again."
        ) from None


def _saved_tensors(folder: Path, common: CommonKnowledge) -> SavedTensors:
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return SavedTensors(path, tensors, common.rows, common.card)


def _ids(path: Path, ids: pl.Series) -> IdMap:
    id_map = IdMap.from_ids(ids)
    if not id_map.ids.equals(ids):
        raise ModelFileError(f"The ids in {path} are not sorted or repeat; copy the folder again.")
    return id_map


def _rows(path: Path, rows: pl.Series) -> np.ndarray:
    """(n,) int32: at most one row of the parameters for each, and the shared one."""
    if not rows.dtype.is_integer() or not rows.is_between(0, len(rows)).fill_null(False).all():
        raise ModelFileError(
            f"The rows of the parameters in {path} are not from 0 to {len(rows)}; copy the folder "
            f"again."
        )
    return rows.to_numpy().astype(np.int32)


def _named(known: Knowledge) -> dict[str, Predictor]:
    """The model's networks by name."""
    return {"known": known.known} | ({"strangers": known.strangers} if known.strangers else {})


def _about(known: CommonKnowledge) -> dict[str, Any]:
    """What the card says of labels and behaviours."""
    if isinstance(known, Knowledge):
        scale = known.scale
        return {
            "label_values": list(scale.values),
            "label_edges": None if scale.edges is None else list(scale.edges),
            "typical_sizes": {name: gain.typical for name, gain in known.network.gains.items()},
            "calibration": {
                name: asdict(predictor.calibration) for name, predictor in _named(known).items()
            },
        }
    assert isinstance(known, RankingKnowledge)
    return {"has_times": known.has_times}


def _behaviours(known: CommonKnowledge) -> pl.DataFrame:
    if isinstance(known, Knowledge):
        users, items, labels = known.behaviours.triplets()
        return pl.DataFrame({"user": users, "item": items, "label": labels})
    assert isinstance(known, RankingKnowledge)
    timeline = known.timeline
    return pl.DataFrame(
        {"user": timeline.users, "item": timeline.items, "timestamp": timeline.times}
    )


def _tensors(known: CommonKnowledge) -> dict[str, Tensor]:
    """Every tensor by name; those of the strangers' network begin with `strangers.`."""
    assert isinstance(known, Knowledge | RankingKnowledge)
    tensors = known.network.tensors()
    if isinstance(known, Knowledge) and known.strangers is not None:
        others = known.strangers.network.tensors()
        tensors |= {f"{STRANGERS}{name}": tensor for name, tensor in others.items()}
    return tensors


def _items(known: CommonKnowledge) -> pl.DataFrame:
    ids = pl.DataFrame({"item": known.items.ids, "row": known.rows["items"]})
    if known.item_table is None:
        return ids
    about = known.item_table.unique("item", keep="first", maintain_order=True)
    return ids.join(about, on="item", how="left", maintain_order="left")


def _reason(error: Exception) -> str:
    """The first line of what a library said, without its full stop; of a setting, which it is."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join((*map(str, first["loc"]), first["msg"]))
    said = str(error).splitlines()
    return said[0].rstrip(".:") if said else type(error).__name__
