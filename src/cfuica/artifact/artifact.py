"""The artifact: a fitted model with weights, vocabularies, interactions, item metadata and card.

`RatingArtifact` and `RankingArtifact` are what `fit` makes, a model folder stores and inference
reads. `SavedTensors` checks the parameters of a file, because the kernels trust shapes, rows and
types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from cfuica.data.matrix import InteractionMatrix, Timeline
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.errors import ModelFileError
from cfuica.model.calibration import Calibration
from cfuica.model.layers import (
    COLD_START_OFFSET,
    NO_NORMALISATION,
    OFFSET,
    BilinearInteraction,
    LengthNormalisation,
)
from cfuica.model.network import BILINEAR
from cfuica.model.pairs import SideName
from cfuica.model.side import Side
from cfuica.settings import CommonSettings, RankingSettings, RatingSettings

if TYPE_CHECKING:
    from cfuica.model.network import Network


@dataclass(frozen=True)
class CalibratedNetwork:
    """A network, and the calibration of its distributions."""

    network: Network
    calibration: Calibration = field(default_factory=Calibration)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """What the artifacts of both tasks have."""

    users: Vocabulary
    items: Vocabulary
    # (n,) int32: the parameter row of each user and each item. The last row of a table is shared by
    # cold-start users or items, which training did not see.
    rows: dict[SideName, np.ndarray]
    # `item`, `title` and perhaps more columns, one row per item in index order.
    item_metadata: pl.DataFrame | None = None
    card: dict[str, Any] = field(default_factory=dict)

    def ids(self, axis: SideName) -> Vocabulary:
        """The ids of the users or of the items."""
        return self.users if axis == "users" else self.items


@dataclass(frozen=True, kw_only=True)
class RatingArtifact(Artifact):
    """The artifact of a rating model."""

    # Predicts pairs of a warm user and a warm item, and all pairs without a cold-start network.
    warm: CalibratedNetwork
    cold_start: CalibratedNetwork | None  # Predicts pairs with a cold-start user or item.
    scale: LabelScale
    interactions: InteractionMatrix

    @property
    def network(self) -> Network:
        """The warm network."""
        return self.warm.network


@dataclass(frozen=True, kw_only=True)
class RankingArtifact(Artifact):
    """The artifact of a ranking model."""

    network: Network
    timeline: Timeline  # The interactions, each user's in time order.
    has_times: bool  # Whether the data had times; else the order of its rows is the time order.


COLD_START = "cold_start."  # The prefix of tensor names of the cold-start network.


@dataclass(frozen=True, eq=False)
class SavedTensors:
    """The tensors of a file by name, the parameter rows of users and items, and the model card."""

    path: Path
    tensors: dict[str, Tensor]
    rows: dict[SideName, np.ndarray]
    card: dict[str, Any]

    def sides_of_rating(
        self, settings: RatingSettings, labels: int, *, cold_start: bool = False
    ) -> dict[SideName, Side]:
        """The sides of the warm or the cold-start network."""
        units = _units(settings)
        if cold_start:
            units = dict.fromkeys(units, settings.cold_start_units)
        offset = COLD_START_OFFSET if cold_start else OFFSET
        sides: dict[SideName, Side] = {}
        for name in units:
            size = self.card["typical_sizes"][name]
            sides[name] = self._side(
                name,
                settings,
                _shapes(labels, units[name]),
                start=f"{COLD_START if cold_start else ''}{name}.",
                length_norm=LengthNormalisation.restored(
                    settings.length_normalisation, size, offset
                ),
            )
        return sides

    def sides_of_ranking(self, settings: RankingSettings) -> dict[SideName, Side]:
        """The sides of a network with one label, that of implicit feedback."""
        sides: dict[SideName, Side] = {}
        for name, units in _units(settings).items():
            shapes = _shapes(1, units)
            if name == "items" and settings.learned_decay:
                shapes["log_time_constants_h"] = (units,)
            if name == "items" and settings.residual_units:
                more = settings.residual_units * settings.ensemble_size
                shapes |= {"into_hu": (units, more), "bias_u": (more,), "back_uh": (more, units)}
            sides[name] = self._side(
                name, settings, shapes, start=f"{name}.", length_norm=NO_NORMALISATION
            )
        return sides

    def bilinear(self, sides: dict[SideName, Side]) -> BilinearInteraction:
        """The bilinear interaction between the sides of the cold-start network."""
        table = self.tensors.get(f"{COLD_START}{BILINEAR}")
        _, labels, units = sides["users"].encoder_nkh.shape
        expected = (sides["items"].encoder_nkh.shape[2], labels, units)
        found = None if table is None else tuple(table.shape)
        if table is None or found != expected:
            raise ModelFileError(
                f"{self.path}: found a bilinear interaction of shape {found}, expected {expected}; "
                f"copy the folder again."
            )
        _check_numbers(table, f"{self.path}: {BILINEAR}")
        return BilinearInteraction(table)

    def _side(
        self,
        name: SideName,
        settings: CommonSettings,
        shapes: dict[str, tuple[int, ...]],
        *,
        start: str,
        length_norm: LengthNormalisation,
    ) -> Side:
        """The side whose tensors' names begin with `start`; `shapes` are without the n rows."""
        own = {k.removeprefix(start): t for k, t in self.tensors.items() if k.startswith(start)}
        where = f"{self.path}, {start.removesuffix('.')}"
        n = len(own["decoder_bias_nk"])
        expected = {key: (n, *shape) if "_n" in key else shape for key, shape in shapes.items()}
        found = {key: tuple(tensor.shape) for key, tensor in own.items()}
        if found != expected:
            raise ModelFileError(
                f"{where}: found tensors of shapes {found}, expected {expected}; copy the folder "
                f"again."
            )
        for key, tensor in own.items():
            _check_numbers(tensor, f"{where}: {key}")
        rows = self.rows[name]
        highest = rows.max(initial=-1)
        if not int(highest) < n <= len(rows) + 1:  # the last one is shared
            raise ModelFileError(
                f"{where}: found {n} rows for {len(rows)} ids, of which they have up to number "
                f"{highest}; copy the folder again."
            )
        return Side(**own, activation=settings.activation, length_norm=length_norm)


def _units(settings: CommonSettings) -> dict[SideName, int]:
    """Hidden units of each side that the model has."""
    units: dict[SideName, int] = {
        "users": settings.hidden_users * settings.ensemble_size,
        "items": settings.hidden_items * settings.ensemble_size,
    }
    return units if settings.sides == "both" else {settings.sides: units[settings.sides]}


def _shapes(labels: int, units: int) -> dict[str, tuple[int, ...]]:
    """Of each tensor of a side, without the rows of those that have rows (`_n` in the name)."""
    return {
        "encoder_nkh": (labels, units),
        "encoder_bias_h": (units,),
        "decoder_nkh": (labels, units),
        "decoder_bias_nk": (labels,),
    }


def _check_numbers(tensor: Tensor, what: str) -> None:
    if tensor.dtype != torch.float32 or not bool(torch.isfinite(tensor).all()):
        raise ModelFileError(f"{what} is not all finite 32-bit numbers; train anew.")
