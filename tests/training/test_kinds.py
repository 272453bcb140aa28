"""Every kind of training, small: by the references as by the compiled ops, and to the same bits
from a checkpoint."""

from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from cfuica.data.matrix import RatedPairs
from cfuica.errors import ModelFileError
from cfuica.settings import RankingSettings
from cfuica.training.checkpoint import (
    Checkpoint,
    Checkpointer,
    CheckpointFolder,
    TrainingInterrupted,
)
from cfuica.training.ranking_task import NextItems, train_ranking
from cfuica.training.rating_task import train
from cfuica.training.trainer import Callback, Trained, _NetworkTraining
from tests.model.reference import matrix_of, random_cells
from tests.training.cases import KINDS, task_of
from tests.training.histories import timeline_of
from tests.training.stopping import StopAfter
from tests.training.test_checkpoint import equal, same

STARS = np.arange(1, 4, dtype=np.float32)


class Losses(Callback):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def stepped(self, member: int, step: int, loss: float) -> None:
        self.losses.append(loss)


def trained(kind: str, callback=None, checkpointer=None, **changes: object) -> Trained:
    """On validated data."""
    settings = KINDS[kind][0].replaced(**changes)
    options = {"callback": callback, "checkpointer": checkpointer}
    if isinstance(settings, RankingSettings):
        following = NextItems(*(np.arange(8, dtype=np.int32) for _ in range(2)))
        return train_ranking(timeline_of(14, 11, 90, seed=0), settings, valid=following, **options)
    cells = random_cells(20, 15, 3, 180)
    pairs = list(cells)
    matrix = matrix_of({pair: cells[pair] for pair in pairs[:150]}, 20, 15, 3)
    users_p, items_p = np.array(pairs[150:], np.int32).T.copy()
    labels_p = np.array([cells[pair] for pair in pairs[150:]], np.uint8)
    valid = RatedPairs(users_p, items_p, labels_p, STARS[labels_p].astype(np.float64))
    return train(matrix, settings, STARS, valid=valid, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_the_references_train_to_the_losses_of_the_compiled_ops(kind, monkeypatch):
    """On the CPU, as any other device would."""
    compiled, by_reference = Losses(), Losses()
    first = trained(kind, compiled)
    monkeypatch.setenv("CFUICA_OPS", "reference")
    # A compiled op would be no reference.
    for module in ("encode", "decode", "loss", "adam"):
        monkeypatch.setattr(f"cfuica.ops.{module}.run_rows", None)
    second = trained(kind, by_reference)
    assert len(compiled.losses) == 8 * first.settings.networks
    assert max(compiled.losses) - min(compiled.losses) > 0.01, "something must be learned"
    np.testing.assert_allclose(by_reference.losses, compiled.losses, rtol=1e-4)
    for one, other in zip(first.history, second.history, strict=True):
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-3)
        assert one.valid.value == pytest.approx(other.valid.value, rel=1e-3)


@pytest.mark.parametrize("average", [0.0, 0.4])
@pytest.mark.parametrize("schedule", ["planned", "patience"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_training_ends_in_the_bits_of_an_uninterrupted_one(
    kind, schedule, average, tmp_path
):
    """Stopped after every third step, through files."""
    changes = {"schedule": schedule, "patience": 1, "weight_average": average, "ensemble_size": 2}
    whole, resumed = trained(kind, **changes), None
    legs = 0
    while resumed is None:
        with suppress(TrainingInterrupted):
            resumed = trained(kind, checkpointer=StopAfter(tmp_path, 3), **changes)
        legs += 1
    assert legs > 2
    assert equal(resumed.weights, whole.weights)
    curves = [
        [(p.member, p.step, p.loss, p.gradient_norm, p.valid, p.verdict) for p in each.history]
        for each in (resumed, whole)
    ]
    assert curves[0] == curves[1]


class InMemory(StopAfter):
    """Has what it wrote beside what is on disk."""

    def save(self, checkpoint: Checkpoint) -> None:
        self.saved = copy.deepcopy(checkpoint)
        super().save(checkpoint)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_on_disk_is_read_back_as_it_was(kind, tmp_path: Path):
    changes = {"weight_average": 0.3, "schedule": "patience", "max_steps": 6}
    checkpointer = InMemory(tmp_path, 5)
    with pytest.raises(TrainingInterrupted):
        trained(kind, checkpointer=checkpointer, **changes)
    restored = CheckpointFolder(tmp_path).newest()
    assert restored is not None
    assert {"network", "optimizer", "schedule", "average", "best", "loop"} == set(restored.states)
    assert restored.states["best"], "something must be best by then"
    assert same(restored, checkpointer.saved)


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_with_the_state_of_another_goes_on_to_the_same_bits(kind):
    task, number = task_of(kind, weight_average=0.4)
    blocks = task.blocks(number)
    first, second = (_NetworkTraining(task, number, [], 0.0) for _ in range(2))

    def steps(run: _NetworkTraining, numbers: range) -> list[tuple[float, float]]:
        return [run.minibatch(blocks.draw(step), 0.02) for step in numbers]

    def states(run: _NetworkTraining) -> dict:
        return {key: state for key, state in run.state_dict().items() if key != "loop"}

    steps(first, range(4))
    first.schedule.judge(1.5)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.step == 4
    assert equal(states(second), states(first))
    assert steps(first, range(4, 8)) == steps(second, range(4, 8))
    assert equal(states(second), states(first))
    assert first.schedule.judge(1.6) == second.schedule.judge(1.6) == "continue"


@pytest.mark.parametrize(
    "damage",
    [
        lambda states: states.pop("optimizer"),
        lambda states: states["optimizer"].pop("steps"),
        lambda states: states["optimizer"]["mean"].pop("users.W"),
        lambda states: states["network"].pop("users.c"),
        lambda states: states["schedule"].pop("cuts"),
        lambda states: states.update(average={}),
        lambda states: states.pop("best"),
        lambda states: states["loop"].pop("verdict"),
        lambda states: states["optimizer"]["mean"].update({"users.W": torch.ones(1)}),
    ],
)
def test_a_checkpoint_with_something_missing_is_refused_with_a_sentence(damage, tmp_path):
    """As of another version, for instance."""
    changes = {"weight_average": 0.3, "schedule": "patience"}
    checkpointer = InMemory(tmp_path, 4)
    with pytest.raises(TrainingInterrupted):
        trained("rating", checkpointer=checkpointer, **changes)
    damage(checkpointer.saved.states)

    class Damaged(Checkpointer):
        def restored(self) -> Checkpoint:
            return checkpointer.saved

    with pytest.raises(ModelFileError, match=r"not of these settings.*train again\.$"):
        trained("rating", checkpointer=Damaged(), **changes)
