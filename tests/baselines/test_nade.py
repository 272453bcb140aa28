from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

import cfuica
from cfuica.baselines import ItemCfNade, UserCfNade, UserItemBias
from cfuica.baselines.nade import BETA1, BETA2, EPSILON, CfNade
from cfuica.errors import SettingsError
from cfuica.ops import reference
from tests.baselines.held_out import demo_rmse
from tests.baselines.resuming import assert_resumes
from tests.contract import (
    UNSEEN_ITEM,
    UNSEEN_USER,
    VOCABULARY,
    RatingBaselineContract,
    fitted,
    frame,
    predicted,
    small_world,
)

TINY = {"hidden": 5, "epochs": 4, "batch": 16, "average": 0.5, "learning_rate": 0.01}
FORMS = pytest.mark.parametrize("form", [UserCfNade, ItemCfNade])


class TestUserCfNade(RatingBaselineContract):
    def make(self) -> UserCfNade:
        return UserCfNade(**TINY)


class TestItemCfNade(RatingBaselineContract):
    def make(self) -> ItemCfNade:
        return ItemCfNade(**TINY)


Stored = dict[str, torch.Tensor]


def stored(model: CfNade) -> Stored:
    """The parameters of the model in double precision, by label: not the sums in use."""
    shapes = model._shapes(model.catalogue.data)
    tables = {name: torch.from_numpy(getattr(model, f"{name}_")).double() for name in shapes}
    return {name: reference.differences(table) for name, table in tables.items()}


def logits(own: Stored, row: int, history: list[tuple[int, int]]) -> torch.Tensor:
    """(K,) as in the docstring; `history` are rows and labels from 0."""
    sums_h = own["hidden_bias_l1h"][0, 0]
    for rated, label in history:
        table_jh = own["input_rjh"][rated]
        sums_h = sums_h + table_jh[0] + table_jh[1 : label + 2].sum(0)
    first_h = torch.tanh(sums_h)
    second_h = torch.tanh(own["hidden_bias_l1h"][1, 0] + first_h @ own["hidden_h1h"][:, 0])
    steps_k = own["output_rkh"][row] @ second_h + own["output_bias_rk1"][row, :, 0]
    return steps_k.cumsum(0)


@FORMS
def test_predictions_are_those_of_the_equations(form: type[CfNade]) -> None:
    model = fitted(form(**TINY))
    own, values_k = stored(model), torch.arange(1, 6)
    users_p, items_p, ratings_p = small_world()
    ratings = list(zip(users_p, items_p, ratings_p.astype(int) - 1, strict=True))
    for user, item in [(3, 4), (0, 0), (7, UNSEEN_ITEM), (UNSEEN_USER, 2), (20, 13)]:
        history, row = [(i, label) for u, i, label in ratings if u == user], item
        if form is ItemCfNade:
            history, row = [(u, label) for u, i, label in ratings if i == item], user
        expected = logits(own, row, history).softmax(0) @ values_k.double()
        assert predicted(model, [user], [item])[0] == pytest.approx(float(expected), abs=1e-4)


def orderings(ratings: list[tuple[int, int]]) -> Iterator[tuple[list, list, float]]:
    """All equally likely contexts, targets and factors D / (D - d) of a case."""
    for order in permutations(ratings):
        for d in range(len(order)):
            yield list(order[:d]), list(order[d:]), len(order) / (len(order) - d)


def enumerated(own: Stored, ratings: list[tuple[int, int]]) -> torch.Tensor:
    """The expected loss of a case."""
    each = []
    for history, targets, factor in orderings(ratings):
        logits_pk = torch.stack([logits(own, row, history) for row, _ in targets])
        labels_p = torch.tensor([label for _, label in targets])
        each.append(factor * reference.ordinal_loss(logits_pk, labels_p).sum())
    return torch.stack(each).mean()


def test_the_loss_of_a_minibatch_is_that_of_all_orderings_on_average() -> None:
    """400 users with the same three ratings, against the enumeration, and its gradients."""
    ratings, users = [(0, 1), (1, 0), (2, 2)], 400
    user_p, item_p = np.repeat(np.arange(users), 3), np.tile([0, 1, 2], users)
    rating_p = np.tile([2.0, 1.0, 3.0], users)
    model = UserCfNade(**{**TINY, "epochs": 1, "l2": 0.0}).fit(frame(user_p, item_p, rating_p))
    data = model.catalogue.data
    tensors = model._begin(data)
    own = {
        name: reference.differences(table.values.double()).requires_grad_()
        for name, table in model._tables.items()
    }
    expected = enumerated(own, ratings)
    expected.backward()
    rng, n, losses = np.random.default_rng(0), 50, []
    total = {name: torch.zeros_like(tensors[name]) for name in own}
    for _ in range(n):
        loss = model._loss(model._by_case(data), np.arange(users, dtype=np.int32), rng)
        loss.backward()
        losses.append(loss.item())
        for name, table in model._tables.items():
            total[name] += table.dense_gradient() / n
            table.gradient = None
    assert np.mean(losses) == pytest.approx(expected.item(), rel=0.01)
    for name, parameter in own.items():
        assert parameter.grad is not None
        size = float(parameter.grad.abs().max())
        torch.testing.assert_close(total[name].double(), parameter.grad, rtol=0, atol=0.05 * size)


@FORMS
def test_a_step_is_that_of_adam_with_the_penalty_and_moves_the_average(form: type[CfNade]) -> None:
    model = fitted(form(**TINY))
    data, l2, rate = model.catalogue.data, 0.3, 0.02
    model.settings = model.settings.replaced(l2=l2, average=0.9)
    tensors = model._begin(data)
    model.rate = rate
    before = {name: tensors[name].double() for name in model._tables}
    by_case = model._by_case(data)
    model._loss(by_case, np.arange(9, dtype=np.int32), np.random.default_rng(0)).backward()
    gradients = {name: each.dense_gradient().double() for name, each in model._tables.items()}
    model._step()
    for name, used in before.items():
        own = reference.differences(used)
        assert own.any() or name == "hidden_bias_l1h"
        gradient = gradients[name] + (0 if "bias" in name else 2 * l2 * own)
        moments = torch.zeros_like(own), torch.zeros_like(own)
        after = reference.adam(
            own,
            *moments,
            gradient,
            rate=rate * (1 - BETA2) ** 0.5 / (1 - BETA1),
            beta1=BETA1,
            beta2=BETA2,
            epsilon=EPSILON,
        )
        now = model._tables[name].values.double()
        # What all labels have in common changes no softmax: its gradient is rounding alone.
        is_certain = (gradient.abs() > 1e-5) | (gradient == 0)
        assert is_certain.double().mean() > 0.8
        difference = (reference.differences(now) - after)[is_certain]
        assert float(difference.abs().max()) < 1e-4
        torch.testing.assert_close(tensors[name].double(), 0.9 * used + 0.1 * now)


def test_biases_start_from_the_log_of_frequencies() -> None:
    _, items_p, ratings_p = small_world()
    model = fitted(UserCfNade(**TINY))
    start_rk = model._begin(model.catalogue.data)["output_bias_rk1"].numpy()[:, :, 0]
    share_k = (np.bincount(ratings_p.astype(int))[1:] + 1) / (len(ratings_p) + 5)
    for item in (0, UNSEEN_ITEM):
        own_k = np.bincount(ratings_p[items_p == item].astype(int), minlength=6)[1:]
        np.testing.assert_allclose(start_rk[item], np.log(own_k + share_k), rtol=1e-5)


def test_a_label_of_the_validation_set_alone_is_read(tmp_path: Path) -> None:
    users_p, items_p, ratings_p = small_world()
    train = frame(users_p, items_p, np.minimum(ratings_p, 4.0))
    valid = frame([UNSEEN_USER] * 2, [0, 1], [5.0, 4.0])
    model = UserCfNade(**TINY).fit(train, valid=valid, vocabulary=VOCABULARY)
    assert model.output_rkh_.shape[1] == 5
    again = cfuica.load(model.save(tmp_path / "model"))
    pairs = [UNSEEN_USER, 3], [4, 4]
    np.testing.assert_array_equal(predicted(again, *pairs), predicted(model, *pairs))


@FORMS
def test_a_pair_is_predicted_alike_alone_and_among_others(form: type[CfNade]) -> None:
    model = fitted(form(**TINY))
    users_p, items_p, _ = small_world(seed=3)
    together = predicted(model, users_p, items_p)
    for p in range(0, len(users_p), 37):
        assert predicted(model, users_p[[p]], items_p[[p]])[0] == together[p]


def test_fitting_again_forgets_the_labels() -> None:
    model = fitted(UserCfNade(**TINY))
    model.fit(frame([0, 0, 1], [0, 1, 1], [1.0, 2.0, 2.0]))
    assert model.output_rkh_.shape == (3, 2, 5)


@FORMS
def test_a_resumed_training_ends_in_the_same_bits(form: type[CfNade], tmp_path: Path) -> None:
    settings = {**TINY, "epochs": 9, "patience": 1, "learning_rate": 0.3}
    assert_resumes(lambda: form(**settings), tmp_path)


@FORMS
def test_finds_more_in_the_demo_than_biases_do(form: type[CfNade]) -> None:
    model = form(hidden=64, epochs=25, batch=64, average=0.97, learning_rate=0.005)
    assert demo_rmse(model) < demo_rmse(UserItemBias()) - 0.02


@pytest.mark.parametrize(
    ("setting", "value"),
    [("hidden", 0), ("l2", -1.0), ("average", 1.0), ("batch", 0), ("rate_divisor", 1.0)],
)
def test_impossible_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"Setting {setting} = {value} is not usable: "):
        ItemCfNade(**{setting: value})
