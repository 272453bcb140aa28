"""What a fitted model needs to answer: parameters, ids, and the behaviours it reads.

The parameters of a saved model, checked: the kernels trust shapes, rows and types, so none may
be left to a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix, Timeline
from cfuica.errors import ModelFileError
from cfuica.model.calibration import Calibration
from cfuica.model.layers import NO_GAIN, OFFSET, STRANGERS_OFFSET, Bridge, Gain
from cfuica.model.network import BRIDGE
from cfuica.model.pairs import SideName
from cfuica.model.side import Side
from cfuica.settings import CommonSettings, RankingSettings, Settings

if TYPE_CHECKING:
    from cfuica.model.network import CoAutoregressive


@dataclass(frozen=True)
class Predictor:
    """A network, and what corrects its distributions."""

    network: CoAutoregressive
    calibration: Calibration = field(default_factory=Calibration)


@dataclass(frozen=True, kw_only=True)
class CommonKnowledge:
    """What every model knows, as it was fitted or loaded, or after what it observed."""

    users: IdMap
    items: IdMap
    rows: dict[SideName, np.ndarray]
    """(n,) int32: the row of the parameters that each user and each item has. The last row of all
    is that of strangers, those whom training did not know."""
    item_table: pl.DataFrame | None = None
    """`item`, `title` and perhaps more columns, one row per item in index order."""
    card: dict[str, Any] = field(default_factory=dict)

    def ids(self, axis: SideName) -> IdMap:
        """The ids of the users or of the items."""
        return self.users if axis == "users" else self.items


@dataclass(frozen=True, kw_only=True)
class Knowledge(CommonKnowledge):
    """What a rating model knows."""

    known: Predictor
    """Answers where both the user and the item are known, and for all where it is alone."""
    strangers: Predictor | None
    """Answers where one of them is a stranger."""
    scale: LabelScale
    behaviours: BehaviourMatrix

    @property
    def network(self) -> CoAutoregressive:
        """The network of those who are known."""
        return self.known.network


@dataclass(frozen=True, kw_only=True)
class RankingKnowledge(CommonKnowledge):
    """What a ranking model knows."""

    network: CoAutoregressive
    timeline: Timeline
    """The behaviours, each user's in time order."""
    has_times: bool
    """Whether the data had times; else its order is that of time."""


STRANGERS = "strangers."
"""What the names of the strangers' network begin with."""


@dataclass(frozen=True, eq=False)
class SavedTensors:
    """The tensors of a file by name, the rows that users and items ask for, and the card."""

    path: Path
    tensors: dict[str, Tensor]
    rows: dict[SideName, np.ndarray]
    card: dict[str, Any]

    def sides_of_rating(
        self, settings: Settings, labels: int, *, strangers: bool = False
    ) -> dict[SideName, Side]:
        """The sides of the network of the known, or of that of strangers."""
        units = _units(settings)
        if strangers:
            units = dict.fromkeys(units, settings.strangers)
        offset = STRANGERS_OFFSET if strangers else OFFSET
        sides: dict[SideName, Side] = {}
        for name in units:
            size = self.card["typical_sizes"][name]
            sides[name] = self._side(
                name,
                settings,
                _shapes(labels, units[name]),
                start=f"{STRANGERS if strangers else ''}{name}.",
                gain=Gain.restored(settings.size_power, size, offset),
            )
        return sides

    def sides_of_ranking(self, settings: RankingSettings) -> dict[SideName, Side]:
        """The sides of a network with one label: that something was done."""
        sides: dict[SideName, Side] = {}
        for name, units in _units(settings).items():
            shapes = _shapes(1, units)
            if name == "items" and settings.memory:
                shapes["log_times_h"] = (units,)
            if name == "items" and settings.layer:
                more = settings.layer * settings.members
                shapes |= {"into_hu": (units, more), "bias_u": (more,), "back_uh": (more, units)}
            sides[name] = self._side(name, settings, shapes, start=f"{name}.", gain=NO_GAIN)
        return sides

    def bridge(self, sides: dict[SideName, Side]) -> Bridge:
        """That between the sides of the strangers' network."""
        table = self.tensors.get(f"{STRANGERS}{BRIDGE}")
        _, labels, units = sides["users"].encoder_nkh.shape
        expected = (sides["items"].encoder_nkh.shape[2], labels, units)
        found = None if table is None else tuple(table.shape)
        if table is None or found != expected:
            raise ModelFileError(
                f"{self.path}: found a bridge of shape {found}, expected {expected}; copy the "
                f"folder again."
            )
        _check_numbers(table, f"{self.path}: {BRIDGE}")
        return Bridge(table)

    def _side(
        self,
        name: SideName,
        settings: CommonSettings,
        shapes: dict[str, tuple[int, ...]],
        *,
        start: str,
        gain: Gain,
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
        _check_rows(n, where, self.rows[name])
        return Side(**own, activation=settings.activation, gain=gain)


def _units(settings: CommonSettings) -> dict[SideName, int]:
    """Hidden units of each side that the model has."""
    units: dict[SideName, int] = {
        "users": settings.hidden_users * settings.members,
        "items": settings.hidden_items * settings.members,
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


def _check_rows(n: int, where: str, rows: np.ndarray) -> None:
    """Whether a table of n rows has all that are asked for, and none that nobody can have."""
    if not int(rows.max(initial=-1)) < n <= len(rows) + 1:  # the last one is shared
        raise ModelFileError(
            f"{where}: found {n} rows for {len(rows)} ids, of which they have up to number "
            f"{rows.max(initial=-1)}; copy the folder again."
        )


def _check_numbers(tensor: Tensor, what: str) -> None:
    if tensor.dtype != torch.float32 or not bool(torch.isfinite(tensor).all()):
        raise ModelFileError(f"{what} is not all finite 32-bit numbers; train anew.")
