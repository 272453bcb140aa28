"""Losses and gradients by the torch reference and autograd: for any device, and for tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cfuica.model.layers import activate
from cfuica.model.network import BILINEAR, Network
from cfuica.model.pairs import SideName
from cfuica.model.side import PAPERS, Side
from cfuica.ops import reference
from cfuica.ops.reference import bernoulli_loss, mixed_loss
from cfuica.training.batches import Block
from cfuica.training.gradients import Gradients, SideGradients, apply_dropout


def autograd_loss_and_gradients(
    model: Network,
    block: Block,
    *,
    factor: float,
    ordinal_weight: float | None,
    share: bool,
) -> tuple[float, Gradients]:
    """What `block_loss_and_gradients` computes."""

    def loss(leaf: Network) -> Tensor:
        hidden, queries = _hidden(leaf, block), {}
        logits_pk = torch.zeros(block.pairs.size, leaf.n_labels, device=leaf.device)
        for name, side in leaf.sides.items():
            pairs = block.pairs.seen_by(name)
            queries[name] = _indices(pairs.query_of_pair, leaf)
            logits_pk = logits_pk + reference.decode(
                side.decoder_nkh,
                side.decoder_bias_nk,
                _indices(pairs.row_of_pair, leaf),
                hidden[name][queries[name]],
            )
        if leaf.bilinear is not None:
            rows_qku = reference.bilinear(hidden["items"], leaf.bilinear.table_hku)
            logits_pk = logits_pk + torch.einsum(
                "pku,pu->pk", rows_qku[queries["items"]], hidden["users"][queries["users"]]
            )
        labels_p = _indices(block.labels, leaf)
        if ordinal_weight is None:
            return bernoulli_loss(logits_pk, labels_p).sum() * factor
        return mixed_loss(logits_pk, labels_p, ordinal_weight).sum() * factor

    return _by_autograd(model, loss, share=share)


def autograd_catalogue(model: Network, block: Block, *, factor: float) -> tuple[float, Gradients]:
    """What `catalogue_loss_and_gradients` computes."""

    def loss(leaf: Network) -> Tensor:
        hidden, device = _hidden(leaf, block), leaf.device
        choice = _indices(block.pairs.items.indices, leaf)
        logits_pm = torch.zeros(block.pairs.size, len(choice), device=device)
        if "items" in leaf.sides:
            side = leaf.sides["items"]
            positions_p = _indices(block.pairs.items.query_of_pair, leaf)
            logits_pm = logits_pm + side.decoder_bias_nk[choice, 0]
            deep_qh = _with_residual_layer(side, hidden["items"], block)
            logits_pm = logits_pm + deep_qh[positions_p] @ side.decoder_nkh[choice, 0].T
        if "users" in leaf.sides:
            users_p = _indices(block.pairs.users.row_of_pair, leaf)
            own_ph = leaf.sides["users"].decoder_nkh[users_p, 0]
            logits_pm = logits_pm + own_ph @ hidden["users"].T
        columns_p = _indices(block.pairs.users.query_of_pair, leaf)
        others_pm = torch.zeros_like(logits_pm)  # added to the logits of items that are no target
        if block.correction_m is not None:
            others_pm = others_pm + torch.from_numpy(block.correction_m).to(device)
        positions = block.pairs.items.query_of_pair
        if block.seen is not None:
            pairs, columns = block.seen.at(positions)
            others_pm[_indices(pairs, leaf), _indices(columns, leaf)] = -torch.inf
        # All targets of one position keep their logits.
        together = _indices(np.nonzero(positions[:, None] == positions[None, :]), leaf)
        is_chosen_pm = torch.zeros_like(logits_pm, dtype=torch.bool)
        is_chosen_pm[together[0], columns_p[together[1]]] = True
        logits_pm = torch.where(is_chosen_pm, logits_pm, logits_pm + others_pm)
        return functional.cross_entropy(logits_pm, columns_p, reduction="sum") * factor

    return _by_autograd(model, loss, share=False)


def _hidden(leaf: Network, block: Block) -> dict[SideName, Tensor]:
    """The hidden vectors of each side after dropout, (Q, H)."""
    return {
        name: apply_dropout(
            activate(side.sums(block.contexts[name].bag), side.activation), block.keeps.get(name)
        )
        for name, side in leaf.sides.items()
    }


def _with_residual_layer(side: Side, hidden_qh: Tensor, block: Block) -> Tensor:
    """`Side.with_residual_layer` with dropout of the layer's units."""
    if side.residual_tensors is None:
        return hidden_qh
    into_hu, bias_u, back_uh = side.residual_tensors
    inner_qu = torch.relu(hidden_qh @ into_hu + bias_u)
    return hidden_qh + apply_dropout(inner_qu, block.keep_layer_qu) @ back_uh


def _indices(values: object, leaf: Network) -> Tensor:
    return torch.from_numpy(np.asarray(values)).to(leaf.device, torch.int64)


def _by_autograd(
    model: Network, loss: Callable[[Network], Tensor], *, share: bool
) -> tuple[float, Gradients]:
    activation = next(iter(model.sides.values())).activation
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in model.tensors().items()}
    total = loss(Network.of_tensors(leaves, activation, model.length_norms))
    found = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
    gradient_of = dict(zip(leaves, found, strict=True))

    gradients: Gradients = {}
    for name, side in model.sides.items():
        grads = {key: gradient_of[f"{name}.{key}"] for key in side.tensors()}
        inner = sum(
            float((grads[key].double() * side.tensors()[key]).sum())
            for key in ("encoder_nkh", "decoder_nkh")
        )
        if share:
            for key in ("encoder_nkh", "decoder_nkh", "decoder_bias_nk"):
                grads[key] = reference.stored_gradient(grads[key])
        gradients[name] = SideGradients(
            grads["encoder_nkh"],
            grads["encoder_bias_h"],
            grads["decoder_nkh"],
            grads["decoder_bias_nk"],
            np.arange(len(grads["decoder_nkh"]), dtype=np.int32),
            sum(float(grad.double().square().sum()) for grad in grads.values()),
            inner,
            more={key: grad for key, grad in grads.items() if key not in PAPERS},
        )
    if model.bilinear is not None:
        gradients["items"].bilinear_hku = grad = gradient_of[BILINEAR]
        gradients["items"].squares += float(grad.double().square().sum())
    return float(total.detach()), gradients
