from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cfuica.data.splits import Split
from cfuica.errors import SettingsError
from cfuica.models.co_autoregressive import RatingModel
from cfuica.runs.callbacks import TensorBoardFiles
from tests.runs.small import TINY, progress, small_table

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="needs the extra viz"
)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run: name -> (step, value)."""
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        name: [(event.step, pytest.approx(event.value)) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_everything_about_a_validation_is_shown_at_its_step(tmp_path: Path) -> None:
    with TensorBoardFiles(tmp_path) as board:
        board.started(TINY)
        board.stepped(0, 10, 1.25)
        board.validated(progress(step=10, rmse=0.9, best=0.8))
    assert scalars(tmp_path / "model-1") == {
        "training/loss": [(10, 1.25)],
        "training/learning rate": [(10, 0.01)],
        "training/gradient norm": [(10, 0.5)],
        "validation/RMSE": [(10, 0.9)],
        "validation/MAE": [(10, 0.7)],
        "validation/NLL": [(10, 1.3)],
        "validation/best RMSE": [(10, 0.8)],
    }


def test_it_can_be_read_while_training_goes_on(tmp_path: Path) -> None:
    with TensorBoardFiles(tmp_path) as board:
        board.stepped(0, 10, 1.25)
        board.validated(progress(step=10))
        assert scalars(tmp_path / "model-1")["validation/RMSE"] == [(10, 0.9)]


def test_without_validation_there_are_no_empty_curves(tmp_path: Path) -> None:
    with TensorBoardFiles(tmp_path) as board:
        board.validated(progress(rmse=None))
    assert not [name for name in scalars(tmp_path / "model-1") if name.startswith("validation")]


def test_every_member_of_a_training_is_a_run_of_its_own(tmp_path: Path) -> None:
    table = small_table()
    split = Split.random(table.n)
    settings = TINY.replaced(ensemble_size=2, max_steps=4, validate_every=2)
    with TensorBoardFiles(tmp_path) as board:
        model = RatingModel(settings).fit(
            table.take(split.train), valid=table.take(split.valid), vocabulary=table, callback=board
        )
    assert model.trained is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model-1", "model-2"]
    for member in range(2):
        shown = scalars(tmp_path / f"model-{member + 1}")
        history = [entry for entry in model.trained.history if entry.member == member]
        assert [step for step, _ in shown["training/loss"]] == [1, 2, 3, 4]
        assert [e.loss for e in history] == [loss for _, loss in shown["training/loss"][1::2]]
        assert shown["validation/RMSE"] == [(e.step, e.valid.rmse) for e in history if e.valid]


def test_the_cold_start_network_is_a_run_by_that_name(tmp_path: Path) -> None:
    with TensorBoardFiles(tmp_path) as board:
        board.started(TINY.replaced(cold_start_units=3))
        board.stepped(0, 10, 1.25)
        board.stepped(1, 10, 1.5)
        board.validated(progress(step=10, member=1, networks=2, cold_start=True, rmse=1.1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cold_start", "model-1"]
    assert scalars(tmp_path / "cold_start")["validation/RMSE"] == [(10, 1.1)]


def test_resuming_goes_on_and_hides_what_is_done_again(tmp_path: Path) -> None:
    with TensorBoardFiles(tmp_path) as board:
        for member in range(3):
            for step in range(1, 5):
                board.stepped(member, step, 1.0)
    # TensorBoard reads files by name, which begins with the second they are of: here an earlier.
    for path in tmp_path.rglob("events.*"):
        path.rename(path.with_name(path.name.replace("tfevents.", "tfevents.0")))
    with TensorBoardFiles(tmp_path, resumed_after=(1, 2)) as board:
        for member, steps in ((1, (3, 4, 5)), (2, (1, 2))):
            for step in steps:
                board.stepped(member, step, 2.0)
    losses = [scalars(tmp_path / f"model-{number}")["training/loss"] for number in (1, 2, 3)]
    assert losses == [
        [(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)],
        [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0)],
        [(1, 2.0), (2, 2.0)],
    ]


def test_without_tensorboard_the_extra_is_named_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with (
        pytest.raises(SettingsError, match=r"extra viz .*: pip install 'cfuica\[viz\]'"),
        TensorBoardFiles(tmp_path / "tensorboard"),
    ):
        pytest.fail("training would start")
    assert not list(tmp_path.iterdir())
