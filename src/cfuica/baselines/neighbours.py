"""Items by their neighbours: of ratings by residuals, of rankings by cosines or popularity alone.

Shape suffixes: p ratings or pairs, u users, i and j items, a pairs of one user to predict, r items
that the user has rated, k the nearest of these, b users of a block, m all items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from cfuica.baselines.contract import (
    UNRATED,
    BaselineSettings,
    Floats,
    Index,
    RankingBaseline,
    Shapes,
    Singles,
    TrainingData,
)
from cfuica.baselines.means import BiasSettings, UserItemBias
from cfuica.inference.similar import Similarity
from cfuica.ops.tables import SideName


class ItemNeighboursSettings(BiasSettings):
    """Settings of `ItemNeighbours`, and of the biases below it."""

    model: ClassVar[str] = "item-knn-ratings"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "neighbours": ("choice", 10, 20, 40, 80),
        "shrinkage": ("log", 10.0, 3000.0),
    }

    neighbours: int = Field(40, ge=1, description="Rated items that a prediction reads at most.")
    shrinkage: float = Field(
        800.0, ge=0, description="Lowers similarities of few common users n by n / (n + this)."
    )


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

    The defaults are for MovieLens 100K (docs/results.md). Everything is dense:
    fitting takes about 13 n_users n_items + 16 n_items² bytes (0.07 GB on MovieLens 100K, 0.55 GB
    on MovieLens 1M), and the similarities stay, 4 n_items² bytes.
    """

    name: ClassVar[str] = "item-kNN"
    finds_similar: ClassVar[tuple[SideName, ...]] = ("items",)
    settings_class = ItemNeighboursSettings
    settings: ItemNeighboursSettings

    def _fit(self, data: TrainingData) -> None:
        super()._fit(data)
        users_p, items_p, ratings_p = data.users_p, data.items_p, data.ratings_p
        rated_ui = np.zeros((data.n_users, data.n_items), dtype=np.bool_)
        rated_ui[users_p, items_p] = True
        residual_ui = np.zeros((data.n_users, data.n_items), dtype=np.float32)
        residual_ui[users_p, items_p] = ratings_p - super()._predict(users_p, items_p)
        self.similarity_ij_ = _similarity(residual_ui, rated_ui, self.settings.shrinkage)

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
        nearest_ak = np.argsort(-weights_ar, axis=1, kind="stable")[:, : self.settings.neighbours]
        weights_ak = np.take_along_axis(weights_ar, nearest_ak, axis=1).astype(np.float64)
        total_a = weights_ak.sum(axis=1)
        moves_a = (weights_ak * residual_r[nearest_ak]).sum(axis=1)
        mean_a: Floats = moves_a / np.where(total_a > 0.0, total_a, 1.0)
        return mean_a

    def _shapes(self, data: TrainingData) -> Shapes:
        return super()._shapes(data) | {"similarity_ij": (data.n_items, data.n_items)}

    def _similarity(self, axis: SideName) -> Similarity:
        is_comparable_i = self.catalogue.support(axis) > 0
        return Similarity(lambda b: self.similarity_ij_[b], is_comparable_i, UNRATED)


def _similarity(residual_ui: Singles, rated_ui: npt.NDArray[np.bool_], shrinkage: float) -> Singles:
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


class ItemPopularitySettings(BaselineSettings):
    """There is nothing to set."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "itempop"


class ItemPopularity(RankingBaseline):
    """Ranks items by how many users have had them, for all users alike."""

    name: ClassVar[str] = "ItemPop"
    settings_class = ItemPopularitySettings

    def _fit(self, data: TrainingData) -> None:
        self.count_i_ = np.bincount(data.items_p, minlength=data.n_items).astype(np.float32)

    def _scores(self, users_b: np.ndarray) -> Singles:
        return np.tile(self.count_i_, (len(users_b), 1))

    def _shapes(self, data: TrainingData) -> Shapes:
        return {"count_i": (data.n_items,)}


class WeightedHistory(RankingBaseline):
    """Scores an item by the sum of its weights with the items of the user's history.

    The weights are dense, 4 n_items² bytes (0.05 GB on MovieLens 1M)."""

    finds_similar: ClassVar[tuple[SideName, ...]] = ("items",)
    weight_ij_: Singles  # What the item i of a history gives to item j.

    def _scores(self, users_b: np.ndarray) -> Singles:
        histories = self.histories
        score_bm = np.empty((len(users_b), len(self.weight_ij_)), np.float32)
        # A sum for each user: the bits of one product for all depend on the other users.
        for row, user in enumerate(users_b.tolist()):
            own = histories.indices[slice(*histories.offsets[user : user + 2])]
            score_bm[row] = self.weight_ij_[own].sum(0)
        return score_bm

    def _shapes(self, data: TrainingData) -> Shapes:
        return {"weight_ij": (data.n_items, data.n_items)}

    def _similarity(self, axis: SideName) -> Similarity:
        return Similarity(lambda b: self.weight_ij_[b], self.catalogue.support(axis) > 0)


class ItemCosineSettings(BaselineSettings):
    """Settings of `ItemCosine`."""

    task: ClassVar[str] = "ranking"
    model: ClassVar[str] = "itemknn"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "neighbours": ("choice", 10, 20, 50, 100, 200, 400),
    }

    neighbours: int = Field(50, ge=1, description="Most similar items that an item is scored by.")


class ItemCosine(WeightedHistory):
    """Ranks items by the sum of their cosines with the items of the user's history.

    The cosine of two items is n_ij / sqrt(n_i n_j), where n_ij users have had both. An item is
    scored by those of its ``neighbours`` that are in the history. With all items as neighbours the
    scores of MovieLens 1M are little more than popularity.
    """

    name: ClassVar[str] = "ItemKNN"
    settings_class = ItemCosineSettings
    settings: ItemCosineSettings

    def _fit(self, data: TrainingData) -> None:
        common_ij = common_users(data)
        root_i = np.sqrt(np.maximum(np.diagonal(common_ij), 1.0))
        np.fill_diagonal(common_ij, 0.0)
        common_ij /= root_i[:, None]
        common_ij /= root_i
        if (neighbours := self.settings.neighbours) < data.n_items:
            least_j = np.partition(common_ij, -neighbours, axis=0)[-neighbours]
            common_ij[common_ij < least_j] = 0.0
        self.weight_ij_ = common_ij

    def _similarity(self, axis: SideName) -> Similarity:
        # A column has the neighbours of an item.
        is_comparable_i = self.catalogue.support(axis) > 0

        def neighbours(b: np.ndarray) -> Singles:
            cosine_bi = self.weight_ij_[:, b].T
            return np.where(cosine_bi > 0, cosine_bi, np.float32(np.nan))

        return Similarity(neighbours, is_comparable_i)


def common_users(data: TrainingData, block: int = 4096) -> Singles:
    """(i, j) how many users have had both items; on the diagonal how many have had the item."""
    common_ij = np.zeros((data.n_items, data.n_items), np.float32)
    # In float32 a sum of ones is exact up to 2^24 users; blocks bound the memory of dense rows.
    for start in range(0, data.n_users, block):
        offsets = data.histories.offsets[start : start + block + 1]
        own = slice(int(offsets[0]), int(offsets[-1]))
        had_ui = np.zeros((len(offsets) - 1, data.n_items), np.float32)
        had_ui[data.users_p[own] - start, data.items_p[own]] = 1.0
        common_ij += had_ui.T @ had_ui
    return common_ij
