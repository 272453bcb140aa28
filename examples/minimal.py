"""CF-UIcA (Du et al., AAAI 2018) in plain torch, from top to bottom in the order of the paper.

The model predicts one interaction, user i rates item j, from two sets of other interactions:
    UUC (user-user correlations): what other users gave to item j;
    IIC (item-item correlations): what user i gave to other items.
Each set is summed into a hidden vector, each hidden vector gives K logits, and the two are added.
The input is ratings, not a learned vector of the user: a new rating counts without retraining.

R is the paper's behaviour matrix, N users x M items: R[i, j] = 1..K is a rating, 0 is unobserved.
Suffixes name axes: i users, j items, n either, q queries, p pairs, k labels, h hidden units.
Run `python examples/minimal.py [steps]`. The package computes the same from sparse rows.
"""

import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from cfuica.data.splits import Split
from cfuica.data.synthetic import make_world

HIDDEN, BATCH_USERS, BATCH_ITEMS = 32, 300, 150  # published: 500, 1000, 1000
STEPS, RATE = 500, 4e-2  # published: until validation stalls, 1e-3
BETA1, BETA2, EPSILON, L2, MAX_NORM, MAX_ENTRY, FLOOR = 0.9, 0.999, 1e-4, 1e-4, 5.0, 1.0, 1e-4


class Side(NamedTuple):  # the stored parameters of the UUC side (n users) or the IIC side (n items)
    W: Tensor  # (n, K, H) encoder: what "label k of n" adds to a hidden vector
    c: Tensor  # (H)
    V: Tensor  # (n, K, H) decoder: how a hidden vector speaks for label k of n
    b: Tensor  # (n, K)


class Batch(NamedTuple):  # a block of users x items, and the contexts to predict its ratings from
    users: Tensor  # (i)
    items: Tensor  # (j)
    labels_ij: Tensor
    uuc_jn: Tensor  # (j, N) what each item of the block got from users; 0 if not in the context
    iic_in: Tensor  # (i, M) what each user of the block gave to items; 0 if not in the context


def initial_side(n: int, n_labels: int, rng: np.random.Generator) -> Side:
    """Glorot-uniform W and V, and biases of zero."""
    bound = (6 / ((n + HIDDEN) * n_labels)) ** 0.5
    W, V = torch.tensor(rng.uniform(-bound, bound, (2, n, n_labels, HIDDEN)), dtype=torch.float32)
    tensors = W, torch.zeros(HIDDEN), V, torch.zeros(n, n_labels)
    return Side(*(tensor.requires_grad_() for tensor in tensors))


def used(stored_nk: Tensor) -> Tensor:
    """Label sharing: what is used for label k is the sum of what is stored for labels 1..k."""
    return stored_nk.cumsum(1)


# The model. Eqn. (1): p(R) = prod_t p(R_o(t) | R_o(<t)) for an ordering o of all entries of R.
# Eqn. (2): of the entries before (i, j) only those in its column (UUC) and its row (IIC) count.
def hidden(side: Side, context_qn: Tensor) -> Tensor:
    """Eqns. (3), (4): f(c + sum of W[n, label] over the context), (q, H). Cold start: f(c)."""
    context_qnk = one_hot(context_qn, side.b.shape[1] + 1)[:, :, 1:].float()
    return torch.tanh(torch.einsum("qnk,nkh->qh", context_qnk, used(side.W)) + side.c)


def logits(uuc: Side, iic: Side, batch: Batch) -> Tensor:
    """Eqns. (5), (6): V h + b of each side, summed as Eqn. (7) has it, (i, j, K)."""
    h_jh, h_ih = hidden(uuc, batch.uuc_jn), hidden(iic, batch.iic_in)
    V_ikh, b_ik = used(uuc.V[batch.users]), used(uuc.b[batch.users])
    V_jkh, b_jk = used(iic.V[batch.items]), used(iic.b[batch.items])
    from_uuc_ijk = torch.einsum("ikh,jh->ijk", V_ikh, h_jh) + b_ik[:, None]
    from_iic_ijk = torch.einsum("jkh,ih->ijk", V_jkh, h_ih) + b_jk[None, :]
    return from_uuc_ijk + from_iic_ijk


@torch.no_grad()
def predict(uuc: Side, iic: Side, R: Tensor) -> Tensor:
    """The expected rating of every pair given all of R, (N, M); for pairs that are not in R."""
    whole = Batch(torch.arange(R.shape[0]), torch.arange(R.shape[1]), R, R.T, R)
    p_ijk = logits(uuc, iic, whole).softmax(2)  # Eqn. (7)
    return p_ijk @ torch.arange(1.0, p_ijk.shape[2] + 1)


# Learning. Eqn. (8): the expected loss over all orderings, which predicts each rating from every
# possible part of the others. A batch draws some ratings to predict, and such parts for them.
def loss(uuc: Side, iic: Side, batch: Batch) -> Tensor:
    """The mean of a block's observed ratings. Eqn. (8) has -log p_k for label k, the experiments
    -(sum_{l<=k} log p_l / (p_1 + .. + p_l) + sum_{l>=k} log p_l / (p_l + .. + p_K)): ordinal."""
    observed = batch.labels_ij > 0
    p_pk = logits(uuc, iic, batch)[observed].softmax(1) + FLOOR
    up_pk = (p_pk / p_pk.cumsum(1)).log().cumsum(1)
    down_pk = (p_pk / p_pk.flip(1).cumsum(1).flip(1)).log().flip(1).cumsum(1).flip(1)
    return -(up_pk + down_pk).gather(1, batch.labels_ij[observed][:, None] - 1).mean()


def draw_axis(n: int, batch: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Which of n users (or items) are in the block, and the chance of the others to be context."""
    context = int(rng.integers(int(0.2 * n), n - min(int(0.2 * n), batch)))
    chosen = rng.permutation(n)[: min(batch, n - context)]
    return chosen, context / (n - len(chosen))


def draw_batch(R: Tensor, rng: np.random.Generator) -> Batch:
    """The published estimator: a random block, its complement as context, thinned by coins."""
    users, keep_users = draw_axis(R.shape[0], BATCH_USERS, rng)
    items, keep_items = draw_axis(R.shape[1], BATCH_ITEMS, rng)
    uuc_jn = R.T[items] * torch.tensor(rng.random((len(items), R.shape[0])) < keep_users)
    iic_in = R[users] * torch.tensor(rng.random((len(users), R.shape[1])) < keep_items)
    uuc_jn[:, users] = iic_in[:, items] = 0
    return Batch(torch.tensor(users), torch.tensor(items), R[users][:, items], uuc_jn, iic_in)


def adam_step(sides: list[Side], moments: list[Tensor], t: int, loss: Tensor, rate: float) -> None:
    """Step t (from 1) as published: L2 is on stored W and V; the norm of the whole gradient is
    limited, then its entries; the bias correction does not scale epsilon, as it does in torch."""
    parameters = [tensor for side in sides for tensor in side]
    penalty = L2 * sum(side.W.square().sum() + side.V.square().sum() for side in sides)
    grads = torch.autograd.grad(loss + penalty, parameters)
    scale = min(1.0, MAX_NORM / float(torch.cat([grad.flatten() for grad in grads]).norm()))
    rate *= (1 - BETA2**t) ** 0.5 / (1 - BETA1**t)
    for parameter, grad, (mean, square) in zip(parameters, grads, moments, strict=True):
        grad = (scale * grad).clamp(-MAX_ENTRY, MAX_ENTRY)
        mean.lerp_(grad, 1 - BETA1)
        square.lerp_(grad.square(), 1 - BETA2)
        parameter.data -= rate * mean / (square.sqrt() + EPSILON)


def main(steps: int) -> None:
    torch.set_num_threads(1)  # over tensors this small, more threads mostly wait
    world, rng = make_world(), np.random.default_rng(0)
    user, item, rating, _ = (torch.tensor(column.to_numpy()) for column in world.table.frame)
    user, item, split = user - 1, item - 1, Split.random(len(rating), valid=0.0)
    train, test = split.train, split.test
    R = torch.zeros(int(user.max()) + 1, int(item.max()) + 1, dtype=torch.long)
    R[user[train], item[train]] = rating[train].long()
    sides = uuc, iic = [initial_side(n, int(rating.max()), rng) for n in R.shape]
    moments = [torch.zeros(2, *tensor.shape) for side in sides for tensor in side]
    for step in range(1, steps + 1):
        now = loss(uuc, iic, draw_batch(R, rng))
        adam_step(sides, moments, step, now, RATE * 0.25 ** (3 * step // (steps + 1)))  # annealed
        if step % 50 == 0:
            print(f"step {step}: loss {now.item():.3f}")
    predicted = predict(uuc, iic, R)[user[test], item[test]]
    guesses = predicted, rating[train].mean(), torch.tensor(world.expected[test])
    scores = [(guess - rating[test]).square().mean() ** 0.5 for guess in guesses]
    print("test RMSE {:.4f}; global mean {:.4f}, best possible {:.4f}".format(*scores))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
