"""Worlds for explanations, and what the model predicts in them: in float64, one pair at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from cfuica.artifact import Artifact
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.live.live_model import LiveModel
from cfuica.live.live_state import LiveState
from cfuica.model.calibration import Calibration
from cfuica.settings import RatingSettings
from tests.model.reference import NONLINEARITY, Reference, matrix_of, random_cells, softmax

SIDE_SETS = {"both": {"users": 3, "items": 5}, "users": {"users": 4}, "items": {"items": 3}}

# Interactions of one axis: index of the other to label.
Context = dict[int, int]


@dataclass
class World:
    """A model and interactions {(user, item): label}; some users and items have the shared row."""

    truth: Reference
    cells: dict[tuple[int, int], int]
    rows: dict[str, np.ndarray]
    n_labels: int

    @classmethod
    def random(
        cls,
        n_users: int = 6,
        n_items: int = 7,
        n_labels: int = 4,
        *,
        observed: int = 24,
        sides: str = "both",
        cold_start: int = 1,
        activation: str = "tanh",
        seed: int = 0,
    ) -> World:
        truth = Reference.random(
            n_users, n_items, n_labels, SIDE_SETS[sides], activation=activation, seed=seed
        )
        rows = {"users": np.arange(n_users), "items": np.arange(n_items)}
        rng = np.random.default_rng(seed)
        for axis, own in rows.items():
            own[rng.permutation(len(own))[:cold_start]] = len(own)
            if axis not in truth.sides:
                own[:] = 0
        cells = random_cells(n_users, n_items, n_labels, observed, seed)
        return cls(truth, cells, rows, n_labels)

    @property
    def values_k(self) -> np.ndarray:
        """Unevenly spaced, so that labels cannot stand in for ratings."""
        return np.cumsum(np.arange(1, self.n_labels + 1)).astype(np.float32) - 2

    def state(self) -> LiveState:
        n_users, n_items = (len(self.rows[axis]) for axis in ("users", "items"))
        matrix = matrix_of(self.cells, n_users, n_items, self.n_labels)
        return LiveState.of(self.truth.model(), matrix, self.rows)

    def live(self, *, has_titles: bool = True, calibration: Calibration | None = None) -> LiveModel:
        """A live model with the ids user-0, ... and i0, ..."""
        users, items = (
            Vocabulary(pl.Series([f"{role}{index}" for index in range(len(self.rows[axis]))]))
            for axis, role in (("users", "user-"), ("items", "i"))
        )
        titles = [f"Title of {index}" for index in range(items.size)]
        return LiveModel(
            Artifact(
                settings=RatingSettings(),
                networks={"warm": self.truth.model()},
                calibrations={"warm": calibration or Calibration()},
                users=users,
                items=items,
                rows=self.rows,
                interactions=matrix_of(self.cells, users.size, items.size, self.n_labels),
                scale=LabelScale(tuple(self.values_k.tolist())),
                item_metadata=pl.DataFrame({"item": items.ids, "title": titles})
                if has_titles
                else None,
            )
        )

    def history(self, user: int, item: int) -> Context:
        """What the user did on other items."""
        return {i: label for (u, i), label in self.cells.items() if u == user and i != item}

    def raters(self, user: int | None, item: int) -> Context:
        """What other users did on the item."""
        return {u: label for (u, i), label in self.cells.items() if i == item and u != user}

    def expected(self, user: int | None, item: int, history: Context, raters: Context) -> float:
        """Eqns. (3) to (7) and the mean, from just these contexts; no user is a cold-start user or
        item."""
        total_k = np.zeros(self.n_labels)
        shared = len(self.rows["users"])
        for side, row, context in (
            ("users", shared if user is None else self.rows["users"][user], raters),
            ("items", self.rows["items"][item], history),
        ):
            if side in self.truth.sides:
                sums_h = self.truth.used(side, "c").copy()
                for member, label in context.items():
                    sums_h += self.truth.used(side, "W")[self.rows[side][member], label]
                hidden_h = NONLINEARITY[self.truth.activation](sums_h)
                total_k += self.truth.used(side, "V")[row] @ hidden_h
                total_k += self.truth.used(side, "b")[row]
        return float(softmax(total_k) @ self.values_k.astype(np.float64))


def without(context: Context, *indices: int) -> Context:
    return {member: label for member, label in context.items() if member not in indices}
