from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfuica.baselines import (
    ElementwiseFactorisation,
    ImplicitFactorisation,
    RankingBaseline,
)
from cfuica.baselines.weighted_factorisation import WeightedFactorisation
from cfuica.data.split_tables import DataSplit
from cfuica.errors import SettingsError
from cfuica.ops import runtime
from cfuica.training.checkpoint import TrainingInterrupted
from tests.baselines.test_iterative import StopAfter
from tests.contract import (
    N_ITEMS,
    N_USERS,
    RankingBaselineContract,
    fitted,
    frame,
    small_world,
)
from tests.runs.small import small_table


def elementwise(**settings: Any) -> ElementwiseFactorisation:
    small = {"factors": 3, "missing_weight": 4.0, "l2": 0.3, "popularity_exponent": 0.5}
    return fitted(ElementwiseFactorisation(**{**small, **settings}))


def implicit(**settings: Any) -> ImplicitFactorisation:
    small = {"factors": 3, "unobserved_weight": 0.2, "l2": 0.05, "frequency_exponent": 0.7}
    return fitted(ImplicitFactorisation(**{**small, **settings}))


def objective(model: WeightedFactorisation, user_uf: np.ndarray, item_if: np.ndarray) -> float:
    """The definition of the docstring, of all users and items."""
    had_ui, settings = np.zeros((N_USERS, N_ITEMS)), model.settings
    had_ui[small_world()[:2]] = 1
    score_ui, (n_u, n_i) = user_uf @ item_if.T, (had_ui.sum(1), had_ui.sum(0))
    total = (had_ui * (1 - score_ui) ** 2).sum()
    if isinstance(settings, type(ElementwiseFactorisation().settings)):
        power_i = np.where(n_i > 0, n_i**0.5, 0)
        weight_i = 4.0 * power_i / power_i.sum()
        total += ((1 - had_ui) * weight_i * score_ui**2).sum()
        return float(total + 0.3 * (np.square(user_uf).sum() + np.square(item_if).sum()))
    total += 0.2 * (score_ui**2).sum()
    for rows_nf, n_n, others in ((user_uf, n_u, N_ITEMS), (item_if, n_i, N_USERS)):
        total += 0.05 * ((n_n + 0.2 * others) ** 0.7 * np.square(rows_nf).sum(1)).sum()
    return float(total)


def largest_gradients(model: WeightedFactorisation) -> tuple[float, float, float]:
    """The objective, and its largest derivatives by a number of users and of items."""
    user_uf, item_if = (
        rows_nf[:-1].astype(np.float64) for rows_nf in (model.user_uf_, model.item_if_)
    )
    user_uf[-1] = 0.0  # The user without interactions, who has the mean of the others.
    found = []
    for numbers in (user_uf, item_if):
        grads = []
        for place in np.ndindex(numbers.shape):
            kept, values = numbers[place], []
            for moved in (kept - 1e-4, kept + 1e-4):
                numbers[place] = moved
                values.append(objective(model, user_uf, item_if))
            numbers[place] = kept
            grads.append(abs(values[1] - values[0]) / 2e-4)
        found.append(max(grads))
    return objective(model, user_uf, item_if), *found


class TestElementwiseFactorisation(RankingBaselineContract):
    def make(self) -> RankingBaseline:
        return ElementwiseFactorisation(factors=4, epochs=3)


class TestImplicitFactorisation(RankingBaselineContract):
    def make(self) -> RankingBaseline:
        return ImplicitFactorisation(factors=4, epochs=3)


def test_every_item_is_the_exact_answer_to_the_users() -> None:
    _, of_users, of_items = largest_gradients(implicit(epochs=1))
    assert of_items < 1e-3
    assert of_users > 1e-1  # which had other items to answer to


def test_one_factor_of_an_item_is_the_exact_answer_too() -> None:
    _, of_users, of_items = largest_gradients(elementwise(factors=1, epochs=2))
    assert of_items < 1e-3
    assert of_users > 1e-2


@pytest.mark.parametrize("make", [elementwise, implicit])
def test_it_settles_where_no_number_can_do_better_and_no_epoch_raises_the_loss(make: Any) -> None:
    model = make(epochs=300)
    loss, *both = largest_gradients(model)
    assert max(both) < 2e-3
    assert model.trained is not None
    losses = [one.loss for one in model.trained.history]
    assert losses[-1] == pytest.approx(loss / len(small_world()[0]), rel=1e-5)
    assert np.diff(losses).max() < 1e-6
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("make", [elementwise, implicit])
def test_threads_change_no_bit(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW_ROWS", 0)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        model = make(factors=8, epochs=3)
        assert model.trained is not None
        found.append((model.user_uf_, model.item_if_, model.trained.last.loss))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [ElementwiseFactorisation, ImplicitFactorisation])
def test_an_interrupted_training_ends_in_the_same_bits(kind: Any, tmp_path: Path) -> None:
    split = DataSplit.leave_one_out(small_table())

    def trained(**options: Any) -> Any:
        model = kind(factors=6, epochs=6)
        return model.fit(split.train, valid=split.valid, vocabulary=split.whole, **options)

    whole = trained()
    for _ in range(2):  # stopped twice
        with pytest.raises(TrainingInterrupted):
            trained(checkpointer=StopAfter(tmp_path, 2))
    resumed = trained(checkpointer=StopAfter(tmp_path, 99))
    np.testing.assert_array_equal(resumed.user_uf_, whole.user_uf_)
    np.testing.assert_array_equal(resumed.item_if_, whole.item_if_)


@pytest.mark.parametrize("make", [elementwise, implicit])
def test_without_interactions_items_have_0_and_users_the_mean(make: Any) -> None:
    model = make(epochs=2)
    assert not model.item_if_[-2:].any()
    assert model.item_if_[:-2].any(1).all()
    for row_f in model.user_uf_[-2:]:
        np.testing.assert_allclose(row_f, model.user_uf_[:-2].mean(0), rtol=1e-4)


def test_a_popular_item_counts_more_where_it_is_missing() -> None:
    """Item 0 has 2 of 10 users, item 1 has 8: by the exponent the weight moves to item 1."""
    pairs = frame(*np.nonzero(np.arange(10)[:, None] < [2, 8]))

    def scores(exponent: float) -> np.ndarray:
        settings: dict[str, Any] = {"factors": 1, "epochs": 200, "l2": 1e-3, "missing_weight": 1.0}
        model = ElementwiseFactorisation(popularity_exponent=exponent, **settings).fit(pairs)
        return model.score(7, [0, 1])["score"].to_numpy()

    even, uneven = scores(0.0), scores(1.0)
    assert uneven[0] > even[0]  # item 0, which user 7 has not had


@pytest.mark.parametrize(
    "model", [ElementwiseFactorisation(factors=3, l2=1), ImplicitFactorisation(factors=3, l2=0.1)]
)
def test_unseen_items_of_the_own_taste_come_first(model: Any) -> None:
    """Users of three tastes have had about half of the 12 items of theirs."""
    rng, tastes = np.random.default_rng(0), np.arange(36) % 3
    own_ui = tastes[:, None] == tastes
    had_ui = own_ui & (rng.random((36, 36)).argsort(1).argsort(1) % 2 == 0)
    pairs = frame(*np.nonzero(had_ui))
    score_ui = model.fit(pairs).scorer().scores(np.arange(36))
    for user in range(36):
        unseen_i = own_ui[user] & ~had_ui[user]
        assert score_ui[user, unseen_i].min() > score_ui[user, ~own_ui[user]].max()


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        (ElementwiseFactorisation, "missing_weight", 0.0),
        (ElementwiseFactorisation, "l2", 0.0),
        (ElementwiseFactorisation, "popularity_exponent", -1.0),
        (ImplicitFactorisation, "unobserved_weight", 0.0),
        (ImplicitFactorisation, "frequency_exponent", 2.0),
        (ImplicitFactorisation, "factors", 0),
    ],
)
def test_impossible_settings_are_refused(kind: Any, setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"Setting {setting} = {value} is not usable: "):
        kind(**{setting: value})
