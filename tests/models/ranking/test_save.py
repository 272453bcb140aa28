"""A ranking model as a folder: what comes back, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

import cfuica
from cfuica.errors import ModelFileError
from cfuica.io import sha256_of_file
from cfuica.models.co_autoregressive import RankingModel
from tests.live.ranking_world import KINDS, fresh
from tests.test_artifact import reseal

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Look, do not touch."""
    return fresh("decay").save(tmp_path_factory.mktemp("models") / "ranking")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to do anything to."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def change_card(folder: Path, **changes: Any) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    reseal(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_comes_back_as_what_it_is(kind: str, tmp_path: Path) -> None:
    model = fresh(kind)
    again = cfuica.load(model.save(tmp_path / "model"))
    assert isinstance(again, RankingModel)
    assert again.settings == KINDS[kind]
    assert again.artifact.has_times == (kind != "untimed")
    assert again.artifact.interactions.sha256() == model.artifact.interactions.sha256()
    all_rows = model.users.ids
    assert again.recommend(all_rows, 99).equals(model.recommend(all_rows, 99))
    second = again.save(tmp_path / "second")
    for name in ("model.safetensors", "model.json", "interactions.parquet"):
        assert sha256_of_file(second / name) == sha256_of_file(tmp_path / "model" / name)


def test_the_card_and_the_interactions_say_what_the_model_is(saved: Path) -> None:
    card = json.loads((saved / "model.json").read_text())
    assert (card["task"], card["format"], card["has_times"]) == ("ranking", 2, True)
    frame = pl.read_parquet(saved / "interactions.parquet")
    assert frame.columns == ["user", "item", "timestamp"]
    assert frame.schema["timestamp"] == pl.Int64
    assert frame.select("user", "timestamp").equals(
        frame.select("user", "timestamp").sort("user", "timestamp")
    )


def _drop_times(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop("timestamp")


def _lose_a_time(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.when(pl.int_range(pl.len()) > 0).then("timestamp"))


def _twice(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([frame, frame.head(1)])


def _far_item(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.lit(99, pl.Int32).alias("item"))


@pytest.mark.parametrize("change", [_drop_times, _lose_a_time, _twice, _far_item])
def test_other_interactions_are_refused(
    folder: Path, change: Callable[[pl.DataFrame], pl.DataFrame]
) -> None:
    path = folder / "interactions.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    reseal(folder)
    with pytest.raises(ModelFileError):
        cfuica.load(folder)


def _no_log_times(tensors: Tensors) -> None:
    del tensors["items.log_time_constants"]


def _short_log_times(tensors: Tensors) -> None:
    tensors["items.log_time_constants"] = tensors["items.log_time_constants"][:-1].clone()


def _log_times_of_users(tensors: Tensors) -> None:
    tensors["users.log_time_constants"] = torch.zeros(3)


def _more_input_labels(tensors: Tensors) -> None:
    tensors["items.W"] = tensors["items.W"].repeat(1, 3, 1)


def _more_output_labels(tensors: Tensors) -> None:
    tensors["items.V"] = tensors["items.V"].repeat(1, 3, 1)


def _fewer_rows(tensors: Tensors) -> None:
    for name in "WVb":
        tensors[f"items.{name}"] = tensors[f"items.{name}"][:4].clone()


def _infinite(tensors: Tensors) -> None:
    tensors["items.log_time_constants"][0] = np.inf


@pytest.mark.parametrize(
    "change",
    [
        _no_log_times,
        _short_log_times,
        _log_times_of_users,
        _more_input_labels,
        _more_output_labels,
        _fewer_rows,
        _infinite,
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[Tensors], None]
) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors, path)
    reseal(folder)
    cfuica.load(folder)  # unchanged tensors written anew are accepted
    change(tensors)
    save_file(tensors, path)
    reseal(folder)
    with pytest.raises(ModelFileError):
        cfuica.load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "rating"},
        {"has_times": "yes"},
        {"settings": {"hidden_users": 3, "hidden_items": 5}},
        {"settings": KINDS["decay"].replaced(learned_decay=False).model_dump()},
    ],
)
def test_a_card_of_another_model_is_refused(folder: Path, changes: dict[str, Any]) -> None:
    change_card(folder, **changes)
    with pytest.raises(ModelFileError):
        cfuica.load(folder)


def test_a_changed_file_is_refused(saved: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(saved, tmp_path / "model"))
    path = copied / "interactions.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ModelFileError, match="has changed"):
        cfuica.load(copied)
