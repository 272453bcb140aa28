"""A training that was left at any step and taken up again ends in the same bits."""

from __future__ import annotations

import math
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from cfuica.errors import ModelFileError
from cfuica.metrics.rating_metrics import RatingScores
from cfuica.settings import RatingSettings
from cfuica.training import rating_task
from cfuica.training.checkpoint import (
    Checkpoint,
    Checkpointer,
    CheckpointFolder,
    TrainingDiverged,
    TrainingInterrupted,
)
from cfuica.training.rating_task import train, trained_networks
from cfuica.training.trainer import Trained
from tests.model.reference import matrix_of, random_cells
from tests.training.stopping import StopAfter
from tests.training.test_checkpoint import equal, same
from tests.training.test_trainer import SMALL, STARS, rated

CELLS = random_cells(30, 25, 5, 420, seed=0)
TRAIN, HELD_OUT = (
    matrix_of({pair: CELLS[pair] for pair in pairs}, 30, 25, 5)
    for pairs in (list(CELLS)[:300], list(CELLS)[300:])
)
VALID = rated(HELD_OUT, STARS)
PLANNED = SMALL.replaced(max_steps=7, validate_every=3, ensemble_size=2)
COLD_START = SMALL.replaced(
    max_steps=4, validate_every=3, cold_start_units=3, length_normalisation=0.5
)
PATIENCE = SMALL.replaced(
    schedule="patience", learning_rate=3.0, max_steps=20, validate_every=1, patience=1,
    rate_divisor=3.0, stop_rate=0.2,
)  # fmt: skip


def trained_in_legs(
    settings: RatingSettings, legs: list[int], *, has_valid: bool = True
) -> Trained:
    """Interrupted after so many steps, again and again; the last leg goes to the end."""
    valid = VALID if has_valid else None
    with TemporaryDirectory() as folder:
        for leg in [*legs, 10**9]:
            with suppress(TrainingInterrupted):
                checkpointer = StopAfter(Path(folder), leg)
                return train(TRAIN, settings, STARS, valid=valid, checkpointer=checkpointer)
    raise AssertionError("the last leg does not stop")


def records_of(trained: Trained) -> list[dict[str, object]]:
    records = [asdict(progress) for progress in trained.history]
    return [{k: v for k, v in each.items() if "seconds" not in k} for each in records]


@st.composite
def cases(draw: st.DrawFn) -> tuple[RatingSettings, bool]:
    settings = SMALL.replaced(
        schedule=draw(st.sampled_from(["planned", "patience"])),
        keep_best=draw(st.booleans()),
        weight_average=draw(st.sampled_from([0.0, 0.3])),
        estimator=draw(st.sampled_from(["published", "strict"])),
        ensemble_size=draw(st.integers(1, 2)),
        sides=draw(st.sampled_from(["both", "users", "items"])),
        share_labels=draw(st.booleans()),
        l2=draw(st.sampled_from([0.0, 1e-3])),
        max_steps=draw(st.integers(1, 8)),
        validate_every=draw(st.integers(1, 4)),
        patience=draw(st.integers(1, 2)),
        learning_rate=draw(st.sampled_from([0.02, 0.5])),
        stop_rate=0.02,
        cold_start_units=draw(st.sampled_from([0, 3])),
        length_normalisation=draw(st.sampled_from([0.0, 1.0])),
        dropout=draw(st.sampled_from([0.0, 0.3])),
    )
    return settings, draw(st.booleans())


@examples(max_examples=30, deadline=None)
@given(case=cases(), legs=st.lists(st.integers(1, 9), min_size=1, max_size=4))
@example((PLANNED, True), [1])  # in the first step
@example((PLANNED, True), [3])  # on a validation
@example((PLANNED, True), [7])  # on the last step of a member
@example((PLANNED, True), [8])  # on the first step of the next one
@example((PLANNED, True), [14])  # on the last step of all
@example((PLANNED, True), [1] * 14)
@example((PLANNED, False), [2, 7])
@example((PLANNED.replaced(keep_best=True, learning_rate=0.5), True), [1] * 14)
@example((PLANNED.replaced(weight_average=0.3), True), [1] * 14)
@example((PLANNED.replaced(weight_average=0.3, max_steps=14, validate_every=13), False), [11, 3])
@example((COLD_START, True), [4])  # between the model and the cold-start network
@example((COLD_START, True), [5])  # on the first step of the cold-start network
@example((COLD_START, False), [6])
@example((COLD_START, True), [8])
@example((COLD_START.replaced(ensemble_size=2, estimator="strict"), True), [1] * 12)
@example((PATIENCE.replaced(cold_start_units=3), True), [1] * 24)
@example((PATIENCE, True), [1] * 12)
@example((PATIENCE.replaced(patience=2), True), [1] * 20)  # in the middle of waiting
@example((PATIENCE.replaced(weight_average=0.3), True), [1] * 12)
@example((PATIENCE.replaced(estimator="strict", ensemble_size=3), True), [1] * 36)
def test_a_training_in_legs_ends_like_one_in_one_go(
    case: tuple[RatingSettings, bool], legs: list[int]
) -> None:
    settings, has_valid = case
    whole = train(TRAIN, settings, STARS, valid=VALID if has_valid else None)
    legged = trained_in_legs(settings, legs, has_valid=has_valid)
    assert equal(legged.weights, whole.weights)
    assert len(whole.weights) == settings.networks
    assert records_of(legged) == records_of(whole)
    assert legged.steps == whole.steps


def test_the_patient_example_cuts_and_stops() -> None:
    """Otherwise the examples above would not hold what a restored schedule must remember."""
    history = train(TRAIN, PATIENCE.replaced(cold_start_units=3), STARS, valid=VALID).history
    for cold_start in (False, True):
        verdicts = [each.verdict for each in history if each.cold_start == cold_start]
        assert {"improved", "cut", "stop"} <= set(verdicts), verdicts


def test_time_goes_on_where_it_was_left(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        train(TRAIN, PLANNED, STARS, valid=VALID, checkpointer=StopAfter(tmp_path, 4))
    restored = CheckpointFolder(tmp_path).newest()
    assert restored is not None
    restored.states["loop"]["seconds"] += 1000
    restored.states["loop"]["seconds_in_steps"] += 500

    class Continue(Checkpointer):
        def restored(self) -> Checkpoint | None:
            return restored

    fitted = train(TRAIN, PLANNED, STARS, valid=VALID, checkpointer=Continue())
    assert 1000 < fitted.seconds < 1100
    assert 500 < fitted.seconds_in_steps < 600


def test_a_checkpoint_is_not_changed_by_resuming_from_it(tmp_path: Path) -> None:
    checkpointer = StopAfter(tmp_path / "a", 5)
    with pytest.raises(TrainingInterrupted):
        train(TRAIN, PATIENCE.replaced(patience=9), STARS, valid=VALID, checkpointer=checkpointer)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    restored = CheckpointFolder(tmp_path / "b").newest()
    assert restored is not None
    assert restored.states["best"]

    class Continue(Checkpointer):
        def restored(self) -> Checkpoint | None:
            return restored

    train(TRAIN, PATIENCE.replaced(patience=9), STARS, valid=VALID, checkpointer=Continue())
    again = CheckpointFolder(tmp_path / "a").newest()
    assert again is not None
    assert same(restored, again)


def test_restored_finished_networks_are_not_changed_by_resuming(tmp_path: Path) -> None:
    """A lone network's tensors become the model's, which gets a row for cold-start users."""
    with pytest.raises(TrainingInterrupted):
        train(TRAIN, COLD_START, STARS, valid=VALID, checkpointer=StopAfter(tmp_path, 5))
    restored = CheckpointFolder(tmp_path).newest()
    assert restored is not None
    assert restored.member == 1

    class Continue(Checkpointer):
        def restored(self) -> Checkpoint | None:
            return restored

    fitted = train(TRAIN, COLD_START, STARS, valid=VALID, checkpointer=Continue())
    assert trained_networks(fitted, TRAIN)[0]["warm"].users.W.values[-1].any()
    again = CheckpointFolder(tmp_path).newest()
    assert again is not None
    assert equal(restored.finished[0], again.finished[0])


@pytest.mark.parametrize(
    "change", [{"hidden_users": 7}, {"sides": "users"}, {"hidden_users": 3, "hidden_items": 3}]
)
def test_a_checkpoint_of_another_model_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    with pytest.raises(TrainingInterrupted):
        train(TRAIN, SMALL, STARS, valid=VALID, checkpointer=StopAfter(tmp_path, 2))
    other = SMALL.replaced(**change)
    with pytest.raises(ModelFileError, match="not of these settings"):
        train(TRAIN, other, STARS, valid=VALID, checkpointer=StopAfter(tmp_path, 2))


def test_a_divergence_that_only_validation_sees_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last step no further loss would tell."""
    nothing = RatingScores(rmse=math.nan, mae=math.nan, nll=math.nan, n=1)
    monkeypatch.setattr(rating_task, "rating_scores", lambda *_: nothing)
    with pytest.raises(TrainingDiverged, match=r"step 6: the validation RMSE is nan.*lower learn"):
        train(TRAIN, SMALL, STARS, valid=VALID)


def test_a_divergence_is_never_saved(tmp_path: Path) -> None:
    class Always(StopAfter):
        def is_due(self) -> bool:
            return True

    settings = SMALL.replaced(learning_rate=1e20, max_steps=400)
    with pytest.raises(TrainingDiverged):
        train(TRAIN, settings, STARS, valid=VALID, checkpointer=Always(tmp_path, -1))
    restored = CheckpointFolder(tmp_path).newest()
    assert restored is None or all(
        torch.isfinite(tensor).all() for tensor in restored.states["network"].values()
    )
