"""A long validation: it can be stopped and saved in the middle, and says how far it is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from cfuica.metrics import ranking_metrics
from cfuica.ops.tables import Bags
from cfuica.settings import RankingSettings
from cfuica.training import rating_task
from cfuica.training.checkpoint import Checkpoint, Checkpointer, TrainingInterrupted
from cfuica.training.ranking_task import NextItems, train_ranking
from cfuica.training.rating_task import train
from cfuica.training.trainer import Callback, Trained, describe_outcome
from tests.runs.small import small_table
from tests.training.stopping import StopAfter
from tests.training.test_checkpoint import equal
from tests.training.test_checkpoint_resume import COLD_START, PATIENCE, PLANNED, TRAIN, VALID
from tests.training.test_trainer import STARS


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rating_task, "ENTRIES_PER_PART", 50)
    monkeypatch.setattr(ranking_metrics, "_SCORES", 60 * 9)


class Shares(Callback):
    def __init__(self) -> None:
        self.shares: list[float] = []

    def validating(self, member: int, step: int, share: float) -> None:
        self.shares.append(share)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("settings", [PLANNED, PATIENCE, COLD_START])
def test_a_training_that_is_stopped_inside_validations_ends_in_the_same_bits(settings) -> None:
    whole = train(TRAIN, settings, STARS, valid=VALID)
    stopped = 0
    with TemporaryDirectory() as folder:
        for leg in [3, 5, 9, 16, 10**9]:
            checkpointer = StopAfter(Path(folder), leg)
            with suppress(TrainingInterrupted):
                found = train(TRAIN, settings, STARS, valid=VALID, checkpointer=checkpointer)
            checkpoint = checkpointer.checkpoints.newest()
            assert checkpoint is not None
            stopped += checkpoint.states["loop"]["unvalidated"] is not None
    assert stopped > 1
    assert [one.valid for one in found.history] == [one.valid for one in whole.history]
    assert all(equal(one, other) for one, other in zip(found.weights, whole.weights, strict=True))


@pytest.mark.usefixtures("in_parts")
def test_a_stop_and_a_checkpoint_do_not_wait_for_the_end_of_a_validation() -> None:
    class Due(Checkpointer):
        def __init__(self) -> None:
            self.inside = 0

        def is_due(self) -> bool:
            return True

        def save(self, checkpoint: Checkpoint) -> None:
            self.inside += checkpoint.states["loop"]["unvalidated"] is not None

    due, shares = Due(), Shares()
    train(TRAIN, PLANNED, STARS, valid=VALID, checkpointer=due, callback=shares)
    assert due.inside == len(shares.shares) > 10
    assert all(0 < share < 1 for share in shares.shares)
    assert shares.shares[:3] == sorted(shares.shares[:3])


def test_a_validation_in_parts_is_the_whole_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(TRAIN, PLANNED, STARS, valid=VALID)
    monkeypatch.setattr(rating_task, "ENTRIES_PER_PART", 1)
    assert [one.valid for one in train(TRAIN, PLANNED, STARS, valid=VALID).history] == [
        one.valid for one in whole.history
    ]


def test_the_parts_of_contexts_are_all_of_them_in_order() -> None:
    bags = Bags(np.array([0, 0, 3, 3, 4, 9, 9]), np.arange(9, dtype=np.int32))
    for entries in (1, 2, 4, 100):
        parts = bags.split(entries)
        np.testing.assert_array_equal(
            np.concatenate([part.entries for part in parts]), np.arange(9)
        )
        np.testing.assert_array_equal(np.concatenate([part.sizes for part in parts]), bags.sizes)
    assert len(bags.split(100)) == 1
    assert len(Bags(np.zeros(1, np.int64), np.empty(0, np.int32)).split(5)) == 1


def ranking(checkpointer: Checkpointer | None = None, callback: Callback | None = None) -> Trained:
    table = small_table()
    timeline = table.timeline(users=table.users, items=table.item_ids, has_times=True)
    users = np.arange(timeline.n_users, dtype=np.int32)
    settings = RankingSettings(
        hidden_users=4, hidden_items=4, batch_users=50, max_steps=4, schedule="planned",
        validate_every=2,
    )  # fmt: skip
    valid = NextItems(users, (users % timeline.n_items).astype(np.int32))
    return train_ranking(
        timeline, settings, valid=valid, checkpointer=checkpointer, callback=callback
    )


@pytest.mark.usefixtures("in_parts")
def test_a_ranking_can_be_stopped_inside_a_validation_too(tmp_path: Path) -> None:
    shares = Shares()
    whole = ranking(callback=shares)
    assert len(shares.shares) > 4
    with pytest.raises(TrainingInterrupted, match="after step 2"):
        ranking(StopAfter(tmp_path, 4))
    found = ranking(StopAfter(tmp_path, 10**9))
    assert [one.valid for one in found.history] == [one.valid for one in whole.history]
    assert all(equal(one, other) for one, other in zip(found.weights, whole.weights, strict=True))


@pytest.mark.parametrize(("settings", "kept"), [(PLANNED, "last"), (PATIENCE, "best")])
def test_it_is_said_which_parameters_were_kept(settings, kept: str) -> None:
    trained = train(TRAIN, settings, STARS, valid=VALID)
    assert len(trained.outcomes) == settings.ensemble_size
    for member, found in enumerate(trained.outcomes):
        own = [one for one in trained.history if one.member == member]
        best = min(own, key=lambda one: one.valid.rmse)
        chosen = own[-1] if kept == "last" else best
        assert found["parameters"] == kept
        assert (found["step"], found["valid"]) == (chosen.step, chosen.valid.rmse)
        assert (found["best_step"], found["best"]) == (best.step, best.valid.rmse)
        said = describe_outcome(found)
        assert f"the {kept} parameters, of step {chosen.step} " in said
        assert ("the best was" in said) == (chosen is not best)
    assert train(TRAIN, PLANNED, STARS).outcomes == []
