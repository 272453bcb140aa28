"""What a fitted model needs to answer: parameters, ids, and the behaviours it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap
from cfuica.data.labels import LabelScale
from cfuica.data.matrix import BehaviourMatrix
from cfuica.model.calibration import Calibration

if TYPE_CHECKING:
    from cfuica.model.conditional import CoAutoregressive
    from cfuica.model.pairs import SideName


@dataclass(frozen=True)
class Predictor:
    """A network, and what corrects its distributions."""

    network: CoAutoregressive
    calibration: Calibration = field(default_factory=Calibration)


@dataclass(frozen=True)
class Knowledge:
    """A model as it was fitted or loaded, or as it is after what it observed."""

    known: Predictor
    """Answers where both the user and the item are known, and for all where it is alone."""
    strangers: Predictor | None
    """Answers where one of them is a stranger."""
    users: IdMap
    items: IdMap
    scale: LabelScale
    behaviours: BehaviourMatrix
    rows: dict[SideName, np.ndarray]
    """(n,) int32: the row of the parameters that each user and each item has. The last row of all
    is that of strangers, those whom training did not know."""
    item_table: pl.DataFrame | None = None
    """`item`, `title` and perhaps more columns, one row per item in index order."""
    card: dict[str, Any] = field(default_factory=dict)

    @property
    def network(self) -> CoAutoregressive:
        """The network of those who are known."""
        return self.known.network

    def ids(self, axis: SideName) -> IdMap:
        """The ids of the users or of the items."""
        return self.users if axis == "users" else self.items
