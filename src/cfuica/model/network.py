"""The network of the paper: p(R_ij = k | contexts) from two sides (Eqns. 2 to 7).

The *users* side (UUC) has a row of parameters for each user. It encodes an item from the other
users' interactions with it. The *items* side (IIC) has a row for each item. It encodes a user from
that user's interactions with other items. Both are the class `Side`, as the model is symmetric.
Both decode logits, which are added; their softmax over the K labels is the conditional
distribution.

There is one way through it, for training, validation, prediction and explanation, on any device:

    sums    the rows of W of a context, added up: `Side.sums` of a minibatch, or a live state's
    hidden  f(c + sums), and the residual layer where there is one: `Side.hidden`
    logits  V[row] . hidden + b[row] of both sides: `Network.forward`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cfuica.model.layers import LearnedDecay, MemberLayers, make_layer
from cfuica.model.shared_rows import SharedRows
from cfuica.ops import decode, encode, reference, running_sums, runtime, topk
from cfuica.ops.encode import ActivationName
from cfuica.ops.runtime import run_rows
from cfuica.ops.tables import Bags, Histories, Pairs, RowTable, SideName, SidePairs
from cfuica.settings import CommonSettings, RankingSettings, RatingSettings

# The bias of a constant unit: tanh(2) is 0.96, and its gradient so small that it hardly moves.
CONSTANT = 2.0
# The offsets of the warm and of the cold-start network, both chosen on validation data. The larger
# one shrinks short histories; it improved predictions for cold-start users at every length.
OFFSET, COLD_START_OFFSET = 10.0, 40.0


@dataclass(frozen=True)
class LengthNormalisation:
    """The factor of a sum of n interactions: ((typical + offset) / (n + offset)) ** power.

    The paper's sums grow with the number of interactions, and f saturates for long histories. A
    power of 1 makes f read something like a mean, a power of 0 is the paper's sum. A sum of
    `typical` interactions stays as it is, so that initial values and learning rates mean the same
    for every power."""

    power: float = 0.0
    typical: float = 0.0
    offset: float = OFFSET

    def of(self, sizes: np.ndarray) -> np.ndarray:
        """The factors (Q,) float32 of sums of so many interactions (Q,)."""
        if self.power == 0:
            return np.ones(len(sizes), np.float32)
        factors: np.ndarray = ((self.typical + self.offset) / (sizes + self.offset)) ** self.power
        return factors.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Keep:
    """The dropout masks of one side's queries, scaled: of its hidden units (Q, H) and of the units
    of its residual layer (Q, U), if any."""

    hidden_qh: np.ndarray
    layer_qu: np.ndarray | None = None


class Side(nn.Module):
    """W, c (encoder) and V, b (decoder) of one side: n rows, K labels, H hidden units.

    There is a row for each user or item and, last, the shared row of all cold-start ones. Users, or
    items, may share rows of W and V (`shared`); each has a row of b. The tables hold the columns
    *in use*. With label sharing the learned and penalised parameters are
    their differences over labels (`reference.differences`). Only the initial values and the
    optimiser depend on that, prediction does not.
    """

    def __init__(
        self,
        rows: int,
        labels: int,
        hidden: int,
        *,
        activation: ActivationName = "tanh",
        share: bool = False,
        length_norm: LengthNormalisation | None = None,
        decay: LearnedDecay | None = None,
        layer: MemberLayers | None = None,
        shared: SharedRows | None = None,
    ) -> None:
        super().__init__()
        self.shared = shared  # None: W and V have the rows of b.
        table_rows = rows if shared is None else shared.n_table_rows
        self.W = RowTable(runtime.zeros(table_rows, labels, hidden), share=share)
        self.c = nn.Parameter(torch.zeros(hidden))
        self.V = RowTable(runtime.zeros(table_rows, labels, hidden), share=share)
        self.b = RowTable(runtime.zeros(rows, labels, 1), share=share)
        self.decay, self.layer = decay, layer
        self.activation: ActivationName = activation
        self.length_norm = length_norm or LengthNormalisation()

    @property
    def tables(self) -> dict[str, RowTable]:
        """W, V and b by name."""
        return {"W": self.W, "V": self.V, "b": self.b}

    @property
    def n_rows(self) -> int:
        """The rows of b, that of cold-start users or items included."""
        return len(self.b.values)

    def table_rows(self, rows: np.ndarray) -> np.ndarray:
        """The rows of W and V of users or items, by their rows of b."""
        return rows if self.shared is None else self.shared.row_of[rows]

    def table_row(self, row: int) -> int:
        """The row of W and V of one user or item."""
        return row if self.shared is None else int(self.shared.row_of[row])

    @property
    def n_own_rows(self) -> int:
        """The rows of b of one user or item each; those of clusters follow, and the shared one."""
        return self.n_rows - 1 - (0 if self.shared is None else self.shared.n_clusters)

    @property
    def shared_row(self) -> int:
        """The row of cold-start users or items."""
        return self.b.shared_row

    @property
    def n_hidden(self) -> int:
        """H."""
        return len(self.c)

    def initialise(self, generator: torch.Generator) -> None:
        """Stored columns Glorot-uniform over (n + H) * K; biases and the shared row stay zero."""
        for table in (self.W, self.V):
            rows, labels, hidden = table.values.shape
            bound = (6.0 / ((rows - 1 + hidden) * labels)) ** 0.5
            own_nkh = table.values[:-1].uniform_(-bound, bound, generator=generator)
            if table.share:
                own_nkh.copy_(reference.accumulate(own_nkh))
        if self.layer is not None:
            self.layer.initialise(generator)

    @torch.no_grad()
    def make_constant(self, unit: int) -> None:
        """Initialise a hidden unit to about 1 whatever the context."""
        self.W.values[:, :, unit] = 0.0
        self.c[unit] = CONSTANT

    def share_the_mean(self, rows: np.ndarray, tables: tuple[str, ...] = ("W", "V", "b")) -> None:
        """Set the shared row to the mean of these rows, in the tables of these names."""
        for name in tables:
            table = self.tables[name].array
            own = np.unique(rows if name == "b" else self.table_rows(rows))
            if len(own) and own[-1] == len(table) - 1:
                continue  # users or items with few interactions have trained it
            # numpy sums in one order whatever the number of threads; torch does not.
            table[-1] = table[own].mean(0, dtype=np.float64)

    def average_clusters(self, is_warm: np.ndarray) -> None:
        """Set the bias of each cluster, which a new user or item of it has, to the mean of its
        members with interactions, (n,) by a mask."""
        if self.shared is None or not self.shared.n_clusters:
            return
        bias_nk, members = self.b.array[:, :, 0], np.flatnonzero(is_warm)
        clusters = slice(self.n_own_rows, self.n_rows - 1)
        row_of, n_rows = self.shared.row_of, self.shared.n_table_rows
        count_c = np.bincount(row_of[members], minlength=n_rows)[row_of[clusters]]
        for bias_n in bias_nk.T:
            total_c = np.bincount(row_of[members], bias_n[members], n_rows)[row_of[clusters]]
            bias_n[clusters] = np.where(count_c, total_c / np.maximum(count_c, 1), bias_n[-1])

    def sums(self, context: Bags | Histories) -> Tensor:
        """The sums of Eqns. (3) and (4) for the queries of bags, or for the positions of
        histories, (Q, H)."""
        if isinstance(context, Histories):
            return encode.scan(self.W, context, None if self.decay is None else self.decay())
        norm_q = self.length_norm.of(context.sizes) if self.length_norm.power else None
        return encode.bag_sums(self.W, context, norm_q)

    def hidden(self, sums_qh: Tensor, keep: Keep | None = None) -> Tensor:
        """Eqns. (3) and (4): f(c + sums), dropout, and the residual layer. (Q, H)"""
        hidden_qh = encode.activate(sums_qh, self.c, self.activation)
        if keep is not None:
            hidden_qh = hidden_qh * torch.from_numpy(keep.hidden_qh).to(hidden_qh.device)
        if self.layer is None:
            return hidden_qh
        keep_qu = None
        if keep is not None and keep.layer_qu is not None:
            keep_qu = torch.from_numpy(keep.layer_qu).to(hidden_qh.device)
        layered_qh: Tensor = self.layer(hidden_qh, keep_qu)
        return layered_qh

    def decode(self, pairs: SidePairs, hidden_qh: Tensor) -> Tensor:
        """s of Eqns. (5) and (6): V[row] . h[query] + b[row] of all pairs. (P, K)"""
        in_table = pairs
        if self.shared is not None:
            in_table = pairs.in_rows(self.shared.row_of, distinct=torch.is_grad_enabled())
        return decode.decode(self.V, in_table, hidden_qh) + decode.row_bias(self.b, pairs)

    def decoder(self, rows: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """V (n, K, H) and b (n, K) of these rows, on the CPU, for products of many pairs."""
        in_table = rows if self.shared is None else self.shared.row_of[rows]
        return self.V.array[in_table], self.b.array[rows, :, 0]


class BilinearInteraction(nn.Module):
    """h_U(item)' A_k h_I(user), added to the logit of label k: a row of V that is computed from the
    user's history. A (H, K, U) is zero at first, which gives the paper's logits.

    In the paper, interactions of other users count for a user only through that user's own row of
    V. Cold-start users and items have no trained one and gain by this; warm ones do not, so only
    the cold-start network has it.
    """

    def __init__(self, *, hidden_users: int, hidden_items: int, labels: int) -> None:
        super().__init__()
        self.A = nn.Parameter(runtime.zeros(hidden_items, labels, hidden_users))

    def query_rows(self, hidden_qh: Tensor) -> Tensor:
        """(Q, K, U): the rows of V that A computes from hidden vectors (Q, H) of the items side."""
        rows_qr = decode.linear(hidden_qh, self.A.flatten(1), hidden_qh.new_zeros(()))
        return rows_qr.view(len(hidden_qh), *self.A.shape[1:])

    def forward(
        self, users: SidePairs, items: SidePairs, hidden_users: Tensor, hidden_items: Tensor
    ) -> Tensor:
        """h_U(item)' A_k h_I(user) of each pair, (P, K): a user's query has a row of V."""
        crossed = SidePairs(
            rows=np.arange(len(hidden_items), dtype=np.int32),
            query_of_pair=users.query_of_pair,
            row_of_pair=items.query_of_pair,
            by_row=items.by_query,
            by_query=users.by_query,
        )
        return decode.pair_products(self.query_rows(hidden_items), crossed, hidden_users)


class Network(nn.Module):
    """p(R_ij = k | other users' interactions with j, user i's interactions with other items).

    A network with one side only is a relative of CF-NADE: item-based (UUC) or user-based (IIC).
    """

    def __init__(
        self, sides: Mapping[SideName, Side], bilinear: BilinearInteraction | None = None
    ) -> None:
        super().__init__()
        # Not a ModuleDict, which refuses the key "items".
        self.users, self.items = sides.get("users"), sides.get("items")
        self.bilinear = bilinear  # Not in the paper; needs both sides.

    @classmethod
    def of(
        cls,
        settings: CommonSettings,
        rows: Mapping[SideName, int],
        n_labels: int,
        *,
        members: int = 1,
        cold_start: bool = False,
        typical: Mapping[SideName, float] | None = None,
        shared: Mapping[SideName, SharedRows] | None = None,
    ) -> Network:
        """A network of zeros in the shape of these settings, for so many rows of each side;
        `shared` are the rows of W and V that some share.

        `members` are those of an ensemble, side by side in one network. `typical` is the usual
        number of interactions in a context of each side, for length normalisation.
        """
        rating = settings if isinstance(settings, RatingSettings) else None
        ranking = settings if isinstance(settings, RankingSettings) else None
        sides: dict[SideName, Side] = {}
        for name, units in hidden_units(settings, cold_start=cold_start).items():
            own, hidden = name == "items", units * members
            offset = COLD_START_OFFSET if cold_start else OFFSET
            sides[name] = Side(
                rows[name],
                n_labels,
                hidden,
                activation=settings.activation,
                share=rating is not None and rating.share_labels,
                length_norm=LengthNormalisation(
                    rating.length_normalisation if rating else 0.0,
                    (typical or {}).get(name, 0.0),
                    offset,
                ),
                decay=LearnedDecay(hidden, members)
                if own and ranking and ranking.learned_decay
                else None,
                layer=make_layer(ranking, hidden, members)
                if own and ranking and ranking.residual_units
                else None,
                shared=(shared or {}).get(name),
            )
        if not (cold_start and rating and rating.bilinear_rate > 0 and len(sides) == 2):
            return cls(sides)
        return cls(
            sides,
            BilinearInteraction(
                hidden_users=sides["users"].n_hidden,
                hidden_items=sides["items"].n_hidden,
                labels=n_labels,
            ),
        )

    def initialise(self, seed: int) -> Network:
        """Draw the initial parameters; returns self."""
        generator = torch.Generator().manual_seed(seed)
        for side in self.sides.values():
            side.initialise(generator)
            if self.bilinear is not None:
                # A constant unit on each side makes the bilinear interaction contain a bias that is
                # computed from one history alone, for users or items without any interaction.
                side.make_constant(0)
        return self

    @property
    def sides(self) -> dict[SideName, Side]:
        """The sides that the network has: "users" (UUC), "items" (IIC)."""
        sides: dict[SideName, Side | None] = {"users": self.users, "items": self.items}
        return {name: side for name, side in sides.items() if side is not None}

    @property
    def tables(self) -> dict[str, RowTable]:
        """The row tables by name: `users.W` and so on."""
        return {
            f"{name}.{key}": table
            for name, side in self.sides.items()
            for key, table in side.tables.items()
        }

    @property
    def n_labels(self) -> int:
        """K."""
        return next(iter(self.sides.values())).b.values.shape[1]

    @property
    def device(self) -> torch.device:
        return next(iter(self.sides.values())).b.values.device

    def parameter_count(self) -> int:
        """All numbers that are learned."""
        return sum(tensor.numel() for tensor in self.state_dict().values())

    def encode(
        self,
        contexts: Mapping[SideName, Bags | Histories],
        keeps: Mapping[SideName, Keep] | None = None,
    ) -> dict[SideName, Tensor]:
        """Eqns. (3) and (4): the hidden vectors (Q, H) of each side's contexts; `keeps` are the
        masks of dropout, in training."""
        return {
            name: self.encode_side(name, contexts[name], (keeps or {}).get(name))
            for name in self.sides
        }

    def encode_side(
        self, name: SideName, contexts: Bags | Histories, keep: Keep | None = None
    ) -> Tensor:
        """(Q, H) hidden vectors of one side's contexts."""
        side = self.sides[name]
        return side.hidden(side.sums(contexts), keep)

    def forward(self, pairs: Pairs, hidden: Mapping[SideName, Tensor]) -> Tensor:
        """The logits s^U + s^I of each pair, Eqns. (5) and (6), and the bilinear interaction.
        (P, K)"""
        decoded = [
            side.decode(pairs.seen_by(name), hidden[name]) for name, side in self.sides.items()
        ]
        if self.bilinear is not None:
            decoded.append(
                self.bilinear(pairs.users, pairs.items, hidden["users"], hidden["items"])
            )
        return sum(decoded[1:], decoded[0])

    def factors(
        self,
        users: np.ndarray,
        items: np.ndarray,
        hidden: Mapping[SideName, Tensor],
        n_positions: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The logits of a catalogue with K = 1, as products: queries (Q, H), items (M, H) and
        by_user (U, M), where queries[q] . items[m] + by_user[user of q, m] is the logit of item m
        at position q of these users (table rows, distinct). The bias of the user is left out, for
        it is the same for all items."""
        like = next(iter(self.sides.values())).b.values
        by_user_um = like.new_zeros(len(users), len(items))
        # A network without the items side has queries of no units.
        queries_qh, items_mh = (by_user_um.new_zeros(n, 0) for n in (n_positions, len(items)))
        if self.items is not None:
            queries_qh = hidden["items"]
            items_mh = decode.gather(self.items.V, items)[:, 0]  # rankings share no rows
            by_user_um = by_user_um + decode.gather(self.items.b, items)[:, 0, 0]
        if self.users is not None:
            own_uh = decode.gather(self.users.V, users)[:, 0]
            by_user_um = by_user_um + own_uh @ hidden["users"].T
        return queries_qh, items_mh, by_user_um

    def user_vectors(self, rows: np.ndarray, hidden_items: Tensor | None) -> np.ndarray:
        """(U, H) vectors of users, by their table rows and hidden vectors; see `Ranker`."""
        parts = [] if hidden_items is None else [hidden_items.cpu().numpy()]
        if self.users is not None:
            parts.append(self.users.V.values[:, 0].cpu().numpy()[self.users.table_rows(rows)])
        return np.concatenate(parts, 1)

    def item_vectors(self, rows: np.ndarray, hidden_users: Tensor | None) -> np.ndarray:
        """(M, H) vectors of items, by their table rows and hidden vectors; see `Ranker`."""
        parts = []
        if self.items is not None:
            parts = [self.items.V.values[:, 0].cpu().numpy()[self.items.table_rows(rows)]]
        if hidden_users is not None:
            parts.append(hidden_users.cpu().numpy())
        return np.concatenate(parts, 1)

    def item_bias(self, rows: np.ndarray) -> np.ndarray:
        """(M,) float32 biases of items by their table rows."""
        if self.items is None:
            return np.zeros(len(rows), np.float32)
        bias_m: np.ndarray = self.items.b.values[:, 0, 0].cpu().numpy()[rows]
        return bias_m


def hidden_units(settings: CommonSettings, *, cold_start: bool = False) -> dict[SideName, int]:
    """The hidden units of each side that the settings' model has."""
    units: dict[SideName, int] = {"users": settings.hidden_users, "items": settings.hidden_items}
    if cold_start and isinstance(settings, RatingSettings):
        units = dict.fromkeys(units, settings.cold_start_units)
    return units if settings.sides == "both" else {settings.sides: units[settings.sides]}


@dataclass(frozen=True, eq=False)
class Ranker:
    """Vectors of users and items whose inner product, plus the items' bias, is the logit (K = 1).

    The vectors concatenate both sides: s = V_I[item] . h_I(user) + b_I[item] + V_U[user] .
    h_U(item). The user's bias is left out, for it is the same for all items.
    """

    users_nh: np.ndarray
    items_mh: np.ndarray
    bias_m: np.ndarray

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


def softmax(logits_pk: np.ndarray) -> np.ndarray:
    """Eqn. (7): the softmax over labels of each pair's logits, (P, K)."""
    shifted_pk = np.exp(logits_pk - logits_pk.max(1, keepdims=True))
    normalised: np.ndarray = shifted_pk / shifted_pk.sum(1, keepdims=True)
    return normalised


def expected_rating(logits_bmk: np.ndarray, values_k: np.ndarray) -> np.ndarray:
    """The mean rating (B, M) under the softmax of the logits."""
    out_bm = np.empty(logits_bmk.shape[:2], np.float32)
    run_rows(topk.expected, len(out_bm), logits_bmk, values_k, out_bm)
    return out_bm
