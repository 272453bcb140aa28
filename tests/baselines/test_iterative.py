from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import cfuica
from cfuica.baselines import BprFactorisation
from cfuica.baselines.contract import TrainingData
from cfuica.baselines.factorisation import BprSettings
from cfuica.baselines.iterative import FallingRateSettings, adam, unseen_items
from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.errors import CfuicaError, SettingsError
from cfuica.metrics.ranking_metrics import RankingScores
from cfuica.settings import TrainingSettings
from cfuica.training.checkpoint import (
    Checkpoint,
    Checkpointer,
    CheckpointFolder,
    TrainingDiverged,
    TrainingInterrupted,
)
from cfuica.training.trainer import Callback, Progress, describe_outcome
from tests.contract import N_ITEMS, N_USERS, frame, small_world
from tests.runs.small import small_table

SETTINGS: dict[str, Any] = {"factors": 5, "epochs": 7, "learning_rate": 0.05}


class StopAfter(Checkpointer):
    """Writes a checkpoint after so many epochs, and stops."""

    def __init__(self, folder: Path, epochs: int) -> None:
        self._folder, self._left = CheckpointFolder(folder), epochs

    def is_stopping(self) -> bool:
        self._left -= 1
        return self._left == 0

    def save(self, checkpoint: Checkpoint) -> None:
        self._folder.write(checkpoint)

    def restored(self) -> Checkpoint | None:
        return self._folder.newest()


def fitted(model: BprFactorisation, *, validated: bool = True, **options: Any) -> BprFactorisation:
    split = DataSplit.leave_one_out(small_table())
    valid = split.valid if validated else None
    return model.fit(split.train, valid=valid, vocabulary=split.whole, **options)


def the_same(one: BprFactorisation, other: BprFactorisation) -> bool:
    names = ("user_uf_", "item_if_")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


# Stopped twice; where validation has chosen the epochs; while the model learns again.
@pytest.mark.parametrize(
    ("validated", "stops"), [(True, [2, 2]), (False, [2, 2]), (True, [7]), (True, [8, 1])]
)
def test_an_interrupted_training_ends_in_the_bits_of_an_uninterrupted_one(
    tmp_path: Path, validated: bool, stops: list[int]
) -> None:
    whole = fitted(BprFactorisation(**SETTINGS), validated=validated)
    for epochs in stops:
        with pytest.raises(TrainingInterrupted, match="stopped after epoch"):
            fitted(
                BprFactorisation(**SETTINGS),
                validated=validated,
                checkpointer=StopAfter(tmp_path, epochs),
            )
    resumed = fitted(
        BprFactorisation(**SETTINGS), validated=validated, checkpointer=StopAfter(tmp_path, 99)
    )
    assert the_same(whole, resumed)
    assert whole.trained is not None
    assert resumed.trained is not None
    assert [one.loss for one in whole.trained.history] == [
        one.loss for one in resumed.trained.history
    ]


def test_a_checkpoint_of_other_sizes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        fitted(BprFactorisation(**SETTINGS), checkpointer=StopAfter(tmp_path, 1))
    other = BprFactorisation(**{**SETTINGS, "factors": 6})
    with pytest.raises(CfuicaError, match="The checkpoint is not of these settings"):
        fitted(other, checkpointer=StopAfter(tmp_path, 1))


def test_the_best_validation_is_kept_and_patience_ends_the_training() -> None:
    model = fitted(BprFactorisation(**{**SETTINGS, "epochs": 400, "patience": 3}))
    assert model.trained is not None
    values = [one.valid.value for one in model.trained.history if one.valid is not None]
    best = int(np.argmax(values))
    assert len(values) == best + 1 + 3 < 400
    assert model.trained.history[-1].verdict == "stop"
    assert model.trained.outcomes[0]["step"] == best + 1
    again = fitted(BprFactorisation(**{**SETTINGS, "epochs": best + 1}))
    assert the_same(model, again)


def test_the_model_learns_again_from_both_sets_for_as_many_epochs_as_validated_best() -> None:
    split = DataSplit.leave_one_out(small_table())
    assert split.valid is not None
    notes: list[str] = []

    class Noting(Callback):
        def note(self, text: str) -> None:
            notes.append(text)

    model = fitted(BprFactorisation(**SETTINGS), callback=Noting())
    assert model.trained is not None
    epochs = model.trained.outcomes[0]["step"]
    outcome = describe_outcome(model.trained.outcomes[0])
    assert outcome.startswith(f"Step {epochs} validated best, with a NDCG@10 of ")
    assert "has learned again" in outcome
    assert notes[0].startswith(f"Epoch {epochs} validated best; the model learns again")
    both = Interactions(pl.concat([split.train.frame, split.valid.frame]))
    expected = BprFactorisation(**{**SETTINGS, "epochs": epochs}).fit(both, vocabulary=split.whole)
    assert the_same(model, expected)
    once = fitted(BprFactorisation(**SETTINGS, refit=False))
    assert not the_same(model, once)
    assert [each.loss for each in once.trained.history] == [
        each.loss for each in model.trained.history
    ]


class FallingBprSettings(FallingRateSettings, BprSettings):
    pass


class FallingBpr(BprFactorisation):
    """The same with a rate that is cut, and with validations that are given."""

    settings_class = FallingBprSettings

    def __init__(self, values: list[float], **settings: Any) -> None:
        super().__init__(**settings)
        self.values, self.used = iter(values), []  # type: ignore[var-annotated]

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        self.used.append(self.rate)
        return super()._epoch(data, epoch)

    def _validator(self, *_: Any) -> Any:
        return lambda: RankingScores(next(self.values), 0.0, 1)


def test_the_rate_is_cut_where_patience_runs_out_until_it_is_too_low() -> None:
    values = [0.2, 0.3, 0.1, 0.3, 0.1, 0.1, 0.4, 0.1, 0.1]  # more is better
    falling = {"epochs": 99, "patience": 2, "learning_rate": 0.05, "rate_divisor": 10}
    model = fitted(FallingBpr(values, **{**SETTINGS, **falling, "stop_rate": 5e-5}))
    assert model.trained is not None
    assert [(one.verdict, one.rate) for one in model.trained.history] == [
        ("improved", 0.05), ("improved", 0.05), ("continue", 0.05), ("cut", 0.05),
        ("continue", 0.005), ("cut", 0.005),
        ("improved", 0.0005), ("continue", 0.0005), ("stop", 0.0005),
    ]  # fmt: skip
    rates = [one.rate for one in model.trained.history]
    # It learns again as it did until the best epoch, the seventh.
    assert model.used == rates + rates[:7]  # type: ignore[attr-defined]


def test_any_number_of_cuts_takes_no_time() -> None:
    falling = {"epochs": 2, "patience": 1, "rate_divisor": 1 + 1e-7, "stop_rate": 1e-300}
    model = fitted(FallingBpr([0.2, 0.1], **{**SETTINGS, **falling, "refit": False}))
    assert model.trained is not None
    assert model.trained.last.verdict == "cut"


def test_a_rate_that_falls_to_the_stop_rate_exactly_ends_the_training() -> None:
    settings = FallingBprSettings(learning_rate=1.0, rate_divisor=2.0, stop_rate=0.25)
    assert [settings.ends_at(cut) for cut in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("rate", [1e-5, 1e-6])
def test_a_stop_rate_that_is_not_below_the_learning_rate_is_refused(rate: float) -> None:
    with pytest.raises(SettingsError, match=f"stop_rate=1e-05 is not below learning_rate={rate}"):
        FallingBpr([], learning_rate=rate)


def test_progress_is_reported_epoch_by_epoch() -> None:
    class Heard(Callback):
        said: list[Any] = []  # noqa: RUF012

        def started(self, settings: TrainingSettings) -> None:
            self.said.append(settings.steps_planned)

        def stepped(self, member: int, step: int, loss: float) -> None:
            self.said.append(step)

        def validated(self, progress: Progress) -> None:
            assert progress.valid is not None
            self.said.append((progress.step, progress.valid.measure))

    fitted(BprFactorisation(**{**SETTINGS, "epochs": 2}), callback=Heard())
    assert Heard.said == [2, 1, (1, "NDCG@10"), 2, (2, "NDCG@10")]


def test_the_seed_decides_and_a_saved_model_has_it(tmp_path: Path) -> None:
    one, other = (fitted(BprFactorisation(**SETTINGS, seed=seed)) for seed in (1, 2))
    assert not the_same(one, other)
    again = cfuica.load(one.save(tmp_path / "model"))
    assert isinstance(again, BprFactorisation)
    assert again.settings == one.settings
    assert the_same(one, again)


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(TrainingDiverged, match=r"diverged in epoch \d+: the loss is .* a lower"):
        fitted(BprFactorisation(**{**SETTINGS, "learning_rate": 1e30}))


def test_negative_items_are_unseen_unless_there_are_none() -> None:
    users_p, items_p, _ = small_world()
    data = TrainingData.of(frame(users_p, items_p), N_USERS + 1, N_ITEMS + 1)
    drawn_p = unseen_items(data, data.users_p, np.random.default_rng(0))
    assert drawn_p.min() >= 0
    assert drawn_p.max() < N_ITEMS
    pairs = set(zip(users_p, items_p, strict=True))
    assert not pairs & set(zip(data.users_p.tolist(), drawn_p.tolist(), strict=True))
    everything = TrainingData.of(frame([0, 0], [0, 1]), 2, 3)
    assert unseen_items(everything, everything.users_p, np.random.default_rng(0)).max() < 2


def test_bpr_descends_along_the_gradient() -> None:
    """One triple, against central differences of the loss of the docstring."""
    from cfuica.ops import bpr

    rng = np.random.default_rng(0)
    user_f, item_f, other_f = rng.normal(0, 1, (3, 4))

    def loss(numbers: np.ndarray) -> float:
        u, i, j = numbers.reshape(3, 4)
        return float(np.log1p(np.exp(-u @ (i - j))) + 0.3 / 2 * np.square(numbers).sum())

    start = np.concatenate([user_f, item_f, other_f])
    moves = np.eye(12) * 1e-5
    gradients = [(loss(start + move) - loss(start - move)) / 2e-5 for move in moves]
    user_uf, item_if = (
        user_f[None].astype(np.float32),
        np.stack([item_f, other_f], dtype=np.float32),
    )
    index = np.zeros(1, np.intp)
    bpr.descend(index, index, index + 1, user_uf, item_if, np.float32(0.01), np.float32(0.3))
    moved = np.concatenate([user_uf.ravel(), item_if.ravel()]) - start
    np.testing.assert_allclose(moved / -0.01, gradients, atol=1e-3)


class Autograd(BprFactorisation):
    """The same by torch and Adam, a step per epoch."""

    def _begin(self, data: TrainingData) -> dict[str, torch.Tensor]:
        self.parameters = super()._begin(data)
        self.optimizer, tensors = adam(self.parameters, self.settings.learning_rate)
        return tensors

    def _epoch(self, data: TrainingData, epoch: int) -> float:
        items_p = unseen_items(data, data.users_p, self._rng(epoch))
        users_uf, items_if = self.parameters["user_uf"], self.parameters["item_if"]
        gap_pf = items_if[data.items_p] - items_if[items_p]
        loss = -torch.nn.functional.logsigmoid((users_uf[data.users_p] * gap_pf).sum(1)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def test_a_torch_model_with_adam_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    whole = fitted(Autograd(**SETTINGS))
    assert whole.trained is not None
    assert whole.trained.history[-1].loss < whole.trained.history[0].loss - 0.01
    with pytest.raises(TrainingInterrupted):
        fitted(Autograd(**SETTINGS), checkpointer=StopAfter(tmp_path, 3))
    assert the_same(whole, fitted(Autograd(**SETTINGS), checkpointer=StopAfter(tmp_path, 99)))


def test_users_without_interactions_have_the_mean_factors() -> None:
    model = fitted(BprFactorisation(**SETTINGS))
    np.testing.assert_allclose(model.user_uf_[-1], model.user_uf_[:-1].mean(0), atol=1e-4)
