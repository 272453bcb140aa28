"""Training to rank: what comes next is learned, and data and settings decide every bit."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.data.matrix import Timeline
from cfuica.errors import SettingsError
from cfuica.settings import RankingSettings
from cfuica.training import trainer
from cfuica.training.ranking_task import (
    NextItems,
    RankingTask,
    train_ranking,
    trained_network,
)
from cfuica.training.trainer import Callback, Trained
from tests.training.histories import cyclic, timeline_of

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


def trained(world: tuple[Timeline, NextItems], **changes: object) -> Trained:
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
    task = RankingTask.of(timeline, settings)
    network = task.new_network(0)
    for tensor in network.state_dict().values():
        tensor.zero_()
    block = task.blocks(0).draw(0)
    assert len(block.labels) == 4 * block.labels.sum() > 0
    total, count = task.loss(network, block)
    assert count == len(block.labels)
    assert total.item() / count == pytest.approx(np.log(2))  # of a network of zeros


def test_decay_is_learned(world):
    name = "items.decay.log_time_constants"
    first, last = (trained(world, max_steps=n, epochs=None).weights[0][name] for n in (1, 60))
    assert not np.allclose(last, first, atol=1e-2)


def tensors_of(fitted: Trained) -> list[dict[str, bytes]]:
    return [{name: t.numpy().tobytes() for name, t in own.items()} for own in fitted.weights]


@pytest.mark.parametrize("loss", ["softmax", "bernoulli"])
def test_the_number_of_threads_changes_no_bit(world, monkeypatch, loss):
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        found.append(tensors_of(trained(world, epochs=2, loss=loss)))
    assert found[0] == found[1]


def test_a_seed_decides_everything(world):
    first, again, other = (tensors_of(trained(world, epochs=1, seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert first != other


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


def test_a_validation_among_sampled_items_judges_by_their_hit_rate(world):
    changes = {"schedule": "patience", "patience": 2, "epochs": None, "max_steps": 12}
    fitted = trained(world, **changes, validate_every=2, validated_by="sampled-hr")
    plain = trained(world, **changes, validate_every=2)
    values = [progress.valid.value for progress in fitted.history]
    assert fitted.last.best == max(values)
    assert fitted.outcomes[0]["measure"] == "sampled HR@10"
    # Fewer than 100 items are unseen, so all of them are drawn.
    assert values == pytest.approx([progress.valid.hr for progress in fitted.history])
    assert fitted.history[0].valid.ndcg == plain.history[0].valid.ndcg


def test_without_validation_nothing_is_scored(world):
    timeline, _ = world
    for valid in (None, NextItems(np.empty(0, np.int32), np.empty(0, np.int32))):
        fitted = train_ranking(timeline, SMALL.replaced(epochs=1), valid=valid)
        assert fitted.last.valid is None
        assert fitted.last.best is None


def test_a_callback_receives_the_settled_settings(world):
    received = []

    class Records(Callback):
        def started(self, settings) -> None:
            received.append(settings)

    timeline, _ = world
    train_ranking(timeline, SMALL.replaced(epochs=1), callback=Records())
    assert [settings.max_steps for settings in received] == [4]


def test_nothing_to_train_on_is_said():
    with pytest.raises(SettingsError, match="no interaction to train on"):
        train_ranking(timeline_of(3, 3, 0, seed=0), SMALL)


def test_a_divergence_is_said(world):
    with pytest.raises(trainer.TrainingDiverged, match="try a lower learning_rate than 1e\\+30"):
        trained(world, learning_rate=1e30, max_norm=None, max_entry=None)


def test_the_cold_start_row_is_a_mean_and_its_item_bias_that_of_the_rarest():
    """Of those with interactions; an item without any reads the cold-start row of W."""
    users, items = [0, 0, 0, 2, 2, 3], [0, 1, 2, 0, 1, 0]
    arrays = (np.array(each, np.int32) for each in (users, items))
    timeline = Timeline.of(*arrays, np.arange(6), n_users=5, n_items=4)
    settings = SMALL.replaced(epochs=2, residual_units=3, batch_users=2, l2=0)
    result = train_ranking(timeline, settings)
    network, rows = trained_network(result, timeline)
    assert rows["users"].tolist() == [0, 5, 2, 3, 5]
    assert rows["items"].tolist() == [0, 1, 2, 3]
    weights = result.weights[0]
    for name, active in (("users", [0, 2, 3]), ("items", [0, 1, 2])):
        for key in "WV":
            mean = weights[f"{name}.{key}.values"][active].mean(0)
            np.testing.assert_allclose(network.tables[f"{name}.{key}"].values[-1], mean, rtol=1e-5)
    assert np.array_equal(network.items.W.array[3], network.items.W.array[-1])
    assert np.array_equal(network.items.b.array[-1], network.items.b.array[2])
