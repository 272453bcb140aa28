"""A saved model is a folder: parameters, a card, ids and the behaviours it reads.

    model.safetensors    W, c, V, b of each side
    model.json           settings, label scale, data hash, metrics, versions
    users.parquet        external user ids in index order
    items.parquet        external item ids in index order, titles and genres where known
    behaviours.parquet   user index, item index, label: what predictions are conditioned on

Nothing in it can execute when loaded.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import cfuica
from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix
from cfuica.errors import CfuicaError, ModelFileError
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.pairs import SideName
from cfuica.model.side import Side
from cfuica.rating_model import Knowledge, RatingModel
from cfuica.settings import Settings

FORMAT = 1


def save(model: RatingModel, folder: str | Path) -> Path:
    """Write the folder whole under another name, then rename it; an older one is replaced."""
    folder = Path(folder)
    known = model.knowledge
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and not (folder / "model.json").is_file() and any(folder.iterdir()):
        raise ModelFileError(
            f"{folder} exists and is not a model folder; choose another name for the model."
        )
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        save_file(
            {name: t.cpu().contiguous() for name, t in known.network.tensors().items()},
            work / "model.safetensors",
        )
        _users(known.users).write_parquet(work / "users.parquet")
        _items(known).write_parquet(work / "items.parquet")
        users, items, labels = known.behaviours.triplets()
        pl.DataFrame({"user": users, "item": items, "label": labels}).write_parquet(
            work / "behaviours.parquet"
        )
        card = {
            **known.card,
            "format": FORMAT,
            "cfuica": cfuica.__version__,
            "task": "rating",
            "settings": model.settings.model_dump(),
            "label_values": list(known.scale.values),
            "behaviours_sha256": known.behaviours.sha256(),
        }
        (work / "model.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
        # mkdtemp is private to the user; a model folder is as readable as any new folder.
        work.chmod(0o777 & ~_umask())
        _replace(work, folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return folder


def load(folder: str | Path) -> RatingModel:
    """The model of a model folder (or of a run folder, which holds one)."""
    folder = Path(folder)
    if not (folder / "model.json").is_file() and (folder / "model" / "model.json").is_file():
        folder = folder / "model"
    if not (folder / "model.json").is_file():
        raise ModelFileError(
            f"There is no model in {folder} (no model.json); give the folder that `cfuica train "
            f"--out` or model.save wrote."
        )
    try:
        card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        if card["format"] > FORMAT:
            raise ModelFileError(
                f"{folder} was written by cfuica {card['cfuica']} in format {card['format']}, and "
                f"this is {cfuica.__version__}, which reads up to format {FORMAT}; upgrade cfuica."
            )
        settings = Settings(**card["settings"])
        known = _read_knowledge(folder, card, settings)
    except CfuicaError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ValidationError,
        SafetensorError,
        pl.exceptions.PolarsError,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelFileError(
            f"The model in {folder} is damaged or incomplete ({reason}); copy it again or "
            f"train anew."
        ) from None
    return RatingModel.from_knowledge(settings, known)


def _read_knowledge(folder: Path, card: dict[str, Any], settings: Settings) -> Knowledge:
    user_ids = pl.read_parquet(folder / "users.parquet")["user"]
    item_table = pl.read_parquet(folder / "items.parquet")
    scale = LabelScale(tuple(card["label_values"]))
    rows = pl.read_parquet(folder / "behaviours.parquet")
    matrix = BehaviourMatrix.from_triplets(
        rows["user"].to_numpy(),
        rows["item"].to_numpy(),
        rows["label"].to_numpy(),
        n_users=len(user_ids),
        n_items=len(item_table),
        n_labels=scale.size,
    )
    if matrix.sha256() != card["behaviours_sha256"]:
        raise ModelFileError(
            f"{folder / 'behaviours.parquet'} does not belong to {folder / 'model.json'} (its "
            f"hash differs); copy the folder again."
        )
    network = _network(folder / "model.safetensors", settings)
    sizes: dict[SideName, int] = {"users": matrix.n_users, "items": matrix.n_items}
    for name, side in network.sides.items():
        expected = (sizes[name], scale.size)
        if tuple(side.decoder_bias_nk.shape) != expected:
            raise ModelFileError(
                f"{folder / 'model.safetensors'} has {tuple(side.decoder_bias_nk.shape)} "
                f"(members, labels) on its {name} side where the ids and labels say {expected}; "
                f"copy the folder again."
            )
    return Knowledge(
        network=network,
        users=IdMap(user_ids.rename("id")),
        items=IdMap(item_table["item"].rename("id")),
        scale=scale,
        behaviours=matrix,
        item_table=item_table if "title" in item_table.columns else None,
        card=card,
    )


def _network(path: Path, settings: Settings) -> CoAutoregressive:
    tensors = load_file(path)
    names: tuple[SideName, ...] = ("users", "items")
    sides: dict[SideName, Side] = {}
    for name in names:
        own = {k.split(".", 1)[1]: t for k, t in tensors.items() if k.startswith(f"{name}.")}
        if own:
            sides[name] = Side(**own, activation=settings.activation)
    if not sides:
        raise ModelFileError(f"{path} holds no side of a model; copy the folder again.")
    for key, tensor in tensors.items():
        if not bool(np.isfinite(tensor.numpy()).all()):
            raise ModelFileError(f"{path} holds numbers that are not finite in {key}.")
    return CoAutoregressive(sides)


def _users(users: IdMap) -> pl.DataFrame:
    return pl.DataFrame({"user": users.ids})


def _items(known: Knowledge) -> pl.DataFrame:
    ids = pl.DataFrame({"item": known.items.ids})
    if known.item_table is None:
        return ids
    about = known.item_table.unique("item", keep="first", maintain_order=True)
    return ids.join(about, on="item", how="left", maintain_order="left")


def _replace(work: Path, folder: Path) -> None:
    """Put the finished folder in place. A folder cannot be renamed over one that has files."""
    if folder.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
        os.replace(folder, old / "model")
        os.replace(work, folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(work, folder)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
