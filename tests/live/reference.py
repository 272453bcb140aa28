"""What a live state must say: a dictionary of interactions and the equations in float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cfuica.live.cold_start_bias import DAMPING, LARGEST
from cfuica.live.live_state import LiveState
from cfuica.ops.tables import SIDES
from tests.model.reference import NONLINEARITY, Reference, matrix_of, random_cells

N_USERS, N_ITEMS, N_LABELS = 6, 5, 3
BOTH = {"users": 5, "items": 4}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
# Where a prediction is nearly certain, its variance is a small difference of 32-bit numbers.
WITH_OWN_BIAS = {"rtol": 1e-3, "atol": 1e-2}


@dataclass
class LiveReference:
    """Interactions {(user, item): label} now, and the table row of each user and item."""

    parameters: Reference
    cells: dict[tuple[int, int], int]
    rows: dict[str, list[int]]
    shared_row: dict[str, int] = field(default_factory=lambda: {"users": N_USERS, "items": N_ITEMS})
    values: np.ndarray | None = None
    """The ratings of the labels, where cold-start users and items have a bias of their own."""

    @classmethod
    def random(
        cls,
        hidden: Mapping[str, int] = BOTH,
        *,
        activation: str = "tanh",
        observed: int = 12,
        cold_start: int = 1,
        seed: int = 0,
        own_bias: bool = False,
    ) -> LiveReference:
        """A small world whose last `cold_start` users and items have the shared row."""
        parameters = Reference.random(
            N_USERS, N_ITEMS, N_LABELS, hidden, activation=activation, seed=seed
        )
        for side in parameters.sides.values():
            # Weights of one unit from tiny to large: their sums are exact on the grid only.
            scale = 2.0 ** np.random.default_rng(seed).integers(-40, 5, side["W"].shape[:2])
            side["W"][..., 0] = (side["W"][..., 0] * scale).astype(np.float32)
        cells = random_cells(N_USERS, N_ITEMS, N_LABELS, observed, seed)
        rows = {
            axis: [index if index < size - cold_start else size for index in range(size)]
            for axis, size in (("users", N_USERS), ("items", N_ITEMS))
        }
        values = np.array([1.0, 2.0, 4.0]) if own_bias else None
        return cls(parameters, cells, rows, values=values)

    def state(self, **options: int) -> LiveState:
        """The live state of these interactions, freshly made."""
        sizes = (len(self.rows["users"]), len(self.rows["items"]))
        return LiveState.of(
            self.parameters.model(),
            matrix_of(self.cells, *sizes, N_LABELS),
            {axis: np.array(self.rows[axis]) for axis in SIDES},
            values_k=self.values,
            **options,
        )

    def history(self, user: int) -> dict[int, int]:
        return {i: label for (u, i), label in self.cells.items() if u == user}

    def forget(self, axis: str, index: int) -> None:
        place = SIDES.index(axis)
        self.cells = {pair: label for pair, label in self.cells.items() if pair[place] != index}
        self.rows[axis][index] = self.shared_row[axis]

    def pair(self, user: int, item: int) -> np.ndarray:
        """(K) logits of a pair, which is left out of both sums."""
        row = self.rows["users"][user]
        others = {i: label for i, label in self.history(user).items() if i != item}
        logits = self._logits(row, others, item, without=user)
        return logits + self.own_bias(row, others, user)

    def items(self, row: int, history: Mapping[int, int], user: int = -1) -> np.ndarray:
        """(M, K) logits of all items for someone, nothing left out."""
        everything = [
            self._logits(row, history, item, without=-1) for item in range(len(self.rows["items"]))
        ]
        return np.array(everything) + self.own_bias(row, history, user)

    def own_bias(self, row: int, history: Mapping[int, int], user: int = -1) -> np.ndarray:
        """(K) what a cold-start user's own ratings, each predicted from all but itself, add."""
        is_warm = row != self.shared_row["users"]
        if self.values is None or is_warm or not history or len(self.parameters.sides) < 2:
            return np.zeros(N_LABELS)
        middle, half = (
            (self.values[-1] + self.values[0]) / 2,
            (self.values[-1] - self.values[0]) / 2,
        )
        place = (self.values - middle) / half
        above, variance = 0.0, 0.0
        for item, label in history.items():
            others = {i: other for i, other in history.items() if i != item}
            exponent = self._logits(row, others, item, without=user)
            p = np.exp(exponent - exponent.max())
            p /= p.sum()
            above += place[label] - p @ place
            variance += p @ place**2 - (p @ place) ** 2
        t = above / max(variance * (1 + DAMPING / len(history)), 1e-6)
        return np.clip(t, -LARGEST, LARGEST) * place

    def _logits(
        self, row: int, history: Mapping[int, int], item: int, *, without: int
    ) -> np.ndarray:
        raters = {u: label for (u, i), label in self.cells.items() if i == item and u != without}
        total = np.zeros(N_LABELS)
        for side, indices, member_row in (
            ("users", raters.items(), row),
            ("items", history.items(), self.rows["items"][item]),
        ):
            if side in self.parameters.sides:
                total += self._side(side, indices, member_row)
        return total

    def _side(self, side: str, context: Iterable[tuple[int, int]], member_row: int) -> np.ndarray:
        own = self.parameters.sides[side]
        sums = own["c"].copy()  # Eqns. (3), (4)
        for member, label in context:
            sums += own["W"][self.rows[side][member], label]
        hidden = NONLINEARITY[self.parameters.activation](sums)
        return own["V"][member_row] @ hidden + own["b"][member_row]  # Eqns. (5), (6)


def everything(state: LiveState) -> dict[str, np.ndarray]:
    """All that a state says: every pair, every item for everyone and an anonymous user, hidden
    vectors."""
    n_users, n_items = state.size("users"), state.size("items")
    users_p, items_p = np.divmod(np.arange(n_users * n_items), max(n_items, 1))
    profiles = state.profiles(np.arange(n_users))
    anonymous = state.anonymous(np.arange(min(n_items, 2))[::-1], np.arange(min(n_items, 2)))
    said = {
        "pairs": state.pair_logits(users_p, items_p),
        "items": state.item_logits([*profiles, anonymous]),
    }
    for name in state.network.sides:
        said[f"hidden {name}"] = state.hidden(name).copy()
    for axis in SIDES:
        said[f"support {axis}"] = state.support(axis)
        said[f"rows {axis}"] = state.rows(axis)
    for user, profile in enumerate(profiles):
        said[f"items of {user}"], said[f"labels of {user}"] = profile.items, profile.labels
        said[f"sums of {user}"] = profile.sums_h
    return said


def assert_same(state: LiveState, other: LiveState) -> None:
    """Two states say the same, bit for bit."""
    mine, theirs = everything(state), everything(other)
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        assert np.array_equal(values, theirs[name]), name


def assert_like_fresh(state: LiveState) -> None:
    """The state says what one says that is made from its interactions."""
    rows = {axis: state.rows(axis) for axis in SIDES}
    assert_same(state, state.anew(state.collected(), rows))


def assert_says(state: LiveState, reference: LiveReference) -> None:
    """The state says what the equations say."""
    n_users, n_items = state.size("users"), state.size("items")
    assert [n_users, n_items] == [len(reference.rows[axis]) for axis in SIDES]
    users_p, items_p = np.divmod(np.arange(n_users * n_items), max(n_items, 1))
    expected_pk = [
        reference.pair(user, item)
        for user, item in zip(users_p.tolist(), items_p.tolist(), strict=True)
    ]
    close = CLOSE if reference.values is None else WITH_OWN_BIAS
    np.testing.assert_allclose(state.pair_logits(users_p, items_p), expected_pk, **close)
    expected_bmk = [
        reference.items(reference.rows["users"][user], reference.history(user), user)
        for user in range(n_users)
    ]
    found_bmk = state.item_logits(state.profiles(np.arange(n_users)))
    np.testing.assert_allclose(found_bmk, expected_bmk, **close)
