"""A scorer whose scores are there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class GivenScores:
    """Scores (N, M) of all users and items; remembers the largest block it was asked for."""

    scores_nm: np.ndarray
    blocks: list[int] = field(default_factory=list)

    def scores(self, users_b: np.ndarray) -> np.ndarray:
        self.blocks.append(len(users_b))
        return self.scores_nm[users_b].astype(np.float32)

    def candidate_scores(self, users_b: np.ndarray, items_bc: np.ndarray) -> np.ndarray:
        return np.take_along_axis(self.scores(users_b), items_bc.astype(np.int64), axis=1)
