"""Linear models of a user's history.

Shape suffixes: i and j items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from cfuica.baselines.contract import BaselineSettings, TrainingData
from cfuica.baselines.neighbours import WeightedHistory, common_users


class EaseSettings(BaselineSettings):
    """Settings of `Ease`."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "ease"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"l2": ("log", 10.0, 5000.0)}

    l2: float = Field(500.0, gt=0, description="L2 penalty on the weights between items.")


class Ease(WeightedHistory):
    """Ranks items by X B, where X is the matrix of ones of all histories, and B minimises

        |X - X B|^2 + l2 |B|^2 with a diagonal of 0,

    so every item is predicted from all others. With P = (X'X + l2 I)^-1 that is
    B_ij = -P_ij / P_jj. Beyond the paper's own tables.

    Steck: Embarrassingly Shallow Autoencoders for Sparse Data, WWW 2019.
    """

    name: ClassVar[str] = "EASE"
    settings_class = EaseSettings
    settings: EaseSettings

    def _fit(self, data: TrainingData) -> None:
        gram_ij = common_users(data).astype(np.float64)
        gram_ij[np.diag_indices_from(gram_ij)] += self.settings.l2
        inverse_ij = np.linalg.inv(gram_ij)
        inverse_ij /= -np.diagonal(inverse_ij).copy()
        np.fill_diagonal(inverse_ij, 0.0)
        self.weight_ij_ = inverse_ij.astype(np.float32)
