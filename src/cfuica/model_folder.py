"""A saved model is a folder: parameters, a card, ids and the behaviours it reads.

    model.safetensors    W, c, V, b of each side, `strangers.` before those of the strangers'
                         network; and a hash of the rest that they belong to
    model.json           settings, label scale, metrics, versions, hashes of data and files
    users.parquet        external user ids in index order, the row of the parameters each one has
    items.parquet        the same of items; titles and what else is known of them
    behaviours.parquet   user index, item index, label: what predictions are conditioned on

Nothing in it can execute when loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

import cfuica
from cfuica.atomic import exchanged, sync_folder
from cfuica.data.checksums import sha256_of_file
from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix
from cfuica.disk import parquet_bytes, read_parquet, write_tensors
from cfuica.errors import CfuicaError, ModelFileError
from cfuica.knowledge import Knowledge, Predictor
from cfuica.learning.estimator import side_names
from cfuica.model.bridge import Bridge
from cfuica.model.calibration import Calibration
from cfuica.model.conditional import BRIDGE, CoAutoregressive
from cfuica.model.gain import OFFSET, STRANGERS_OFFSET, Gain
from cfuica.model.pairs import AXES, SideName
from cfuica.model.side import Side
from cfuica.rating_model import RatingModel
from cfuica.settings import Settings

FORMAT, TASK = 2, "rating"
FILES = {
    "model.safetensors",
    "model.json",
    "users.parquet",
    "items.parquet",
    "behaviours.parquet",
}
# Those that model.json has the hashes of.
_HASHED = sorted(FILES - {"model.json"})
# Whose model changes even more often while it is read, is told that it is damaged.
_MOST_READINGS = 4


def save(model: RatingModel, folder: str | Path) -> Path:
    """Write the folder whole under another name, then rename it; an older one is replaced."""
    known = model.knowledge
    target = Path(os.path.realpath(folder))
    if not may_be_replaced(target):
        raise ModelFileError(
            f"{folder} exists and is not a model folder; choose another name for the model."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ModelFileError(
            f"The model cannot be written to {folder}: nothing can be made in {target.parent} "
            f"({error.strerror}); choose another place."
        ) from None
    try:
        card = {
            **known.card,
            "format": FORMAT,
            "cfuica": cfuica.__version__,
            "task": TASK,
            "settings": model.settings.model_dump(),
            "label_values": list(known.scale.values),
            "label_edges": list(known.scale.edges) if known.scale.edges is not None else None,
            "behaviours_sha256": known.behaviours.sha256(),
            "typical_sizes": {name: gain.typical for name, gain in known.network.gains.items()},
            "calibration": {
                name: asdict(predictor.calibration) for name, predictor in _named(known).items()
            },
        }
        write_tensors(
            _tensors(known),
            work / "model.safetensors",
            {"belongs_to": _fingerprint(card, known.users, known.items, known.rows)},
        )
        rows = dict(zip(("user", "item", "label"), known.behaviours.triplets(), strict=True))
        tables = {
            "users": pl.DataFrame({"user": known.users.ids, "row": known.rows["users"]}),
            "items": _items(known),
            "behaviours": pl.DataFrame(rows),
        }
        for name, frame in tables.items():
            (work / f"{name}.parquet").write_bytes(parquet_bytes(frame))
        card["files"] = {name: sha256_of_file(work / name) for name in _HASHED}
        (work / "model.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
        # Both are made private to the user; a model is as readable as any new file.
        work.chmod(0o777 & ~_umask())
        (work / "model.safetensors").chmod(0o666 & ~_umask())
        for path in work.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        _replace(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Path(folder)


def may_be_replaced(folder: Path) -> bool:
    """Whether a model can be written there: what has anything else in it is somebody's work,
    whatever its name."""
    return not folder.exists() or (folder.is_dir() and set(os.listdir(folder)) <= FILES)


def load(folder: str | Path) -> RatingModel:
    """The model of a model folder (or of a run folder, which holds one).

    Where the model is replaced by another while it is read, it is that one.
    """
    folder = Path(folder)
    for _ in range(_MOST_READINGS - 1):
        card = _card_bytes(folder)
        try:
            return _loaded(folder)
        except ModelFileError:
            if _card_bytes(folder) == card:
                raise
    return _loaded(folder)


def _card_bytes(folder: Path) -> bytes | None:
    """The card as it is now, which has the hash of every file."""
    try:
        return (_own_folder(folder) / "model.json").read_bytes()
    except OSError:
        return None


def _own_folder(folder: Path) -> Path:
    """The model's own folder, where that of a run was given."""
    if not (folder / "model.json").is_file() and (folder / "model" / "model.json").is_file():
        return folder / "model"
    return folder


def _loaded(folder: Path) -> RatingModel:
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
    try:
        card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        if card["format"] > FORMAT:
            raise ModelFileError(
                f"{folder} was written by cfuica {card.get('cfuica')} in format {card['format']}, "
                f"and this is {cfuica.__version__}, which reads up to format {FORMAT}; upgrade "
                f"cfuica."
            )
        if card["task"] != TASK:
            raise ModelFileError(
                f"{folder} holds a model for the task {card['task']!r}, not {TASK!r}; give the "
                f"folder of a rating model."
            )
        if card.get("files") is not None:  # models from before they were hashed have none
            _verify(folder, card["files"])
        settings = Settings(**card["settings"])
        known = _read_knowledge(folder, card, settings)
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
        raise ModelFileError(
            f"The model in {folder} is damaged or incomplete ({reason}); copy it again or "
            f"train anew."
        ) from None
    return RatingModel.from_knowledge(settings, known)


def _verify(folder: Path, files: dict[str, str]) -> None:
    """Refuse files other than those that were saved."""
    for name in _HASHED:
        if sha256_of_file(folder / name) != files[name]:
            raise ModelFileError(
                f"{folder / name} is damaged or does not belong to {folder / 'model.json'} (its "
                f"SHA-256 differs); copy the folder again."
            )


def _read_knowledge(folder: Path, card: dict[str, Any], settings: Settings) -> Knowledge:
    user_table, item_table = (read_parquet(folder / f"{axis}.parquet") for axis in AXES)
    users = _ids(folder / "users.parquet", user_table["user"])
    items = _ids(folder / "items.parquet", item_table["item"])
    rows: dict[SideName, np.ndarray]
    if card["format"] == 1:
        rows = {"users": np.arange(users.size), "items": np.arange(items.size)}
    else:
        rows = {
            "users": _rows(folder / "users.parquet", user_table["row"]),
            "items": _rows(folder / "items.parquet", item_table["row"]),
        }
        item_table = item_table.drop("row")
    scale = LabelScale.restored(card["label_values"], card.get("label_edges"))
    behaviours = read_parquet(folder / "behaviours.parquet")
    matrix = BehaviourMatrix.from_triplets(
        behaviours["user"].to_numpy(),
        behaviours["item"].to_numpy(),
        behaviours["label"].to_numpy(),
        n_users=users.size,
        n_items=items.size,
        n_labels=scale.size,
    )
    if matrix.sha256() != card["behaviours_sha256"]:
        raise ModelFileError(
            f"{folder / 'behaviours.parquet'} does not belong to {folder / 'model.json'} (its "
            f"hash differs); copy the folder again."
        )
    predictors = _predictors(folder / "model.safetensors", card, settings, users, items, rows)
    return Knowledge(
        known=predictors["known"],
        strangers=predictors.get("strangers"),
        users=users,
        items=items,
        rows=rows,
        scale=scale,
        behaviours=matrix,
        item_table=item_table if item_table.width > 1 else None,
        card=card,
    )


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


def _tensors(known: Knowledge) -> dict[str, Tensor]:
    """Every tensor by name; those of the strangers' network begin with `strangers.`."""
    tensors = known.network.tensors()
    if known.strangers is not None:
        others = known.strangers.network.tensors()
        tensors |= {f"strangers.{name}": tensor for name, tensor in others.items()}
    return tensors


def _predictors(
    path: Path,
    card: dict[str, Any],
    settings: Settings,
    users: IdMap,
    items: IdMap,
    rows: dict[SideName, np.ndarray],
) -> dict[str, Predictor]:
    with safe_open(path, "pt") as file:
        belongs_to = (file.metadata() or {}).get("belongs_to")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    beside = (card, users, items, rows if card["format"] > 1 else None)
    # Models from before the corrections were part of it have it without them.
    if belongs_to not in (None, _fingerprint(*beside), _fingerprint(*beside, corrections=False)):
        raise ModelFileError(
            f"{path} does not belong to the ids, labels, settings, corrections and behaviours "
            f"beside it; copy the folder again."
        )
    found: dict[str, Predictor] = {}
    for name in ("known", "strangers") if settings.strangers else ("known",):
        prefix = "strangers." if name == "strangers" else ""
        units = {"users": settings.hidden_users, "items": settings.hidden_items}
        members = settings.members
        if name == "strangers":
            units, members = dict.fromkeys(units, settings.strangers), 1
        sides: dict[SideName, Side] = {}
        for side in side_names(settings):
            start = f"{prefix}{side}."
            own = {k.removeprefix(start): t for k, t in tensors.items() if k.startswith(start)}
            # The kernels trust shapes, rows and types, so none may be left to a file.
            where = f"{path}, {start.removesuffix('.')}"
            _check_side(own, where, len(card["label_values"]), units[side] * members)
            _check_rows(len(own["decoder_bias_nk"]), where, rows[side], card["format"])
            typical = card.get("typical_sizes", {}).get(side, 0.0)
            offset = STRANGERS_OFFSET if name == "strangers" else OFFSET
            gain = Gain.restored(settings.size_power, typical, offset)
            sides[side] = Side(**own, activation=settings.activation, gain=gain)
            if card["format"] == 1:
                sides[side] = sides[side].with_row_for_strangers()
        calibration = Calibration.restored(**card.get("calibration", {}).get(name, {}))
        bridge = None
        if name == "strangers" and settings.bridge_rate > 0 and len(sides) == 2:
            bridge = _bridge(tensors.get(f"{prefix}{BRIDGE}"), path, sides)
        found[name] = Predictor(CoAutoregressive(sides, bridge), calibration)
    return found


def _bridge(table: Tensor | None, path: Path, sides: dict[SideName, Side]) -> Bridge:
    _, labels, units = sides["users"].encoder_nkh.shape
    expected = (sides["items"].encoder_nkh.shape[2], labels, units)
    found = None if table is None else tuple(table.shape)
    if table is None or found != expected:
        raise ModelFileError(
            f"{path}: found a bridge of shape {found}, expected {expected}; copy the folder again."
        )
    _check_numbers(table, f"{path}: {BRIDGE}")
    return Bridge(table)


def _check_rows(n: int, where: str, rows: np.ndarray, format_: int) -> None:
    """Whether a table of n rows has all that are asked for, and none that nobody can have."""
    most = len(rows) + (format_ > 1)  # the shared row came with format 2
    if not int(rows.max(initial=-1)) < n <= most or (format_ == 1 and n < most):
        raise ModelFileError(
            f"{where}: found {n} rows for {len(rows)} ids, of which they have up to number "
            f"{rows.max(initial=-1)}; copy the folder again."
        )


def _check_side(tensors: dict[str, Tensor], where: str, k: int, h: int) -> None:
    n = len(tensors["decoder_bias_nk"])
    expected = {
        "encoder_nkh": (n, k, h),
        "encoder_bias_h": (h,),
        "decoder_nkh": (n, k, h),
        "decoder_bias_nk": (n, k),
    }
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise ModelFileError(
            f"{where}: found tensors of shapes {found}, expected {expected}; copy the folder again."
        )
    for name, tensor in tensors.items():
        _check_numbers(tensor, f"{where}: {name}")


def _check_numbers(tensor: Tensor, what: str) -> None:
    if tensor.dtype != torch.float32 or not bool(torch.isfinite(tensor).all()):
        raise ModelFileError(f"{what} is not all finite 32-bit numbers; train anew.")


def _items(known: Knowledge) -> pl.DataFrame:
    ids = pl.DataFrame({"item": known.items.ids, "row": known.rows["items"]})
    if known.item_table is None:
        return ids
    about = known.item_table.unique("item", keep="first", maintain_order=True)
    return ids.join(about, on="item", how="left", maintain_order="left")


def _fingerprint(
    card: dict[str, Any],
    users: IdMap,
    items: IdMap,
    rows: dict[SideName, np.ndarray] | None,
    *,
    corrections: bool = True,
) -> str:
    """Hash of what the parameters mean something for."""
    beside: dict[str, Any] = {
        name: card[name] for name in ("settings", "label_values", "behaviours_sha256")
    }
    beside |= {"users": users.ids.to_list(), "items": items.ids.to_list()}
    if card.get("label_edges") is not None:  # models from before there were bins have none
        beside["label_edges"] = card["label_edges"]
    if rows is not None:  # models from before there were strangers have none
        beside["rows"] = {axis: rows[axis].tolist() for axis in AXES}
    if corrections:
        beside |= {name: card.get(name) for name in ("typical_sizes", "calibration")}
    return hashlib.sha256(json.dumps(beside, sort_keys=True).encode()).hexdigest()


def _reason(error: Exception) -> str:
    """The first line of what a library said, without its full stop."""
    said = str(error).splitlines()
    return said[0].rstrip(".:") if said else type(error).__name__


def _replace(work: Path, folder: Path) -> None:
    """Put the finished folder in place, at one moment where the system can do that."""
    if not folder.exists():
        os.replace(work, folder)
    elif exchanged(work, folder):
        shutil.rmtree(work, ignore_errors=True)  # which is the old one now
    else:
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
        os.replace(folder, old / "model")
        try:
            os.replace(work, folder)
        except BaseException:
            os.replace(old / "model", folder)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
    sync_folder(folder.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
