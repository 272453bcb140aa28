from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cfuica.baselines import LlormaGlobal, LlormaLocal, UserItemBias
from cfuica.baselines.contract import TrainingData
from cfuica.errors import SettingsError
from tests.baselines.held_out import demo_rmse
from tests.baselines.resuming import assert_resumes, trained
from tests.contract import (
    N_ITEMS,
    N_USERS,
    RatingBaselineContract,
    fitted,
    frame,
    predicted,
    small_world,
)

TINY = {"anchors": 3, "factors": 4, "base_factors": 3, "base_epochs": 20, "epochs": 30}
FORMS = pytest.mark.parametrize("form", [LlormaGlobal, LlormaLocal])


class TestLlormaGlobal(RatingBaselineContract):
    def make(self) -> LlormaGlobal:
        return LlormaGlobal(**TINY)


class TestLlormaLocal(RatingBaselineContract):
    def make(self) -> LlormaLocal:
        return LlormaLocal(**TINY)


def test_weights_fall_with_the_angle_from_an_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LlormaLocal(**TINY, width=0.4)
    data = TrainingData.of(frame(*small_world()), N_USERS + 1, N_ITEMS + 1)
    rng = np.random.default_rng(0)
    base = [rng.normal(1, 1, (n, 3)).astype(np.float32) for n in (data.n_users, data.n_items)]
    monkeypatch.setattr(model, "_base", lambda *_: base)
    tensors = model._begin(data)
    weights = [tensors[name].numpy() for name in ("user_weight_ul", "item_weight_il")]
    pairs = set(zip(data.users_p, data.items_p, strict=True))
    for anchor in zip(*(weight_nl.argmax(0) for weight_nl in weights), strict=True):
        assert anchor in pairs
    for vector_nf, weight_nl in zip(base, weights, strict=True):
        for n, l in np.ndindex(weight_nl.shape):  # noqa: E741
            one, other = vector_nf[n], vector_nf[weight_nl[:, l].argmax()]
            cosine = one @ other / (np.linalg.norm(one) * np.linalg.norm(other))
            similarity = 1 - 2 / np.pi * np.arccos(min(cosine, 1.0))
            expected = 0.75 * max(1 - ((1 - similarity) / 0.4) ** 2, 0)
            assert weight_nl[n, l] == pytest.approx(expected, abs=1e-3)


def test_one_local_model_of_weight_one_learns_what_the_joint_form_learns() -> None:
    """With a width without end the weights are 3/4 each, and the joint form divides them away."""
    own = {**TINY, "anchors": 1, "width": 1e6, "base_l2": 0.1}
    local = LlormaLocal(**own, learning_rate=0.1 / 0.75**2, l2=0.01 * 0.75**2)
    joint = LlormaGlobal(**own, learning_rate=0.1, l2=0.01)
    users_p, items_p, _ = small_world()
    np.testing.assert_allclose(
        predicted(fitted(local), users_p, items_p),
        predicted(fitted(joint), users_p, items_p),
        atol=1e-3,
    )


@FORMS
def test_the_number_of_threads_changes_no_bit(form: type, monkeypatch: pytest.MonkeyPatch) -> None:
    models = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        models.append(trained(form(**{**TINY, "anchors": 7})))
    one, other = models
    np.testing.assert_array_equal(one.user_ulf_, other.user_ulf_)
    assert [each.loss for each in one.trained.history] == [
        each.loss for each in other.trained.history
    ]


@FORMS
def test_a_resumed_training_ends_in_the_same_bits(form: type, tmp_path: Path) -> None:
    assert_resumes(lambda: form(**TINY), tmp_path)


@FORMS
def test_finds_more_in_the_demo_than_biases_do(form: type) -> None:
    model = form(anchors=10, factors=10, epochs=60, l2=0.01)
    assert demo_rmse(model) < demo_rmse(UserItemBias()) - 0.02


@pytest.mark.parametrize(
    ("setting", "value"), [("anchors", 0), ("factors", 0), ("l2", -1.0), ("width", 0.0)]
)
def test_impossible_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"Setting {setting} = {value} is not usable: "):
        LlormaLocal(**{setting: value})
