"""Prediction for validation: rating distributions of pairs, and scores of a whole catalogue.

`answer` is the paper's deterministic prediction: the contexts of a pair are all other observed
interactions with the item (UUC) and of the user (IIC). A pair that is itself observed is left out
of both sums. `Ranker` scores every item for a user with the one logit of implicit feedback.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cfuica.data.matrix import Csr, InteractionMatrix, LabelledCsr
from cfuica.model.calibration import softmax
from cfuica.model.network import Network
from cfuica.model.pairs import Histories, Pairs, SideName
from cfuica.ops import running_sums, sampling
from cfuica.ops.runtime import run_rows


@dataclass(frozen=True)
class PairContexts:
    """Pairs to predict and the contexts of both sides; reusable while the data stay."""

    pairs: Pairs
    bags: dict[SideName, Csr]

    @classmethod
    def of(
        cls,
        matrix: InteractionMatrix,
        users_p: np.ndarray,
        items_p: np.ndarray,
        *,
        cold_users: bool = False,
    ) -> PairContexts:
        """For pairs of int32 indices, conditioned on all of `matrix`.

        With `cold_users` the users have the shared row of cold-start users instead of their own.
        """
        seen = matrix.by_user
        entry_p = running_sums.find(seen.offsets[:-1], seen.sizes, seen.indices, users_p, items_p)
        # An observed pair gets queries of its own, encoded without it; all others share one query
        # per user and one per item.
        users, user_of_pair, without_item = _queries(users_p, items_p, entry_p >= 0)
        items, item_of_pair, without_user = _queries(items_p, users_p, entry_p >= 0)
        rows = np.full_like(users, matrix.n_users) if cold_users else users
        return cls(
            Pairs.between(rows, items, user_of_pair, item_of_pair),
            {
                "users": _bag(matrix.by_item, items, without_user, matrix.n_labels),
                "items": _bag(matrix.by_user, users, without_item, matrix.n_labels),
            },
        )


def _queries(
    own_p: np.ndarray, other_p: np.ndarray, observed_p: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The user or item of each query, each pair's query, and which index a query leaves out (-1:
    none)."""
    shared, query_of_pair = np.unique(own_p, return_inverse=True)
    query_of_pair = query_of_pair.astype(np.int32)
    observed = np.flatnonzero(observed_p)
    query_of_pair[observed] = len(shared) + np.arange(len(observed), dtype=np.int32)
    ids = np.concatenate((shared, own_p[observed])).astype(np.int32)
    without = np.concatenate((np.full(len(shared), -1), other_p[observed])).astype(np.int32)
    return ids, query_of_pair, without


def _bag(rows: LabelledCsr, ids: np.ndarray, without: np.ndarray, n_labels: int) -> Csr:
    return Csr(
        *sampling.whole_contexts(rows.offsets, rows.indices, rows.labels, ids, without, n_labels)
    )


def answer(model: Network, pair_contexts: PairContexts) -> np.ndarray:
    """p(R = k) of Eqn. (7) for each pair, (P, K) float32."""
    logits_pk = model.logits(pair_contexts.pairs, model.hidden(pair_contexts.bags))
    return softmax(logits_pk.cpu().numpy())


@dataclass(frozen=True)
class Ranker:
    """Vectors of users and items whose inner product, plus the items' bias, is the logit.

    The vectors concatenate both sides: s = V_I[item] . h_I(user) + b_I[item] + V_U[user] .
    h_U(item). The user's bias is left out, for it is the same for all items.
    """

    users_nh: np.ndarray
    items_mh: np.ndarray
    bias_m: np.ndarray

    @classmethod
    def of(
        cls,
        model: Network,
        histories: Histories,
        by_item: LabelledCsr,
        user_rows: np.ndarray,
    ) -> Ranker:
        """From the users' histories and their rows of V, `user_rows` (N,), and from the users (rows
        of W) who interacted with each item, `by_item`."""
        items = by_item.n_rows
        user_vectors, item_vectors = [], []
        bias_m = np.zeros(items, np.float32)
        for name, side in model.sides.items():
            if name == "items":
                last = torch.from_numpy(histories.last_positions)
                encoded = side.encode(histories).values_qh
                user_vectors.append(
                    side.with_residual_layer(encoded[last.to(encoded.device)]).cpu().numpy()
                )
                item_vectors.append(side.decoder_nkh[:items, 0].cpu().numpy())
                bias_m = side.decoder_bias_nk[:items, 0].cpu().numpy()
            else:
                bag = Csr(by_item.offsets, by_item.indices)
                user_vectors.append(side.decoder_nkh[torch.from_numpy(user_rows), 0].cpu().numpy())
                item_vectors.append(side.encode(bag).values_qh.cpu().numpy())
        return cls(np.concatenate(user_vectors, 1), np.concatenate(item_vectors, 1), bias_m)

    def scores(self, users_b: np.ndarray) -> np.ndarray:
        """(B, M): the scores of every item for B users."""
        scores_bm: np.ndarray = self.users_nh[users_b] @ self.items_mh.T
        scores_bm += self.bias_m
        return scores_bm

    def candidate_scores(self, users_b: np.ndarray, items_bc: np.ndarray) -> np.ndarray:
        """(B, C): the scores of each user's own candidates."""
        scores_bc = np.empty(items_bc.shape, np.float32)
        users_bh = self.users_nh[users_b]
        run_rows(running_sums.chosen, len(users_b), self.items_mh, items_bc, users_bh, scores_bc)
        scores_bc += self.bias_m[items_bc]
        return scores_bc
