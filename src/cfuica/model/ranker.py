"""Scores of items for users: the conditional of Eqn. (7) with one label, for whole catalogues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cfuica.data.matrix import CompressedRows
from cfuica.kernels import products
from cfuica.kernels.threads import run_rows
from cfuica.model.conditional import CoAutoregressive
from cfuica.model.histories import Histories
from cfuica.model.pairs import Bag


@dataclass(frozen=True)
class Ranker:
    """Users and items as vectors whose inner product, with the items' bias, is the activation.

    What a user did is in one half of both vectors, what was done on an item in the other half:
    s = V_I[item] . h_I(user) + b_I[item] + V_U[user] . h_U(item). The user's own bias is left out;
    it is the same for all items.
    """

    users_nh: np.ndarray
    items_mh: np.ndarray
    bias_m: np.ndarray

    @classmethod
    def of(
        cls,
        model: CoAutoregressive,
        histories: Histories,
        by_item: CompressedRows,
        user_rows: np.ndarray,
    ) -> Ranker:
        """`histories` are those of the users, of whom each has a row (N,) of V; `by_item` is what
        was done on every item, by the rows of W of those who did it."""
        items = by_item.n_rows
        users_parts, items_parts = [], []
        bias_m = np.zeros(items, np.float32)
        for name, side in model.sides.items():
            if name == "items":
                last = torch.from_numpy(histories.last_moments)
                encoded = side.encode(histories).values_qh
                users_parts.append(side.deepened(encoded[last.to(encoded.device)]).cpu().numpy())
                items_parts.append(side.decoder_nkh[:items, 0].cpu().numpy())
                bias_m = side.decoder_bias_nk[:items, 0].cpu().numpy()
            else:
                bag = Bag(by_item.offsets, by_item.members)
                users_parts.append(side.decoder_nkh[torch.from_numpy(user_rows), 0].cpu().numpy())
                items_parts.append(side.encode(bag).values_qh.cpu().numpy())
        return cls(np.concatenate(users_parts, 1), np.concatenate(items_parts, 1), bias_m)

    def scores(self, users_b: np.ndarray) -> np.ndarray:
        """(B, M) of every item for some users."""
        scores_bm: np.ndarray = self.users_nh[users_b] @ self.items_mh.T
        scores_bm += self.bias_m
        return scores_bm

    def candidate_scores(self, users_b: np.ndarray, items_bc: np.ndarray) -> np.ndarray:
        """(B, C) of each user's own candidates."""
        scores_bc = np.empty(items_bc.shape, np.float32)
        users_bh = self.users_nh[users_b]
        run_rows(products.chosen, len(users_b), self.items_mh, items_bc, users_bh, scores_bc)
        scores_bc += self.bias_m[items_bc]
        return scores_bc
