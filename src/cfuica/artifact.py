"""The artifact: a fitted model, and the folder that it is saved in.

    model.safetensors     W, c, V, b of each side and the other parameters; `cold_start.` is the
                          prefix of the cold-start network
    sums.safetensors      the exact UUC sums of all items, by network: so that a process need not
                          add up all interactions before its first answer
    model.json            the model card: model, settings, metrics, versions, the number of changes
                          since it was fitted, retired items; of a rating model also the label scale
    users.parquet         external user ids in index order, the parameter row of each
    items.parquet         the same of items, and the item metadata
    clusters.safetensors  where users or items share rows of W and V: the row of each, and centroids
    interactions.parquet  user index, item index: what predictions are conditioned on; of a rating
                          model also label, of a ranking model timestamp, each user's in time order
    manifest.json         the SHA-256 of every other file

Nothing in it can execute when loaded. What is read is checked, because the kernels trust shapes,
rows and types.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

import cfuica
from cfuica.data.layout import MOST_TYPES
from cfuica.data.matrix import InteractionMatrix, LabelledCsr, Timeline
from cfuica.data.vocabulary import LabelScale, LiveVocabulary, Vocabulary, as_ids
from cfuica.errors import CfuicaError, DataError, ModelFileError
from cfuica.forks import need_polars
from cfuica.io import MANIFEST, parquet_bytes, read_parquet, sealed_folder, verify, write_tensors
from cfuica.model.calibration import Calibration
from cfuica.model.network import Network, hidden_units
from cfuica.model.shared_rows import Centroids, SharedRows
from cfuica.ops import running_sums
from cfuica.ops.runtime import run_rows
from cfuica.ops.tables import OTHER, SIDES, SideName
from cfuica.settings import CommonSettings, RankingSettings, RatingSettings

FORMAT = 2
FILES = {
    "model.safetensors",
    "sums.safetensors",
    "model.json",
    "users.parquet",
    "items.parquet",
    "interactions.parquet",
    MANIFEST,
}
CLUSTERS = "clusters.safetensors"  # Only where users or items share rows.
WARM, COLD_START = "warm", "cold_start"
# The saved name of each tensor, and the network's. A layer's tensors have the same name in both.
NAMES = {
    "users.W": "users.W.values",
    "users.c": "users.c",
    "users.V": "users.V.values",
    "users.b": "users.b.values",
    "items.W": "items.W.values",
    "items.c": "items.c",
    "items.V": "items.V.values",
    "items.b": "items.b.values",
    "items.log_time_constants": "items.decay.log_time_constants",
    "bilinear.A": "bilinear.A",
}
LAYER = "items.layer."  # items.layer.{member}.{parameter}
_SAVED = {name: saved for saved, name in NAMES.items()}
# The model of each kind of settings, as the card names it.
_MODELS: dict[type[CommonSettings], str] = {
    RatingSettings: "RatingModel",
    RankingSettings: "RankingModel",
}
_REMEDY = "copy the folder again, or train anew"
# The weights of a model are smaller by far. Up to here the sum of a million of them, a layer and
# the decoder on top of it do not overflow 32-bit numbers; a prediction would be NaN.
LARGEST_WEIGHT = 2.0**16
# A model that is replaced more often than this while it is read counts as damaged.
_MOST_READINGS = 4
M = TypeVar("M")


@dataclass(frozen=True, kw_only=True)
class BaseArtifact:
    """What every model folder has: users, items, and what is known about the items."""

    users: Vocabulary
    items: Vocabulary
    # (n,) int32: the parameter row of each user and each item. The last row of a table is shared by
    # cold-start users or items, which training did not see.
    rows: Mapping[SideName, np.ndarray]
    # `item` and any other columns, one row per item in index order.
    item_metadata: pl.DataFrame | None = None
    # Ids of items that are neither recommended nor similar to others.
    retired: pl.Series = field(default_factory=lambda: pl.Series([], dtype=pl.String))
    sequence: int = 0  # How many changes there have been since it was fitted.
    card: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Artifact(BaseArtifact):
    """A fitted model of either task: weights, vocabularies, interactions, item metadata, card."""

    settings: CommonSettings
    # "warm" and, of some rating models, "cold_start", which predicts pairs with a cold-start user
    # or item.
    networks: Mapping[str, Network]
    calibrations: Mapping[str, Calibration] = field(
        default_factory=dict
    )  # Of networks that have one.
    # What predictions are conditioned on; of a ranking model each user's in time order.
    interactions: InteractionMatrix | Timeline
    scale: LabelScale | None = None  # Of a rating model.
    has_times: bool = (
        True  # Whether the data had times; else the order of its rows is that of time.
    )
    types: tuple[str, ...] = ()  # Of a ranking model: the types of its events, weakest first.
    # Of the sides whose cold-start users or items join the nearest cluster.
    centroids: Mapping[SideName, Centroids] = field(default_factory=dict)
    # (M, H) float64 by network: the UUC sums of all items, where they are known already.
    sums: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"Artifact({self.settings.task}: {self.users.size:,} users, {self.items.size:,} items, "
            f"{self.interactions.n_interactions:,} interactions, networks "
            f"{', '.join(self.networks)})"
        )

    @property
    def n_labels(self) -> int:
        """K."""
        return 1 if self.scale is None else self.scale.size

    def calibration(self, name: str) -> Calibration:
        """The calibration of a network; the identity where it has none."""
        return self.calibrations.get(name, Calibration())

    def item_sums(self, name: str) -> np.ndarray | None:
        """(M, H) float64 the exact UUC sums of all items; None for a network without a users side.

        They are those of a live state, to the bit.
        """
        side = self.networks[name].users
        if side is None or name in self.sums:
            return self.sums.get(name)
        by_item: LabelledCsr = (
            self.interactions.by_item()
            if isinstance(self.interactions, Timeline)
            else self.interactions.by_item
        )
        every = np.arange(by_item.n_rows)
        sums_mh = np.empty((by_item.n_rows, side.n_hidden))
        pool = (by_item.offsets[:-1], by_item.sizes, by_item.indices, by_item.labels)
        run_rows(
            running_sums.fill, len(every), side.W.rows, *pool,
            side.table_rows(self.rows["users"]), self.n_labels, every, every, sums_mh,
            work=by_item.offsets,
        )  # fmt: skip
        return sums_mh

    def save(self, folder: str | Path) -> Path:
        """Write the model folder; an older one is replaced."""
        card: dict[str, Any] = {
            **self.card,
            "model": _MODELS[type(self.settings)],
            "task": self.settings.task,
            "settings": self.settings.model_dump(),
        }
        if self.scale is None:
            card |= {"has_times": self.has_times, "types": list(self.types)}
        else:
            card |= {
                "label_values": list(self.scale.values),
                "label_edges": None if self.scale.edges is None else list(self.scale.edges),
                "typical_sizes": typical_sizes(self.networks[WARM]),
                "calibration": {name: asdict(self.calibration(name)) for name in self.networks},
            }
        clusters = {
            f"{axis}.row_of": torch.from_numpy(each.row_of)
            for axis, each in shared_rows(self.networks[WARM]).items()
        }
        for axis, own in self.centroids.items():
            clusters[f"{axis}.directions"] = torch.from_numpy(own.directions_hd)
            clusters[f"{axis}.centroids"] = torch.from_numpy(own.points_cd)
        sums = {name: self.item_sums(name) for name in self.networks}
        tensors = {
            "model": {
                f"{_prefix(name)}{saved}": tensor
                for name, network in self.networks.items()
                for saved, tensor in saved_tensors(network).items()
            },
            "sums": {name: torch.from_numpy(own) for name, own in sums.items() if own is not None},
        }
        if clusters:
            card["clusters"] = {
                axis: each.n_clusters for axis, each in shared_rows(self.networks[WARM]).items()
            }
            tensors["clusters"] = clusters
        return write(folder, card, self, _interactions_table(self.interactions), tensors)

    @classmethod
    def load(cls, folder: str | Path) -> Artifact:
        """The artifact of a model folder, or of a run folder, which has one."""
        return read(folder, artifact_of)


def typical_sizes(network: Network) -> dict[SideName, float]:
    """The usual number of interactions in a context of each side, for length normalisation."""
    return {name: side.length_norm.typical for name, side in network.sides.items()}


def shared_rows(network: Network) -> dict[SideName, SharedRows]:
    """The rows that users or items share, of the sides where they do."""
    return {name: side.shared for name, side in network.sides.items() if side.shared is not None}


def saved_tensors(network: Network) -> dict[str, Tensor]:
    """The tensors of a network by their saved names."""
    return {
        name if name.startswith(LAYER) else _SAVED[name]: tensor
        for name, tensor in network.state_dict().items()
    }


def restored_network(
    settings: CommonSettings,
    tensors: Mapping[str, Tensor],
    n_labels: int,
    typical: Mapping[SideName, float],
    *,
    cold_start: bool = False,
    shared: Mapping[SideName, SharedRows] | None = None,
) -> Network:
    """The network of these tensors (by saved name), which it then owns; a ValueError where they are
    not what a network of these settings has."""
    sides = hidden_units(settings, cold_start=cold_start)

    def empty() -> Network:
        return Network.of(
            settings,
            {name: len(tensors[f"{name}.b"]) for name in sides},
            n_labels,
            members=1 if cold_start else settings.ensemble_size,
            cold_start=cold_start,
            typical=typical,
            shared=shared,
        )

    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    try:
        with torch.device("meta"):
            wanted = saved_tensors(empty())
    except (KeyError, TypeError):  # no b, or one without rows
        raise ValueError(f"found tensors of shapes {found}, expected b of each side") from None
    expected = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    if found != expected:
        raise ValueError(f"found tensors of shapes {found}, expected {expected}")
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or not math.isfinite(size := largest(tensor)):
            raise ValueError(f"{name} is not all finite 32-bit numbers")
        if size > LARGEST_WEIGHT:
            raise ValueError(
                f"{name} has a weight of {size:.2g}, but expected at most {LARGEST_WEIGHT:g}, "
                f"because predictions would overflow"
            )
    network = empty()
    network.load_state_dict(
        {NAMES.get(name, name): tensor for name, tensor in tensors.items()}, assign=True
    )
    return network


def largest(tensor: Tensor) -> float:
    """The largest absolute value; not finite where any is not."""
    # By numpy, because torch's threads do not survive a fork.
    array = tensor.numpy()
    return max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))


def write(
    folder: str | Path,
    card: Mapping[str, Any],
    artifact: BaseArtifact,
    interactions: pl.DataFrame,
    tensors: Mapping[str, dict[str, Tensor]],
) -> Path:
    """Write a model folder whole under another name, then rename it; an older one is replaced.

    `tensors` are by file, then by name.
    """
    need_polars("Saving a model")
    target = Path(os.path.realpath(folder))
    if not may_be_replaced(target):
        raise ModelFileError(
            f"{folder} exists and is not a model folder; choose another name for the model."
        )
    card = {
        **card,
        "sequence": artifact.sequence,
        "retired": artifact.retired.to_list(),
        "format": FORMAT,
        "cfuica": cfuica.__version__,
    }
    items = pl.DataFrame({"item": artifact.items.ids, "row": artifact.rows["items"]})
    if artifact.item_metadata is not None:
        item_metadata = artifact.item_metadata.unique("item", keep="first", maintain_order=True)
        items = items.join(item_metadata, on="item", how="left", maintain_order="left")
    tables = {
        "users": pl.DataFrame({"user": artifact.users.ids, "row": artifact.rows["users"]}),
        "items": items,
        "interactions": interactions,
    }
    with ExitStack() as stack:
        try:
            work = stack.enter_context(sealed_folder(target))
        except OSError as error:
            raise ModelFileError(
                f"The model cannot be written to {folder}: nothing can be made in {target.parent} "
                f"({error.strerror}); choose another place."
            ) from None
        for name, own in tensors.items():
            write_tensors(own, work / f"{name}.safetensors")
        for name, frame in tables.items():
            (work / f"{name}.parquet").write_bytes(parquet_bytes(frame))
        (work / "model.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def may_be_replaced(folder: Path) -> bool:
    """Whether a model can be written there: a folder with any other file is not replaced."""
    return not folder.exists() or (
        folder.is_dir() and set(os.listdir(folder)) <= FILES | {CLUSTERS}
    )


def read(folder: str | Path, model_of: Callable[[Path, dict[str, Any]], M]) -> M:
    """What `model_of` makes of a model folder and its card, or of a run folder, which has one.

    Where the model is replaced while it is read, the new one is loaded.
    """
    folder = Path(folder)
    for _ in range(_MOST_READINGS - 1):
        manifest = manifest_of(folder)
        try:
            return _loaded(folder, model_of)
        except ModelFileError:
            if manifest_of(folder) == manifest:
                raise
    return _loaded(folder, model_of)


def manifest_of(folder: Path) -> bytes | None:
    """The manifest of a model folder, or a run's, as it is now: it has the hash of every file."""
    path = _own_folder(folder) / MANIFEST
    try:
        return path.read_bytes() if path.is_file() else None  # a pipe may never end
    except OSError:
        return None


def _own_folder(folder: Path) -> Path:
    """The model folder, also where its run folder was given."""
    if not (folder / "model.json").is_file() and (folder / "model" / "model.json").is_file():
        return folder / "model"
    return folder


def _loaded(folder: Path, model_of: Callable[[Path, dict[str, Any]], M]) -> M:
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
        return model_of(folder, card)
    except ModelFileError:
        raise
    except (
        CfuicaError,  # ids or settings that a model cannot have
        OSError,
        ValueError,  # pydantic's ValidationError is one
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,  # an integer that no float can hold
        RuntimeError,  # torch's, of sizes that no tensor can have; RecursionError is one
        SafetensorError,
        pl.exceptions.PolarsError,
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".:")
        if isinstance(error, ValidationError):  # which setting it is
            first = error.errors()[0]
            reason = ": ".join((*map(str, first["loc"]), first["msg"]))
        raise ModelFileError(f"The model in {folder} is damaged ({reason}); {_REMEDY}.") from None


def artifact_of(folder: Path, card: dict[str, Any]) -> Artifact:
    """The artifact of the folder of a model of a network."""
    kinds = {kind.task: kind for kind in _MODELS}
    base = read_base(folder, card)
    settings = kinds[card["task"]](**card["settings"])
    scale: LabelScale | None = None
    calibrations: dict[str, Calibration] = {}
    names = [WARM]
    if isinstance(settings, RatingSettings):
        scale = LabelScale.restored(card["label_values"], card["label_edges"])
        names += [COLD_START] if settings.cold_start_units else []
        calibrations = {name: _calibration(**card["calibration"][name]) for name in names}
    elif type(card["has_times"]) is not bool:
        raise ValueError("has_times is neither true nor false")
    types = tuple(card.get("types", ()))
    if not all(isinstance(name, str) for name in types) or len(types) > MOST_TYPES:
        raise ValueError(f"the types of events are not up to {MOST_TYPES} words")
    frame, matrix = read_interactions(folder, base, scale)
    shared, centroids = _read_clusters(folder, card, settings)
    n_labels = 1 if scale is None else scale.size
    networks = _read_networks(folder, base, settings, names, n_labels, shared)
    return Artifact(
        **vars(base),
        settings=settings,
        networks=networks,
        calibrations=calibrations,
        interactions=_timeline(frame, base, len(types)) if scale is None else matrix,
        scale=scale,
        has_times=card.get("has_times", True),
        types=types,
        centroids=centroids,
        sums=_read_sums(folder / "sums.safetensors", networks, base.items.size),
    )


def _calibration(temperature: float, widening: float) -> Calibration:
    if not (
        1 / LARGEST_WEIGHT <= temperature <= LARGEST_WEIGHT and abs(widening) <= LARGEST_WEIGHT
    ):
        raise ValueError(f"the calibration ({temperature}, {widening}) is out of range")
    return Calibration(float(temperature), float(widening))


def read_base(folder: Path, card: dict[str, Any]) -> BaseArtifact:
    """What the folder of every model has: ids, parameter rows, item metadata and card."""
    tables: dict[SideName, pl.DataFrame] = {}
    ids: dict[SideName, Vocabulary] = {}
    rows: dict[SideName, np.ndarray] = {}
    for axis in SIDES:
        path = folder / f"{axis}.parquet"
        tables[axis] = read_parquet(path)
        given = as_ids(tables[axis][axis.removesuffix("s")])
        ids[axis] = Vocabulary(given.rename("id"))
        if given.null_count() or not (given[:-1] < given[1:]).all():
            raise ModelFileError(
                f"The ids in {path} are not sorted or repeat; copy the folder again."
            )
        row = tables[axis]["row"]
        most = len(row) + card.get("clusters", {}).get(axis, 0)
        if row.null_count() or not row.dtype.is_integer() or not row.is_between(0, most).all():
            raise ModelFileError(
                f"The rows of the parameters in {path} are not from 0 to {most}; copy the folder "
                f"again."
            )
        rows[axis] = row.to_numpy().astype(np.int32)
    columns = [column for column in tables["items"].get_columns() if column.name != "row"]
    metadata = pl.DataFrame(columns)
    sequence, retired = card.get("sequence", 0), pl.Series(card.get("retired", []))
    if type(sequence) is not int or not 0 <= sequence < 2**63:
        raise ValueError(f"the sequence {sequence!r} is no number of changes")
    # A live vocabulary finds a few ids without the threads of polars, which no fork survives.
    if retired.null_count() or (LiveVocabulary("item", ids["items"]).encode(retired) < 0).any():
        raise ValueError("an item that is retired is none of its items")
    return BaseArtifact(
        users=ids["users"],
        items=ids["items"],
        rows=rows,
        item_metadata=metadata if metadata.width > 1 else None,
        retired=as_ids(retired),
        sequence=sequence,
        card=card,
    )


def read_interactions(
    folder: Path, base: BaseArtifact, scale: LabelScale | None = None
) -> tuple[pl.DataFrame, InteractionMatrix]:
    """interactions.parquet as it is, and as a matrix, checked: all in range and no pair twice.

    Without a scale there are no labels, and all count as 0."""
    path = folder / "interactions.parquet"
    frame = read_parquet(path)
    try:
        matrix = InteractionMatrix.from_triplets(
            frame["user"].to_numpy(),
            frame["item"].to_numpy(),
            np.zeros(frame.height, np.uint8) if scale is None else frame["label"].to_numpy(),
            n_users=base.users.size,
            n_items=base.items.size,
            n_labels=1 if scale is None else scale.size,
        )
    except DataError:
        raise ModelFileError(
            f"{path} has interactions that do not fit the ids and labels beside it; copy the "
            f"folder again."
        ) from None
    return frame, matrix


def _timeline(frame: pl.DataFrame, base: BaseArtifact, n_types: int) -> Timeline:
    """The interactions of a ranking model, from a table whose indices were checked."""
    times = frame["timestamp"]
    if not times.dtype.is_integer() or times.null_count():
        raise ValueError("times are missing or no whole numbers")
    types = None
    if n_types:
        if not frame["type"].is_between(0, n_types - 1).fill_null(False).all():
            raise ValueError(f"an interaction has none of the {n_types} types")
        types = frame["type"].to_numpy().astype(np.uint8)
    return Timeline.of(
        frame["user"].to_numpy().astype(np.int32),
        frame["item"].to_numpy().astype(np.int32),
        times.to_numpy().astype(np.int64),
        n_users=base.users.size,
        n_items=base.items.size,
        types=types,
    )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name; memory is mapped, not read."""
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _read_clusters(
    folder: Path, card: dict[str, Any], settings: CommonSettings
) -> tuple[dict[SideName, SharedRows], dict[SideName, Centroids]]:
    """The rows that users or items share, and the centroids of their clusters, checked."""
    shared: dict[SideName, SharedRows] = {}
    centroids: dict[SideName, Centroids] = {}
    counts = card.get("clusters", {})
    tensors = read_tensors(folder / CLUSTERS) if counts else {}
    hidden = hidden_units(settings)
    for axis in SIDES:
        if axis not in counts:
            continue
        clusters, row_of = counts[axis], tensors[f"{axis}.row_of"].numpy()
        if type(clusters) is not int or row_of.dtype != np.int32 or row_of.ndim != 1:
            raise ValueError(f"the shared rows of {axis} are no 32-bit integers")
        # Every row of W and V is somebody's, and the last one is that of the last row of b.
        is_used = np.zeros(len(row_of), np.bool_)
        if not (0 <= clusters < len(row_of) and row_of.min() >= 0 and row_of.max() == row_of[-1]):
            raise ValueError(f"the shared rows of {axis} are out of range")
        if row_of[-1] >= len(row_of):
            raise ValueError(f"the shared rows of {axis} are more than {len(row_of)}")
        is_used[row_of] = True
        if not is_used[: row_of[-1] + 1].all():
            raise ValueError(f"rows of W and V belong to none of the {axis}")
        shared[axis] = SharedRows(row_of, clusters)
        if f"{axis}.centroids" in tensors:
            points, directions = (
                tensors[f"{axis}.{name}"].numpy() for name in ("centroids", "directions")
            )
            units = hidden[OTHER[axis]] * settings.ensemble_size
            if (
                points.dtype != np.float32
                or directions.dtype != np.float32
                or points.shape != (clusters, directions.shape[-1])
                or directions.shape[0] != units
                or not np.isfinite(directions).all()
                or not np.isfinite(points).any()
            ):
                raise ValueError(f"the centroids of {axis} do not fit the network")
            centroids[axis] = Centroids(directions, points)
    return shared, centroids


def _read_networks(
    folder: Path,
    base: BaseArtifact,
    settings: CommonSettings,
    names: list[str],
    n_labels: int,
    shared: Mapping[SideName, SharedRows],
) -> dict[str, Network]:
    """The networks of model.safetensors, whose tables have the rows of all users and items."""
    path = folder / "model.safetensors"
    tensors = read_tensors(path)
    typical = {
        name: float(base.card["typical_sizes"][name]) if n_labels > 1 else 0.0
        for name in hidden_units(settings)
    }
    if not all(0.0 <= size < math.inf for size in typical.values()):
        raise ValueError(f"the typical sizes {typical} are no numbers of interactions")
    networks = {}
    # The others first, because the names of the warm network have no prefix.
    for name in reversed(names):
        own = {
            key.removeprefix(_prefix(name)): tensors.pop(key)
            for key in list(tensors)
            if key.startswith(_prefix(name))
        }
        try:
            networks[name] = restored_network(
                settings, own, n_labels, typical, cold_start=name == COLD_START, shared=shared
            )
        except ValueError as error:
            raise ModelFileError(f"{path}, {name}: {error}; copy the folder again.") from None
        for axis, side in networks[name].sides.items():
            rows, highest = base.rows[axis], base.rows[axis].max(initial=-1)
            n_clusters = shared[axis].n_clusters if axis in shared else 0
            if axis in shared and side.n_rows != shared[axis].n_rows:
                raise ModelFileError(
                    f"{path}, {name}.{axis}: found {side.n_rows} rows of b, expected "
                    f"{shared[axis].n_rows}; copy the folder again."
                )
            # Those of clusters and that of all cold-start users or items come last.
            if not int(highest) < side.n_rows <= len(rows) + n_clusters + 1:
                raise ModelFileError(
                    f"{path}, {name}.{axis}: found {side.n_rows} rows for {len(rows)} ids, of "
                    f"which they have up to number {highest}; copy the folder again."
                )
    return {name: networks[name] for name in names}


def _read_sums(path: Path, networks: Mapping[str, Network], n_items: int) -> dict[str, np.ndarray]:
    sums = read_tensors(path)
    expected = {
        name: (n_items, network.users.n_hidden)
        for name, network in networks.items()
        if network.users is not None
    }
    found = {name: tuple(own.shape) for name, own in sums.items()}
    most = LARGEST_WEIGHT * max((n.users.n_rows for n in networks.values() if n.users), default=0)
    is_usable = all(own.dtype == torch.float64 and largest(own) <= most for own in sums.values())
    if found != expected or not is_usable:
        raise ModelFileError(
            f"{path}: found sums of shapes {found}, expected {expected} of finite 64-bit numbers; "
            f"copy the folder again."
        )
    return {name: own.numpy() for name, own in sums.items()}


def _prefix(name: str) -> str:
    return "" if name == WARM else f"{name}."


def _interactions_table(interactions: InteractionMatrix | Timeline) -> pl.DataFrame:
    if isinstance(interactions, Timeline):
        users, items, times = interactions.users, interactions.items, interactions.times
        frame = pl.DataFrame({"user": users, "item": items, "timestamp": times})
        return frame if interactions.types is None else frame.with_columns(type=interactions.types)
    users, items, labels = interactions.triplets()
    return pl.DataFrame({"user": users, "item": items, "label": labels})
