"""Scores of all items for many users at once, by matrix products.

A matrix product has the logits of a block of users and items in a fraction of the time that they
take pair by pair. Its last bits depend on the other users of the block. So `recommend` takes from
here only which items may be among the best, and scores these exactly: a user's answer is the same
alone and among others.

Each side and label is one product, of the users' vectors and the items'. An expected rating depends
on the differences of logits alone, so it takes one product less. The products run in numpy, whose
OpenBLAS was 1.8 times as fast as torch's BLAS on an AMD EPYC, on our own threads, a range of items
on each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from cfuica.live.live_state import ITEMS_PER_PASS, LiveState
from cfuica.ops import topk
from cfuica.ops.runtime import one_blas_thread, run_lanes

# Fewer users than this are as fast pair by pair.
FEWEST_USERS = 8
# Items of a product: its results stay in the cache until they are read.
ITEMS_PER_PRODUCT = 512
# The rounding error of an inner product, in units of the product of the norms of its vectors: some
# ten times what the orders of summation that BLAS and our kernels have make of it.
ROUNDING = 2.0**-21
# By how much softmax and mean of `expected_of_planes` move a logit.
EXP_ERROR = 2.0**-18


@dataclass(frozen=True, eq=False)
class UserBlock:
    """The factors of B users in the logits of a network: V or hidden vectors of each side, (K, B,
    H) or (1, B, H), and the users' biases (B, K)."""

    state: LiveState
    sides: tuple[tuple[str, np.ndarray], ...]
    bias_bk: np.ndarray

    @classmethod
    def of(cls, state: LiveState, users: np.ndarray) -> UserBlock:
        """Of users by index."""
        network, rows = state.network, state.rows("users")[users]
        bias_bk = np.zeros((len(users), state.n_labels), np.float32)
        sides: list[tuple[str, np.ndarray]] = []
        hidden = None
        if network.items is not None:
            hidden = state.contexts["items"].hidden(users)
            sides.append(("items", hidden.numpy()[None]))
        if network.users is not None:
            own_bkh, own_bk = network.users.decoder(rows)
            bias_bk += own_bk
            if network.bilinear is not None and hidden is not None:
                with torch.no_grad():
                    own_bkh = own_bkh + network.bilinear.query_rows(hidden).numpy()
            sides.append(("users", np.ascontiguousarray(own_bkh.transpose(1, 0, 2))))
        cold = np.flatnonzero(state.is_cold("users", users))
        for place, profile in zip(cold, state.profiles(users[cold]), strict=True):
            bias_bk[place] += state.own_bias(profile)[0]
        return cls(state, tuple(sides), bias_bk)

    def expected(self, items: np.ndarray, values_k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(B, M) expected ratings of these items (ascending indices), and by how much the logits of
        each user (B,) may be wrong."""
        out_bm = np.empty((len(self.bias_bk), len(items)), np.float32)

        def finish(planes_skbm: np.ndarray, bias_km: np.ndarray, part: slice) -> None:
            topk.expected_of_planes(planes_skbm, bias_bk, bias_km, values_k, out_bm[:, part])

        bias_bk = self.bias_bk[:, 1:] - self.bias_bk[:, :1]
        return out_bm, self._multiplied(items, finish, less_the_first=True)

    def logits(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(B, M, K) logits of these items (ascending indices), and by how much those of each user
        (B,) may be wrong."""
        out_bmk = np.empty((len(self.bias_bk), len(items), self.state.n_labels), np.float32)

        def finish(planes_skbm: np.ndarray, bias_km: np.ndarray, part: slice) -> None:
            topk.logits_of_planes(planes_skbm, self.bias_bk, bias_km, out_bmk[:, part])

        return out_bmk, self._multiplied(items, finish)

    def _multiplied(
        self,
        items: np.ndarray,
        finish: Callable[[np.ndarray, np.ndarray, slice], None],
        *,
        less_the_first: bool = False,
    ) -> np.ndarray:
        """Give `finish` the products (S, K, B, m) and the biases (K, m) of each part of the items;
        returns the errors that rounding may make.

        With `less_the_first` they are those of the labels but the first, less that of the first."""
        state = self.state
        (n_users, n_labels), n_sides = self.bias_bk.shape, len(self.sides)
        n_products = n_labels - less_the_first
        item_rows = state.rows("items")
        # Of whole vectors, because exact scores are computed from these.
        norms_sb = [np.sqrt(np.square(own).sum(2).max(0)) for _, own in self.sides]

        def by_label(vectors_knh: np.ndarray) -> np.ndarray:
            """(K, n, H) the vectors to multiply; one for all labels stays."""
            if not less_the_first or len(vectors_knh) < n_labels:
                return vectors_knh
            relative_knh: np.ndarray = vectors_knh[1:] - vectors_knh[:1]
            return relative_knh

        users_skbh = [by_label(own) for _, own in self.sides]

        def multiply(start: int, stop: int, hidden_mh: np.ndarray | None) -> np.ndarray:
            """Of the items of a part; the largest errors of each user."""
            bias_km = np.zeros((n_labels, stop - start), np.float32)
            error_b: np.ndarray = np.abs(self.bias_bk).max(1)
            planes_skbm = np.empty((n_sides, n_products, n_users, stop - start), np.float32)
            for s, (name, _) in enumerate(self.sides):
                if name == "items":
                    side = state.network.sides["items"]
                    items_mkh, bias_mk = side.decoder(_run(item_rows[items[start:stop]]))
                    bias_km += bias_mk.T
                    error_b = error_b + np.abs(bias_mk).max()
                else:
                    assert hidden_mh is not None
                    items_mkh = hidden_mh[:, None]
                users_kbh, items_kmh = users_skbh[s], by_label(items_mkh.transpose(1, 0, 2))
                for k in range(n_products):
                    of_users_bh = users_kbh[k if len(users_kbh) > 1 else 0]
                    of_items_mh = items_kmh[k if len(items_kmh) > 1 else 0]
                    np.matmul(of_users_bh, of_items_mh.T, out=planes_skbm[s, k])
                squares_mk = np.einsum("mkh,mkh->mk", items_mkh, items_mkh)
                error_b = error_b + norms_sb[s] * np.sqrt(squares_mk.max())
            if less_the_first:
                bias_km = bias_km[1:] - bias_km[:1]
            finish(planes_skbm, bias_km, slice(start, stop))
            return error_b

        errors: list[np.ndarray] = [np.zeros(n_users)]
        with one_blas_thread():
            for first in range(0, len(items), ITEMS_PER_PASS):
                last = min(first + ITEMS_PER_PASS, len(items))
                hidden_mh, chosen = None, _run(items[first:last])
                if "users" in state.contexts:
                    context = state.contexts["users"]
                    hidden_mh = (
                        context.hidden_between(chosen.start, chosen.stop)
                        if isinstance(chosen, slice)
                        else context.hidden(chosen)
                    ).numpy()
                starts = range(first, last, ITEMS_PER_PRODUCT)
                stops = [*starts[1:], last]
                lanes = [
                    (one, end, None if hidden_mh is None else hidden_mh[one - first : end - first])
                    for one, end in zip(starts, stops, strict=True)
                ]
                errors += run_lanes(multiply, lanes)
        largest_b: np.ndarray = np.max(errors, axis=0)
        return ROUNDING * largest_b


def _run(indices: np.ndarray) -> np.ndarray | slice:
    """The indices, as a slice where each is one more than the last, which copies nothing."""
    if len(indices) and (np.diff(indices) == 1).all():
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices
