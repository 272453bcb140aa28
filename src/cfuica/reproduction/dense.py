"""The training step in dense torch, in two forms, for comparison with the sparse kernels.

`DenseAuthors` is the authors' form, `DenseBest` the fastest dense form. Both hold the *stored*
columns (see `Side`) as leaves of an autograd graph, take the same `Block` as the trainer and are
tested against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from cfuica.model.network import LengthNormalisation, Network
from cfuica.ops import reference
from cfuica.ops.reference import activate, mixed_loss
from cfuica.ops.tables import Bags, SideName
from cfuica.settings import RatingSettings
from cfuica.training.batches import Block

# The tensors of a side with label sharing, and those with the penalty.
SHARED = ("W", "V", "b")
PENALISED = ("W", "V")

Leaves = dict[str, Tensor]


class _Dense:
    """Stored parameters as leaves, by side and by the names of the paper."""

    # Whether the input, and not W, has the labels 1..k of a context, in memory that is kept.
    shortcuts = False

    def __init__(self, model: Network, settings: RatingSettings) -> None:
        self.settings = settings
        self.activation_of = {name: side.activation for name, side in model.sides.items()}
        self.sides: dict[SideName, Leaves] = {}
        self.inputs: dict[SideName, _Input] = {}
        for name, side in model.sides.items():
            self.inputs[name] = _Input(
                side.W.values.shape,
                side.length_norm,
                share=settings.share_labels and self.shortcuts,
                keep=self.shortcuts,
            )
            used = {"W": side.W.values, "c": side.c.detach(), "V": side.V.values}
            used["b"] = side.b.values[:, :, 0]
            self.sides[name] = {
                key: (
                    reference.differences(tensor) if self._shares(key) else tensor.clone()
                ).requires_grad_()
                for key, tensor in used.items()
            }

    def _shares(self, key: str) -> bool:
        return self.settings.share_labels and key in SHARED

    def leaves(self) -> Iterator[tuple[str, Tensor]]:
        """(name within its side, leaf)."""
        for leaves in self.sides.values():
            yield from leaves.items()

    def _hidden(self, name: SideName, used: Leaves, block: Block) -> Tensor:
        """The hidden vectors of one side's queries, (Q, H)."""
        bag = block.contexts[name]
        assert isinstance(bag, Bags), "these forms know no order in time"
        sums_qh = torch.addmm(used["c"], self.inputs[name].fill(bag), used["W"].flatten(0, 1))
        return activate(sums_qh, self.activation_of[name])

    def _mixed(self, logits_pk: Tensor, block: Block, factor: float) -> Tensor:
        labels_p = torch.from_numpy(block.labels).long()
        return mixed_loss(logits_pk, labels_p, self.settings.ordinal_weight).sum() * factor


class DenseAuthors(_Dense):
    """The step as the authors wrote it for a GPU, line by line in torch.

    Contexts are one-hot matrices (Q, n * K) and encoding is their product with W; decoding
    gathers V for every observed pair, (P, K, H); label sharing accumulates the stored columns
    inside the graph; the penalty is part of the loss; Adam is a series of elementwise operations.
    """

    def __init__(self, model: Network, settings: RatingSettings) -> None:
        super().__init__(model, settings)
        self.steps = 0
        self.moments = [
            (torch.zeros_like(leaf), torch.zeros_like(leaf)) for _, leaf in self.leaves()
        ]

    def loss(self, block: Block, factor: float) -> Tensor:
        """`factor` times the sum of the pairs' losses, without the penalty. A scalar."""
        logits_pk = torch.zeros(())
        for name, leaves in self.sides.items():
            used = {
                key: reference.accumulate(leaf) if self._shares(key) else leaf
                for key, leaf in leaves.items()
            }
            hidden_qh = self._hidden(name, used, block)
            pairs = block.pairs.seen_by(name)
            rows_p = torch.from_numpy(pairs.row_of_pair).long()
            hidden_ph = hidden_qh[torch.from_numpy(pairs.query_of_pair).long()]
            logits_pk = logits_pk + reference.decode(used["V"], rows_p, hidden_ph)
            logits_pk = logits_pk + used["b"][rows_p]
        return self._mixed(logits_pk, block, factor)

    def step(self, block: Block, factor: float) -> float:
        """One update at the settings' first rate. Returns the loss without the penalty."""
        settings = self.settings
        loss = self.loss(block, factor)
        penalty = torch.zeros(())
        for key, leaf in self.leaves():
            if key in PENALISED:
                penalty = penalty + settings.l2 * leaf.square().sum()
        leaves = [leaf for _, leaf in self.leaves()]
        grads = torch.autograd.grad(loss + penalty, leaves)
        norm = float(sum(float(grad.square().sum()) for grad in grads)) ** 0.5
        limited = settings.max_norm is not None and norm > settings.max_norm
        scale = (settings.max_norm or 0.0) / norm if limited else 1.0
        self.steps += 1
        rate = settings.learning_rate * (
            (1 - settings.beta2**self.steps) ** 0.5 / (1 - settings.beta1**self.steps)
        )
        with torch.no_grad():
            for leaf, grad, (mean, square) in zip(leaves, grads, self.moments, strict=True):
                scaled = grad * scale
                if settings.max_entry is not None:
                    scaled = scaled.clamp(-settings.max_entry, settings.max_entry)
                updated = reference.adam(
                    leaf,
                    mean,
                    square,
                    scaled,
                    rate=rate,
                    beta1=settings.beta1,
                    beta2=settings.beta2,
                    epsilon=settings.epsilon,
                )
                leaf.copy_(updated)
        return float(loss.detach())


class DenseBest(_Dense):
    """The best dense form we could find in eager torch; every shortcut favours it.

    - Encoding is still one dense product, but label sharing moves from the weights to the input:
      a context with label k has ones at the labels 1..k, so W needs no accumulation, forward or
      backward. The input's memory is kept between steps and only its ones are cleared.
    - Decoding is one product of all hidden vectors with V of the block's table rows,
      (Q, H) x (H, G * K); the observed pairs are then selected, and their K logits
      accumulated in place of V and b.
    - `torch.optim.Adam(fused=True)` with the penalty as its weight decay.

    Its update is near ours, not equal: fused Adam scales epsilon by the bias correction, the
    penalty stays outside the limit of the gradient's norm, and entries are not limited (one pass
    over memory less).
    """

    shortcuts = True

    def __init__(self, model: Network, settings: RatingSettings) -> None:
        super().__init__(model, settings)
        groups: list[dict[str, Any]] = [
            {"params": [leaf], "weight_decay": 2 * settings.l2 if key in PENALISED else 0.0}
            for key, leaf in self.leaves()
        ]
        self._optimiser = torch.optim.Adam(
            groups,
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            fused=True,
        )

    def loss(self, block: Block, factor: float) -> Tensor:
        """`factor` times the sum of the pairs' losses, without the penalty. A scalar."""
        parts_pk = [self._side_logits(name, leaves, block) for name, leaves in self.sides.items()]
        stored_pk = parts_pk[0] if len(parts_pk) == 1 else parts_pk[0] + parts_pk[1]
        used_pk = reference.accumulate(stored_pk) if self.settings.share_labels else stored_pk
        return self._mixed(used_pk, block, factor)

    def step(self, block: Block, factor: float) -> float:
        """One update at the settings' first rate. Returns the loss without the penalty."""
        loss = self.loss(block, factor)
        loss.backward()
        if self.settings.max_norm is not None:
            leaves = [leaf for _, leaf in self.leaves()]
            clip_grad_norm_(leaves, self.settings.max_norm, foreach=True)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _side_logits(self, name: SideName, leaves: Leaves, block: Block) -> Tensor:
        """One side's addend of the stored columns' logits, (P, K)."""
        pairs, hidden_qh = block.pairs.seen_by(name), self._hidden(name, leaves, block)
        indices_g = torch.from_numpy(pairs.rows)
        columns_gkh = leaves["V"].index_select(0, indices_g)
        groups, labels, _ = columns_gkh.shape
        whole_qc = hidden_qh @ columns_gkh.flatten(0, 1).T
        # A table row of one side is a query of the other.
        other = block.pairs.seen_by("items" if name == "users" else "users")
        cells_p = pairs.query_of_pair.astype(np.int64) * groups + other.query_of_pair
        observed_pk = whole_qc.view(-1, labels).index_select(0, torch.from_numpy(cells_p))
        return observed_pk + leaves["b"].index_select(0, torch.from_numpy(pairs.row_of_pair))


class _Input:
    """The dense input of one side, (Q, n * K): the query's length normalisation, 1 in the paper, at
    a context's labels 1..k if they share parameters, else at k alone."""

    def __init__(
        self, shape_nkh: torch.Size, length_norm: LengthNormalisation, *, share: bool, keep: bool
    ) -> None:
        self._length_norm, self._keep = length_norm, keep
        self._indices, self._labels = shape_nkh[:2]
        ones_kk = torch.ones(self._labels, self._labels)
        self._code_kk = ones_kk.tril() if share else ones_kk.diag().diag()
        self._memory_ck = torch.zeros(0, self._labels)
        self._filled_e = torch.zeros(0, dtype=torch.int64)

    def fill(self, bag: Bags) -> Tensor:
        """The input of the bag's queries; overwrites the one given before."""
        cells = bag.n_rows * self._indices
        if cells > len(self._memory_ck) or not self._keep:
            self._memory_ck = torch.zeros(cells, self._labels)
        else:
            self._memory_ck.index_fill_(0, self._filled_e, 0.0)
        query_e = np.repeat(np.arange(bag.n_rows), bag.sizes)
        row_e, label_e = np.divmod(bag.entries, self._labels)
        self._filled_e = torch.from_numpy(query_e * self._indices + row_e)
        code_ek = self._code_kk.index_select(0, torch.from_numpy(label_e))
        code_ek *= torch.from_numpy(self._length_norm.of(bag.sizes)[query_e])[:, None]
        self._memory_ck.index_copy_(0, self._filled_e, code_ek)
        return self._memory_ck[:cells].view(bag.n_rows, self._indices * self._labels)
