"""Save and load an artifact as a model folder.

    model.safetensors     W, c, V, b of each side; `cold_start.` is the prefix of the cold-start
                          network
    model.json            the model card: settings, metrics, versions; of a rating model also the
                          label scale
    users.parquet         external user ids in index order, the parameter row of each
    items.parquet         the same of items, and the item metadata
    interactions.parquet  user index, item index: what predictions are conditioned on; of a rating
                          model also label, of a ranking model timestamp, each user's in time order
    manifest.json         the SHA-256 of every other file

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
    COLD_START,
    Artifact,
    CalibratedNetwork,
    RankingArtifact,
    RatingArtifact,
    SavedTensors,
)
from cfuica.data.matrix import InteractionMatrix, Timeline
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.errors import CfuicaError, DataError, ModelFileError
from cfuica.io import MANIFEST, parquet_bytes, read_parquet, sealed_folder, verify, write_tensors
from cfuica.model.calibration import Calibration
from cfuica.model.layers import BilinearInteraction
from cfuica.model.network import Network
from cfuica.model.pairs import SIDES, SideName
from cfuica.model.side import Side
from cfuica.settings import CommonSettings, RankingSettings, RatingSettings

FORMAT = 1
TASKS = (RatingSettings.task, RankingSettings.task)
Fitted = tuple[CommonSettings, Artifact]
FILES = {
    "model.safetensors",
    "model.json",
    "users.parquet",
    "items.parquet",
    "interactions.parquet",
    MANIFEST,
}
_REMEDY = "copy the folder again, or train anew"
# A model that is replaced more often than this while it is read counts as damaged.
_MOST_READINGS = 4


def save(settings: CommonSettings, artifact: Artifact, folder: str | Path) -> Path:
    """Write the folder whole under another name, then rename it; an older one is replaced."""
    target = Path(os.path.realpath(folder))
    if not may_be_replaced(target):
        raise ModelFileError(
            f"{folder} exists and is not a model folder; choose another name for the model."
        )
    card = {
        **artifact.card,
        "format": FORMAT,
        "cfuica": cfuica.__version__,
        "task": settings.task,
        "settings": settings.model_dump(),
        **_card_entries(artifact),
    }
    tables = {
        "users": pl.DataFrame({"user": artifact.users.ids, "row": artifact.rows["users"]}),
        "items": _items(artifact),
        "interactions": _interactions(artifact),
    }
    with ExitStack() as stack:
        try:
            work = stack.enter_context(sealed_folder(target))
        except OSError as error:
            raise ModelFileError(
                f"The model cannot be written to {folder}: nothing can be made in {target.parent} "
                f"({error.strerror}); choose another place."
            ) from None
        write_tensors(_tensors(artifact), work / "model.safetensors")
        for name, frame in tables.items():
            (work / f"{name}.parquet").write_bytes(parquet_bytes(frame))
        (work / "model.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def may_be_replaced(folder: Path) -> bool:
    """Whether a model can be written there: a folder with any other file is not replaced."""
    return not folder.exists() or (folder.is_dir() and set(os.listdir(folder)) <= FILES)


def load_artifact(folder: str | Path) -> Fitted:
    """(settings, artifact) of a model folder, or of a run folder, which has one.

    Where the model is replaced while it is read, the new one is loaded.
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
    """The model folder, also where its run folder was given."""
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
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".:")
        if isinstance(error, ValidationError):  # which setting it is
            first = error.errors()[0]
            reason = ": ".join((*map(str, first["loc"]), first["msg"]))
        raise ModelFileError(f"The model in {folder} is damaged ({reason}); {_REMEDY}.") from None


def _read(folder: Path, card: dict[str, Any]) -> Fitted:
    user_table, item_table = (read_parquet(folder / f"{axis}.parquet") for axis in SIDES)
    users = _ids(folder / "users.parquet", user_table["user"])
    items = _ids(folder / "items.parquet", item_table["item"])
    rows: dict[SideName, np.ndarray] = {
        "users": _rows(folder / "users.parquet", user_table["row"]),
        "items": _rows(folder / "items.parquet", item_table["row"]),
    }
    item_table = item_table.drop("row")
    metadata = item_table if item_table.width > 1 else None
    common = Artifact(users=users, items=items, rows=rows, item_metadata=metadata, card=card)
    read = _read_rating if card["task"] == RatingSettings.task else _read_ranking
    return read(folder, common)


def _read_rating(folder: Path, common: Artifact) -> Fitted:
    card = common.card
    settings = RatingSettings(**card["settings"])
    scale = LabelScale.restored(card["label_values"], card["label_edges"])
    matrix = _matrix(folder, read_parquet(folder / "interactions.parquet"), common, scale.size)
    tensors = _saved_tensors(folder, common)

    def calibrated(
        name: str, sides: dict[SideName, Side], bilinear: BilinearInteraction | None
    ) -> CalibratedNetwork:
        calibration = Calibration.restored(**card["calibration"][name])
        return CalibratedNetwork(Network(sides, bilinear), calibration)

    warm = calibrated("warm", tensors.sides_of_rating(settings, scale.size), None)
    cold_start = None
    if settings.cold_start_units:
        sides = tensors.sides_of_rating(settings, scale.size, cold_start=True)
        has_bilinear = settings.bilinear_rate > 0 and len(sides) == 2
        cold_start = calibrated(
            "cold_start", sides, tensors.bilinear(sides) if has_bilinear else None
        )
    artifact = RatingArtifact(
        warm=warm, cold_start=cold_start, scale=scale, interactions=matrix, **vars(common)
    )
    return settings, artifact


def _read_ranking(folder: Path, common: Artifact) -> Fitted:
    card = common.card
    settings = RankingSettings(**card["settings"])
    frame = read_parquet(folder / "interactions.parquet")
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
    artifact = RankingArtifact(
        network=Network(sides),
        timeline=timeline,
        has_times=card["has_times"],
        **vars(common),
    )
    return settings, artifact


def _matrix(
    folder: Path, frame: pl.DataFrame, common: Artifact, n_labels: int
) -> InteractionMatrix:
    """The interactions, checked: all in range and no pair twice."""
    try:
        return InteractionMatrix.from_triplets(
            frame["user"].to_numpy(),
            frame["item"].to_numpy(),
            frame["label"].to_numpy(),
            n_users=common.users.size,
            n_items=common.items.size,
            n_labels=n_labels,
        )
    except DataError:
        raise ModelFileError(
            f"{folder / 'interactions.parquet'} has interactions that do not fit the ids and "
            f"labels beside it; copy the folder again."
        ) from None


def _saved_tensors(folder: Path, common: Artifact) -> SavedTensors:
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return SavedTensors(path, tensors, common.rows, common.card)


def _ids(path: Path, ids: pl.Series) -> Vocabulary:
    id_map = Vocabulary.from_ids(ids)
    if not id_map.ids.equals(ids):
        raise ModelFileError(f"The ids in {path} are not sorted or repeat; copy the folder again.")
    return id_map


def _rows(path: Path, rows: pl.Series) -> np.ndarray:
    """(n,) int32: the parameter rows, checked: at most one for each id, and the shared one."""
    if not rows.dtype.is_integer() or not rows.is_between(0, len(rows)).fill_null(False).all():
        raise ModelFileError(
            f"The rows of the parameters in {path} are not from 0 to {len(rows)}; copy the folder "
            f"again."
        )
    return rows.to_numpy().astype(np.int32)


def _named(artifact: RatingArtifact) -> dict[str, CalibratedNetwork]:
    """The model's networks by name."""
    return {"warm": artifact.warm} | (
        {"cold_start": artifact.cold_start} if artifact.cold_start else {}
    )


def _card_entries(artifact: Artifact) -> dict[str, Any]:
    """The entries of the model card that depend on the task."""
    if isinstance(artifact, RatingArtifact):
        scale = artifact.scale
        return {
            "label_values": list(scale.values),
            "label_edges": None if scale.edges is None else list(scale.edges),
            "typical_sizes": {
                name: length_norm.typical
                for name, length_norm in artifact.network.length_norms.items()
            },
            "calibration": {
                name: asdict(calibrated.calibration)
                for name, calibrated in _named(artifact).items()
            },
        }
    assert isinstance(artifact, RankingArtifact)
    return {"has_times": artifact.has_times}


def _interactions(artifact: Artifact) -> pl.DataFrame:
    if isinstance(artifact, RatingArtifact):
        users, items, labels = artifact.interactions.triplets()
        return pl.DataFrame({"user": users, "item": items, "label": labels})
    assert isinstance(artifact, RankingArtifact)
    timeline = artifact.timeline
    return pl.DataFrame(
        {"user": timeline.users, "item": timeline.items, "timestamp": timeline.times}
    )


def _tensors(artifact: Artifact) -> dict[str, Tensor]:
    """Every tensor by name; those of the cold-start network begin with `cold_start.`."""
    assert isinstance(artifact, RatingArtifact | RankingArtifact)
    tensors = artifact.network.tensors()
    if isinstance(artifact, RatingArtifact) and artifact.cold_start is not None:
        others = artifact.cold_start.network.tensors()
        tensors |= {f"{COLD_START}{name}": tensor for name, tensor in others.items()}
    return tensors


def _items(artifact: Artifact) -> pl.DataFrame:
    ids = pl.DataFrame({"item": artifact.items.ids, "row": artifact.rows["items"]})
    if artifact.item_metadata is None:
        return ids
    item_metadata = artifact.item_metadata.unique("item", keep="first", maintain_order=True)
    return ids.join(item_metadata, on="item", how="left", maintain_order="left")
