"""What a fitted model needs to answer: parameters, ids, and the behaviours it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix
from cfuica.data.timeline import Timeline
from cfuica.model.calibration import Calibration

if TYPE_CHECKING:
    from cfuica.model.conditional import CoAutoregressive
    from cfuica.model.pairs import SideName


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
