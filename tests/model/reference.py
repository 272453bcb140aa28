"""Eqns. (2) to (8) of the paper and the ordinal loss of the NOTES, in plain float64.

Nothing here comes from `cfuica` except the container that `model` fills, so that tests compare two
readings of the paper. Interactions are a dictionary {(user, item): label}, labels from 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from cfuica.data.matrix import InteractionMatrix
from cfuica.model.network import LengthNormalisation, Network, Side
from cfuica.model.network import softmax as network_softmax
from cfuica.ops.tables import Pairs
from cfuica.training.rating_task import pair_contexts

Cells = Mapping[tuple[int, int], int]
Loss = Callable[[np.ndarray, int], float]

FLOOR = 1e-4

NONLINEARITY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0.0),
}


def pairs_of(users_p: np.ndarray, items_p: np.ndarray) -> Pairs:
    """Pairs by their indices; the lists of users and items are those that occur, ascending."""
    users, user_of_pair = np.unique(users_p, return_inverse=True)
    items, item_of_pair = np.unique(items_p, return_inverse=True)
    return Pairs.between(
        *(array.astype(np.int32) for array in (users, items, user_of_pair, item_of_pair))
    )


@dataclass
class Reference:
    """Stored parameters of each side, `sides["users"]["W"]` and so on.

    W, V (n + 1, K, H), c (H), b (n + 1, K); the last row is the shared one. With label
    sharing, what is used for label k is the sum of what is stored for labels 1..k, in W, V and b.
    `length_norms` are (power, typical size): a side's sum over n interactions is multiplied by
    ((typical + 10) / (n + 10)) ** power.
    """

    sides: dict[str, dict[str, np.ndarray]]
    activation: str = "tanh"
    share: bool = False
    length_norms: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def random(
        cls,
        n_users: int,
        n_items: int,
        n_labels: int,
        hidden: Mapping[str, int],
        *,
        activation: str = "tanh",
        share: bool = False,
        spread: float = 0.7,
        seed: int = 0,
        length_norms: Mapping[str, tuple[float, float]] | None = None,
    ) -> Reference:
        rng = np.random.default_rng(seed)
        others = np.random.default_rng([seed, 1])
        indices = {"users": n_users, "items": n_items}

        def real(*shape: int, rng: np.random.Generator = rng) -> np.ndarray:
            # Rounded to float32, so that the model's copy without sharing holds the same numbers.
            return rng.normal(0, spread, shape).astype(np.float32).astype(np.float64)

        def table(*shape: int) -> np.ndarray:
            return np.concatenate([real(*shape), real(1, *shape[1:], rng=others)])

        return cls(
            {
                name: {
                    "W": table(indices[name], n_labels, units),
                    "c": real(units),
                    "V": table(indices[name], n_labels, units),
                    "b": table(indices[name], n_labels),
                }
                for name, units in hidden.items()
            },
            activation,
            share,
            length_norms or {},
        )

    def used(self, side: str, letter: str) -> np.ndarray:
        stored = self.sides[side][letter]
        return stored.cumsum(1) if self.share and letter != "c" else stored

    def model(self) -> Network:
        """The same parameters as the model under test holds them."""
        sides = {}
        for name, stored in self.sides.items():
            sides[name] = Side(
                *stored["W"].shape,
                activation=self.activation,
                share=self.share,
                length_norm=LengthNormalisation(*self.length_norms.get(name, (0.0, 0.0))),
            )
            for letter, tensor in parameters_of(sides[name]).items():
                tensor.copy_(torch.from_numpy(self.used(name, letter)))
        return Network(sides)

    def logits(self, pair: tuple[int, int], uuc: Cells, iic: Cells) -> np.ndarray:
        """s^U + s^I (K) of a pair, given the interactions on its item and those of its user."""
        user, item = pair
        total = np.zeros(next(iter(self.sides.values()))["b"].shape[1])
        for side, member, context in (
            ("users", user, [(other, label) for (other, _), label in uuc.items()]),
            ("items", item, [(other, label) for (_, other), label in iic.items()]),
        ):
            if side not in self.sides:
                continue
            power, typical = self.length_norms.get(side, (0.0, 0.0))
            length_norm = ((typical + 10) / (len(context) + 10)) ** power
            sums = self.used(side, "c").copy()  # Eqns. (3), (4)
            for other, label in context:
                sums += length_norm * self.used(side, "W")[other, label]
            hidden = NONLINEARITY[self.activation](sums)
            for label in range(len(total)):  # Eqns. (5), (6)
                total[label] += self.used(side, "V")[member, label] @ hidden
                total[label] += self.used(side, "b")[member, label]
        return total

    def conditional(self, pair: tuple[int, int], before: Cells) -> np.ndarray:
        """Eqns. (2), (7): p(R_pair = k | the interactions `before` it), (K)."""
        user, item = pair
        assert pair not in before
        uuc = {(u, i): label for (u, i), label in before.items() if i == item}
        iic = {(u, i): label for (u, i), label in before.items() if u == user}
        return softmax(self.logits(pair, uuc, iic))

    def objective(self, cells: Cells) -> float:
        """Eqn. (8): the expected NLL of all interactions over all their orderings."""
        computed: dict[tuple[object, frozenset], float] = {}
        total, orderings = 0.0, 0
        for order in itertools.permutations(cells):
            orderings += 1
            for place, pair in enumerate(order):
                before = frozenset(order[:place])
                if (pair, before) not in computed:
                    p_k = self.conditional(pair, {other: cells[other] for other in before})
                    computed[pair, before] = -np.log(p_k[cells[pair]])
                total += computed[pair, before]
        return total / orderings

    def block_loss(
        self,
        cells: Cells,
        users: Collection[int],
        items: Collection[int],
        open_users: Collection[int],
        open_items: Collection[int],
        loss: Loss,
        cold: Mapping[tuple[int, int], tuple[int, int]] | None = None,
    ) -> float:
        """The sum of `loss(logits, label)` over the interactions between users and items.

        `cold` has the rows of pairs whose user or item has not its own.
        """
        cold = cold or {}
        return sum(
            loss(
                self.logits(
                    cold.get((user, item), (user, item)),
                    {(u, i): k for (u, i), k in cells.items() if i == item and u in open_users},
                    {(u, i): k for (u, i), k in cells.items() if u == user and i in open_items},
                ),
                label,
            )
            for (user, item), label in cells.items()
            if user in users and item in items
        )


def softmax(logits_k: np.ndarray) -> np.ndarray:
    e_k = np.exp(logits_k - logits_k.max())
    return e_k / e_k.sum()


def nll(logits_k: np.ndarray, label: int) -> float:
    return float(-np.log(softmax(logits_k)[label]))


def ordinal(logits_k: np.ndarray, label: int) -> float:
    p = softmax(logits_k) + FLOOR
    up = sum(np.log(p[place] / p[: place + 1].sum()) for place in range(label + 1))
    down = sum(np.log(p[place] / p[place:].sum()) for place in range(label, len(p)))
    return float(-(up + down))


def mixed(ordinal_weight: float) -> Loss:
    return lambda logits_k, label: (
        (1 - ordinal_weight) * nll(logits_k, label) + ordinal_weight * ordinal(logits_k, label)
    )


def random_cells(
    n_users: int, n_items: int, n_labels: int, observed: int, seed: int = 0
) -> dict[tuple[int, int], int]:
    """`observed` interactions at random places; some users and items may have none."""
    rng = np.random.default_rng(seed)
    places = rng.permutation(n_users * n_items)[:observed]
    return {
        (int(place // n_items), int(place % n_items)): int(rng.integers(n_labels))
        for place in places
    }


def matrix_of(cells: Cells, n_users: int, n_items: int, n_labels: int) -> InteractionMatrix:
    return InteractionMatrix.from_triplets(
        np.array([user for user, _ in cells], np.int64),
        np.array([item for _, item in cells], np.int64),
        np.array(list(cells.values()), np.int64),
        n_users=n_users,
        n_items=n_items,
        n_labels=n_labels,
    )


def predicted(
    model: Network, matrix: InteractionMatrix, users_p: np.ndarray, items_p: np.ndarray
) -> np.ndarray:
    """What the model in training predicts of pairs, (P, K)."""
    users_p, items_p = users_p.astype(np.int32), items_p.astype(np.int32)
    return probabilities(model, *pair_contexts(matrix, users_p, items_p, own_rows(matrix)))


def own_rows(matrix: InteractionMatrix) -> dict[str, np.ndarray]:
    """The table rows of users and items who all have one of their own."""
    sizes = {"users": matrix.n_users, "items": matrix.n_items}
    return {name: np.arange(size, dtype=np.int32) for name, size in sizes.items()}


@torch.no_grad()
def probabilities(model: Network, pairs: Pairs, contexts: Mapping) -> np.ndarray:
    """By the way of the product, (P, K)."""
    return network_softmax(model(pairs, model.encode(contexts)).numpy())


def parameters_of(side: Side) -> dict[str, torch.Tensor]:
    """W, c, V and b as in use, in the shapes of `Reference`; the memory of the side."""
    b = side.b.values[:, :, 0]
    return {"W": side.W.values, "c": side.c.detach(), "V": side.V.values, "b": b}


def randomised(network: Network, seed: int, spread: float = 0.5) -> Network:
    """The network with numbers everywhere, so that every path through it counts."""
    rng = np.random.default_rng(seed)
    for tensor in network.state_dict().values():
        noise = rng.normal(0, spread, tuple(tensor.shape)).astype(np.float32)
        tensor.add_(torch.from_numpy(noise))
    return network
