"""Training to rank: what comes next is learned, and data and settings decide every bit."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.data.matrix import Timeline
from cfuica.errors import SettingsError
from cfuica.settings import RankingSettings
from cfuica.training import trainer
from cfuica.training.checkpoint import TrainingInterrupted
from cfuica.training.gradients import GradientBuffers
from cfuica.training.ranking_task import NextItems, RankingFitted, RankingTask, train_ranking
from cfuica.training.trainer import Callback
from tests.training.histories import cyclic, timeline_of
from tests.training.stopping import StopAfter

SMALL = RankingSettings(
    hidden_users=8, hidden_items=12, learned_decay=True, batch_users=30, drop_interactions=0.1,
    drop_users=0.2, dropout=0.1, learning_rate=2e-2, l2=1e-5, schedule="planned", epochs=15,
    validate_every=20,
)  # fmt: skip


def next_of_all(items: np.ndarray) -> NextItems:
    return NextItems(np.arange(len(items), dtype=np.int32), items)


@pytest.fixture(scope="module")
def world() -> tuple[Timeline, NextItems]:
    timeline, following = cyclic()
    return timeline, next_of_all(following)


def trained(world: tuple[Timeline, NextItems], **changes: object) -> RankingFitted:
    timeline, valid = world
    return train_ranking(timeline, SMALL.replaced(**changes), valid=valid)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sides": "items"},
        {"loss": "sampled-softmax", "softmax_candidates": 15},
        {"ordering": "global-time"},
        {"loss": "bernoulli", "batch_items": 10},
        {"ensemble_size": 2, "epochs": 10},
    ],
)
def test_it_learns_what_comes_next(world, changes):
    last = trained(world, **changes).last.valid
    assert last.n == 120
    assert last.ndcg > 0.85
    assert last.hr >= last.ndcg


@pytest.mark.parametrize("ordering", ["chronological", "uniform"])
def test_without_decay_or_order_the_last_item_counts_like_the_others(world, ordering):
    """What was done is a run of items, and without an order either of its ends may be next."""
    fitted = trained(
        world, learned_decay=False, ordering=ordering, loss="bernoulli", activation="relu"
    )
    assert fitted.last.valid.ndcg > 0.15


def test_the_bernoulli_loss_is_the_mean_over_all_pairs_negatives_among_them(world):
    timeline, _ = world
    settings = SMALL.replaced(loss="bernoulli", negatives=3, dropout=0)
    task = RankingTask(timeline, timeline.by_item(), settings, None)
    model = task.new_model(0)
    for tensor in model.tensors().values():
        tensor.zero_()
    block = task.blocks(0).draw(0)
    assert len(block.labels) == 4 * block.labels.sum() > 0
    loss, _ = task.loss_and_gradients(0, model, block, GradientBuffers())
    assert loss == pytest.approx(np.log(2))  # of a model that knows nothing, whatever the pair


def test_memory_is_learned(world):
    times_h = trained(world).model.sides["items"].log_time_constants_h
    untrained_h = trained(world, max_steps=1, epochs=None).model.sides["items"].log_time_constants_h
    assert not np.allclose(times_h, untrained_h, atol=1e-2)


def tensors_of(fitted: RankingFitted) -> dict[str, bytes]:
    return {name: t.numpy().tobytes() for name, t in fitted.model.tensors().items()}


def test_the_number_of_threads_changes_no_bit(world, monkeypatch):
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        found.append(tensors_of(trained(world, epochs=2)))
    assert found[0] == found[1]


def test_a_seed_decides_everything(world):
    first, again, other = (tensors_of(trained(world, epochs=1, seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "changes",
    [
        {"residual_units": 6, "dropout": 0.2},
        {"loss": "bernoulli", "learned_decay": False},
        {"loss": "bernoulli", "batch_items": 11, "epochs": 1},
    ],
)
def test_a_training_that_was_stopped_ends_in_the_same_bits(world, tmp_path, changes):
    timeline, valid = world
    settings = SMALL.replaced(**{"epochs": 3, "ensemble_size": 2, "validate_every": 5, **changes})
    whole = train_ranking(timeline, settings, valid=valid)
    legs = 0
    while True:
        try:
            resumed = train_ranking(
                timeline, settings, valid=valid, checkpointer=StopAfter(tmp_path, 5)
            )
            break
        except TrainingInterrupted:
            legs += 1
    assert legs > 2
    assert tensors_of(resumed) == tensors_of(whole)
    curves = [
        [(p.member, p.step, p.loss, p.valid) for p in run.history] for run in (resumed, whole)
    ]
    assert curves[0] == curves[1]


def test_epochs_become_minibatches(world):
    fitted = trained(world, epochs=1.5)
    assert fitted.steps == 6  # of 4 blocks of 30 users an epoch
    assert fitted.settings.max_steps == 6
    assert fitted.settings.epochs is None


def test_patience_goes_back_to_the_best(world):
    fitted = trained(
        world, schedule="patience", patience=1, learning_rate=0.5, max_steps=60, epochs=None,
        validate_every=4, stop_rate=1e-2,
    )  # fmt: skip
    values = [progress.valid.ndcg for progress in fitted.history]
    assert fitted.last.best == max(values)


def test_without_validation_nothing_is_scored(world):
    timeline, _ = world
    for valid in (None, NextItems(np.empty(0, np.int32), np.empty(0, np.int32))):
        fitted = train_ranking(timeline, SMALL.replaced(epochs=1), valid=valid)
        assert fitted.last.valid is None
        assert fitted.last.best is None


def test_a_callback_receives_the_settled_settings(world):
    heard = []

    class Hears(Callback):
        def started(self, settings) -> None:
            heard.append(settings)

    timeline, _ = world
    train_ranking(timeline, SMALL.replaced(epochs=1), callback=Hears())
    assert [settings.max_steps for settings in heard] == [4]


def test_nothing_to_train_on_is_said():
    with pytest.raises(SettingsError, match="no interaction to train on"):
        train_ranking(timeline_of(3, 3, 0, seed=0), SMALL)


def test_a_divergence_is_said(world):
    with pytest.raises(trainer.TrainingDiverged, match="try a lower learning_rate than 1e\\+30"):
        trained(world, learning_rate=1e30, max_norm=None, max_entry=None)
