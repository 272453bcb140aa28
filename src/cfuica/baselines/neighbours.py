"""Item-based nearest neighbours on the residuals of user and item biases.

Shape suffixes: p ratings or pairs, u users, i and j items, a pairs of one user to predict, r items
that the user has rated, k the nearest of these.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cfuica.baselines.contract import UNRATED, Floats, Index, at_least, not_negative
from cfuica.baselines.means import UserItemBias
from cfuica.inference.similar import Similarity
from cfuica.ops.tables import SideName

_Singles = npt.NDArray[np.float32]


class ItemNeighbours(UserItemBias):
    """Predicts user + item bias, moved by how the user rated the items most like this one.

    With e = r - bias, the residual of :class:`UserItemBias`, and n_ij the number of users who
    rated both i and j,

        similarity  s_ij = cosine of e_.i and e_.j over those users * n_ij / (n_ij + shrinkage),
        prediction  bias_ui + sum_j s_ij e_uj / sum_j s_ij,

    over the ``neighbours`` items j of largest positive similarity among those the user has rated,
    inside the range of the ratings. (The cosine of residuals is Pearson's correlation with biases
    in the place of means.) ``shrinkage`` lowers similarities of few common users; where it exceeds
    every n_ij, neighbours count in proportion to n_ij. A user who has rated nothing similar gets
    the bias.

    The defaults are for MovieLens 100K (``benchmarks/ml100k.py --tune``). Everything is dense:
    fitting takes about 13 n_users n_items + 16 n_items² bytes (0.07 GB on MovieLens 100K, 0.55 GB
    on MovieLens 1M), and the similarities stay, 4 n_items² bytes.
    """

    name: ClassVar[str] = "item-kNN"
    finds_similar: ClassVar[tuple[SideName, ...]] = ("items",)

    def __init__(
        self, neighbours: int = 40, *, shrinkage: float = 800.0, bias_damping: float = 5.0
    ) -> None:
        self.neighbours = at_least(1, "neighbours", neighbours)
        self.shrinkage = not_negative("shrinkage", shrinkage)
        self.bias_damping = not_negative("bias_damping", bias_damping)
        super().__init__(bias_damping, bias_damping)

    def _fit(
        self, users_p: Index, items_p: Index, ratings_p: Floats, *, n_users: int, n_items: int
    ) -> None:
        super()._fit(users_p, items_p, ratings_p, n_users=n_users, n_items=n_items)
        rated_ui = np.zeros((n_users, n_items), dtype=np.bool_)
        rated_ui[users_p, items_p] = True
        residual_ui = np.zeros((n_users, n_items), dtype=np.float32)
        residual_ui[users_p, items_p] = ratings_p - super()._predict(users_p, items_p)
        self.similarity_ij_ = _similarity(residual_ui, rated_ui, self.shrinkage)

    def _predict(self, users_p: Index, items_p: Index) -> Floats:
        moves_p = np.zeros(len(users_p))
        order_p = np.argsort(users_p, kind="stable")
        users, begins = np.unique(users_p[order_p], return_index=True)
        # The piece before the first user is empty.
        for user, pairs_a in zip(users, np.split(order_p, begins)[1:], strict=True):
            moves_p[pairs_a] = self._moves(int(user), items_p[pairs_a])
        return np.clip(super()._predict(users_p, items_p) + moves_p, *self.range_)

    def _moves(self, user: int, items_a: Index) -> Floats:
        """How far the neighbours move the user's predictions away from the bias (a)."""
        rated_r, ratings_r = self.catalogue.history(user)
        residual_r = ratings_r - super()._predict(np.full_like(rated_r, user), rated_r)
        weights_ar = np.maximum(self.similarity_ij_[np.ix_(items_a, rated_r)], 0.0)
        # Stable: among equally similar items the first ones count.
        nearest_ak = np.argsort(-weights_ar, axis=1, kind="stable")[:, : self.neighbours]
        weights_ak = np.take_along_axis(weights_ar, nearest_ak, axis=1).astype(np.float64)
        total_a = weights_ak.sum(axis=1)
        moves_a = (weights_ak * residual_r[nearest_ak]).sum(axis=1)
        mean_a: Floats = moves_a / np.where(total_a > 0.0, total_a, 1.0)
        return mean_a

    def _shapes(self, *, n_users: int, n_items: int) -> dict[str, tuple[int, ...]]:
        learned = super()._shapes(n_users=n_users, n_items=n_items)
        return learned | {"similarity_ij": (n_items, n_items)}

    def _similarity(self, axis: SideName) -> Similarity:
        is_comparable_i = self.catalogue.support(axis) > 0
        return Similarity(lambda b: self.similarity_ij_[b], is_comparable_i, UNRATED)


def _similarity(
    residual_ui: _Singles, rated_ui: npt.NDArray[np.bool_], shrinkage: float
) -> _Singles:
    """Shrunk cosines (i, j); 0 where no user rated both, and of an item with itself."""
    present_ui = rated_ui.astype(np.float32)
    # Squares of i's residuals, summed over those who rated j; of j's over i in the transpose.
    squares_ij = np.square(residual_ui).T @ present_ui
    norm_ij = np.sqrt(squares_ij * squares_ij.T)
    del squares_ij
    similarity_ij = residual_ui.T @ residual_ui
    np.divide(similarity_ij, norm_ij, out=similarity_ij, where=norm_ij > 0.0)
    common_ij = present_ui.T @ present_ui
    np.divide(common_ij, common_ij + np.float32(shrinkage), out=common_ij, where=common_ij > 0.0)
    similarity_ij *= common_ij
    # The prediction of a training pair must not use its own rating.
    np.fill_diagonal(similarity_ij, 0.0)
    return similarity_ij
