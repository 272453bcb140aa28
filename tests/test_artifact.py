"""Saved models: what comes back, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

import cfuica
from cfuica.artifact import FILES, LARGEST_WEIGHT, NAMES, Artifact, saved_tensors
from cfuica.data.table import Interactions
from cfuica.errors import ModelFileError
from cfuica.io import MANIFEST, exchanged, sha256_of_file
from cfuica.model.network import Network
from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.recommender import load
from cfuica.settings import RankingSettings, RatingSettings
from tests.runs.small import TINY, small_table


@pytest.fixture(scope="module")
def model() -> RatingModel:
    return RatingModel(TINY).fit(small_table())


@pytest.fixture(scope="module")
def saved(model: RatingModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; look, do not touch."""
    return model.save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A model folder to do anything to."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def card_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "model.json").read_text("utf-8"))


def reseal(folder: Path) -> None:
    """A manifest of what is there now, so that the other checks have to notice what is wrong."""
    names = {path.name for path in folder.iterdir()} - {MANIFEST}
    hashes = {name: sha256_of_file(folder / name) for name in sorted(names)}
    (folder / MANIFEST).write_text(json.dumps(hashes))


def write_card(folder: Path, **changes: object) -> None:
    (folder / "model.json").write_text(json.dumps({**card_of(folder), **changes}))
    reseal(folder)


def write_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    reseal(folder)


# What comes back.


def test_predictions_come_back_bit_for_bit(model: RatingModel, saved: Path) -> None:
    pairs = small_table().frame.select("user", "item")
    again = cfuica.load(saved)
    np.testing.assert_array_equal(again.predict_proba(pairs), model.predict_proba(pairs))
    assert again.recommend([1, 2], 7).equals(model.recommend([1, 2], 7))
    assert again.settings == model.settings
    assert again.evaluate(small_table()) == model.evaluate(small_table())


def test_a_model_that_was_loaded_can_be_saved_again(saved: Path, tmp_path: Path) -> None:
    again = load(saved).save(tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (saved / "model.safetensors").read_bytes()
    assert card_of(again) == card_of(saved)


def test_saving_is_deterministic(model: RatingModel, saved: Path, tmp_path: Path) -> None:
    second = model.save(tmp_path / "second")
    for name in ("model.safetensors", "model.json"):
        assert (second / name).read_bytes() == (saved / name).read_bytes()


def test_text_ids_and_missing_titles_come_back(tmp_path: Path) -> None:
    frame = small_table().frame.with_columns(user=pl.format('ü, "{}"', pl.col("user")))
    model = RatingModel(TINY.replaced(max_steps=1)).fit(frame)
    again = load(model.save(tmp_path / "model"))
    assert again.recommend(['ü, "7"'], 3).equals(model.recommend(['ü, "7"'], 3))
    assert "title" not in again.recommend(['ü, "7"'], 3).columns


def test_the_card_says_what_the_model_is(saved: Path) -> None:
    card = card_of(saved)
    assert card["format"] == 2
    assert card["task"] == "rating"
    assert card["cfuica"] == cfuica.__version__
    assert card["settings"] == TINY.model_dump()
    assert card["label_values"] == [1, 2, 3, 4, 5]


def test_a_network_for_cold_start_and_its_correction_come_back(tmp_path: Path) -> None:
    frame = small_table().frame.sample(fraction=1, shuffle=True, seed=0)
    settings = TINY.replaced(cold_start_units=3, length_normalisation=1)
    model = RatingModel(settings).fit(frame.head(1500), valid=frame.tail(700), vocabulary=frame)
    folder = model.save(tmp_path / "model")
    names = set(load_file(folder / "model.safetensors"))
    own = {name for name in names if not name.startswith("cold_start.")}
    assert names - own == {f"cold_start.{name}" for name in own}
    again = load(folder)
    for of, before in model.artifact.networks.items():
        after = again.artifact.networks[of]
        calibration = again.artifact.calibrations[of]
        assert calibration == model.artifact.calibrations[of]
        assert not calibration.is_identity
        for name, side in before.sides.items():
            assert after.sides[name].length_norm == side.length_norm
        for name, tensor in saved_tensors(before).items():
            assert torch.equal(saved_tensors(after)[name], tensor)
    pairs = {"user": [1, 999, 1], "item": [2, 2, 999]}
    np.testing.assert_array_equal(again.predict_proba(pairs), model.predict_proba(pairs))
    # Without it the model is not whole.

    def drop(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["cold_start.items.V"]

    write_tensors(folder, drop)
    with pytest.raises(ModelFileError, match=r"cold_start: found tensors of shapes"):
        load(folder)


def test_all_that_is_known_of_the_items_comes_back(tmp_path: Path) -> None:
    ids = list(range(1, 61))
    item_metadata = pl.DataFrame(
        {
            "item": ids,
            "title": [f"T{item}" for item in ids],
            "series": [item // 10 if item > 5 else None for item in ids],
            "index": [str(item) for item in ids],
            "tags": [[item, item + 1] for item in ids],
        }
    )
    table = Interactions.from_frame(small_table().frame, items=item_metadata.reverse())
    model = RatingModel(TINY.replaced(max_steps=1)).fit(table)
    known = item_metadata.filter(pl.col("item").is_in(model.artifact.items.ids.to_list()))
    for one in (model, load(model.save(tmp_path / "model"))):
        assert one.artifact.item_metadata is not None
        assert one.artifact.item_metadata.equals(known)


def test_a_run_folder_can_be_loaded_through(folder: Path) -> None:
    assert load(folder.parent).settings == TINY


# How it is written.


def test_files_are_as_readable_as_any_other(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "any").write_text("x")
    usual = stat.S_IMODE((tmp_path / "any").stat().st_mode)
    assert {path.name for path in saved.iterdir()} == FILES
    for path in saved.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == usual


def test_parents_are_made_and_an_older_model_is_replaced(
    model: RatingModel, tmp_path: Path
) -> None:
    place = tmp_path / "a" / "b"
    model.save(place)
    (place / "users.parquet").write_bytes(b"damaged")
    model.save(str(place))
    assert load(place).settings == TINY
    assert os.listdir(tmp_path / "a") == ["b"]


def test_a_link_stays_a_link(model: RatingModel, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "target").settings == TINY


def test_a_folder_with_anything_else_in_it_is_not_replaced(
    model: RatingModel, folder: Path
) -> None:
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(ModelFileError, match="not a model folder; choose another name"):
        model.save(folder)
    assert (folder / "thesis.tex").exists()


def test_a_file_is_not_replaced(model: RatingModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ModelFileError, match="not a model folder"):
        model.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("name", sorted(FILES - {MANIFEST}))
def test_a_model_that_is_replaced_while_it_is_read_is_the_new_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its card is the old one's and its files are the new one's, but nothing is damaged."""
    newer = cfuica.load(folder)
    newer.observe([(1, 777, 5.0)])
    hashed = cfuica.io.sha256_of_file
    replaced = []

    def replacing(path: Path) -> str:
        if not replaced and path == folder / name:
            replaced.append(newer.save(folder))
        return hashed(path)

    monkeypatch.setattr(cfuica.io, "sha256_of_file", replacing)
    again = load(folder)
    assert replaced
    assert 777 in again.items.ids


def test_a_model_that_changes_all_the_time_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[Path] = []

    def changing(path: Path) -> str:
        readings.append(path)
        (folder / MANIFEST).write_text(json.dumps(dict.fromkeys(FILES - {MANIFEST}, len(readings))))
        return "another"

    monkeypatch.setattr(cfuica.io, "sha256_of_file", changing)
    with pytest.raises(ModelFileError, match="is damaged"):
        load(folder)
    assert 2 <= len(readings) <= 10


def test_there_is_a_whole_model_at_every_moment_of_its_replacement(
    model: RatingModel, folder: Path
) -> None:
    """Seen by what Python does: a kill may come at any of these moments."""
    if not exchanged(folder, Path(shutil.copytree(folder, folder.parent / "other"))):
        pytest.skip("this file system cannot exchange two names")
    shutil.rmtree(folder.parent / "other")
    gone = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and not (folder / "model.json").is_file():
            gone.append(event)

    watching = True
    sys.addaudithook(look)  # which can never be removed
    model.save(folder)
    watching = False
    assert not gone
    assert os.listdir(folder.parent) == ["model"]


@pytest.mark.parametrize("place", ["file/model", "file/a/b"])
def test_a_place_where_nothing_can_be_made_is_named(
    model: RatingModel, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ModelFileError, match=r"cannot be written to .*; choose another place"):
        model.save(tmp_path / place)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["cfuica.artifact.write_tensors", "os.fsync", "os.replace"])
def test_a_failure_leaves_the_old_model_and_nothing_else(
    model: RatingModel, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    really, calls = os.replace, []

    def fail(*paths: Any) -> None:
        calls.append(paths)
        if step == "os.replace" and len(calls) != 2:
            return really(*paths)  # the old one out of the way, and back again
        raise OSError("disk full")

    monkeypatch.setattr(step, fail)
    monkeypatch.setattr("cfuica.io.exchanged", lambda *_: False)
    with pytest.raises(OSError, match="disk full"):
        model.save(folder)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert os.listdir(folder.parent) == ["model"]


# What is refused.


def test_where_there_is_no_model_nothing_is_loaded(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ModelFileError, match=r"There is no model in .*; give the folder"):
            load(place)


@pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
def test_a_missing_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelFileError, match=r"is damaged .*; copy the folder again"):
        load(folder)


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("damage", ["empty", "half", "garbage", "foreign"])
def test_a_damaged_file_is_refused(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "half": whole[: len(whole) // 2],
            "garbage": b"\x93\xff" + os.urandom(500),
            "foreign": b"PK\x03\x04 a zip file, perhaps",
        }[damage]
    )
    with pytest.raises(ModelFileError, match=str(folder)):
        load(folder)


@pytest.mark.parametrize("name", sorted(FILES - {MANIFEST}))
@pytest.mark.parametrize("damage", ["empty", "half", "garbage", "foreign"])
def test_a_damaged_file_with_a_fitting_manifest_is_refused(
    folder: Path, name: str, damage: str
) -> None:
    test_a_damaged_file_is_refused(folder, name, damage)
    reseal(folder)
    with pytest.raises(ModelFileError, match=str(folder)):
        load(folder)


@pytest.mark.parametrize("name", sorted(FILES - {MANIFEST}))
def test_a_single_changed_bit_is_refused(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=rf"{name} has changed.*; copy the folder again"):
        load(folder)


def test_a_file_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    other = RatingModel(TINY.replaced(seed=1)).fit(small_table()).save(tmp_path / "other")
    shutil.copy(other / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(ModelFileError, match=r"content of model\.safetensors has changed"):
        load(folder)


@pytest.mark.parametrize("hashes", [{}, [], 5, "no hashes", {"users.parquet": None}])
def test_a_manifest_that_is_none_is_refused(folder: Path, hashes: object) -> None:
    (folder / MANIFEST).write_text(json.dumps(hashes))
    with pytest.raises(ModelFileError, match="damaged"):
        load(folder)


@pytest.mark.parametrize(
    "text", ["[]", "null", "{}", '"text"', "1", "[" * 100_000, '{"format": 2}']
)
def test_a_card_that_is_no_card_is_refused(folder: Path, text: str) -> None:
    (folder / "model.json").write_text(text)
    reseal(folder)
    with pytest.raises(ModelFileError, match="damaged"):
        load(folder)


@pytest.mark.parametrize("writer", [{"cfuica": "9.9"}, {"cfuica": None}])
def test_another_format_names_the_version_that_wrote_it(
    folder: Path, writer: dict[str, object]
) -> None:
    write_card(folder, format=3, **writer)
    with pytest.raises(ModelFileError, match=r"in format 3, .* take the cfuica"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "Sorter"}, "holds a 'Sorter', which is none of RatingModel, .*load it with"),
        ({"task": "sorting"}, "damaged"),
        ({"settings": {**TINY.model_dump(), "hidden_users": -1}}, "damaged"),
        ({"settings": {**TINY.model_dump(), "colour": "red"}}, r"damaged .*\(colour: .* not perm"),
        ({"label_values": [1, 2, 3, 4]}, "do not fit the ids and labels beside it"),
        ({"label_values": [5, 4, 3, 2, 1]}, r"damaged .*\(the label scale is not .* ascending\)"),
        ({"label_values": ["a", "b", "c", "d", "e"]}, "damaged"),
        ({"label_values": [1, 2, 3, 4, None]}, r"damaged .*\(the label scale is not finite"),
        ({"label_values": 5}, "damaged"),
        ({"label_values": [1, 2, 3, 4, 10**400]}, "damaged"),
        ({"label_edges": [1.5, 2.5, 3.5]}, "5 values and 3 edges"),
        ({"label_edges": [1.5, 2.5, 2.5, 4.5]}, "not finite and ascending"),
        ({"label_edges": "1234"}, "damaged"),
    ],
)
def test_a_card_of_another_model_is_refused(
    folder: Path, changes: dict[str, object], message: str
) -> None:
    write_card(folder, **changes)
    with pytest.raises(cfuica.CfuicaError, match=message):
        load(folder)


@pytest.mark.parametrize(
    "rows",
    [
        [*range(99), 101],
        [*range(99), -1],
        [*range(99), None],
        [*range(99), 0.5],
        [str(row) for row in range(100)],
    ],
)
def test_rows_that_no_parameters_can_have_are_refused(folder: Path, rows: list[Any]) -> None:
    path = folder / "users.parquet"
    pl.read_parquet(path).with_columns(row=pl.Series(rows, strict=False)).write_parquet(path)
    reseal(folder)
    with pytest.raises(ModelFileError, match=r"rows of the parameters in .* from 0 to 100; copy"):
        load(folder)


def test_rows_of_parameters_that_are_not_there_are_refused(folder: Path) -> None:
    def shorten(tensors: dict[str, torch.Tensor]) -> None:
        for name in "WVb":
            tensors[f"users.{name}"] = tensors[f"users.{name}"][:99].clone()

    write_tensors(folder, shorten)
    with pytest.raises(ModelFileError, match=r"found 99 rows for 100 ids, .* number 99; copy"):
        load(folder)


def test_ids_out_of_order_are_refused(folder: Path) -> None:
    for ids in ([2, 1, *range(3, 101)], [1, 1, *range(3, 101)]):
        pl.DataFrame({"user": ids}).write_parquet(folder / "users.parquet")
        reseal(folder)
        with pytest.raises(ModelFileError, match="not sorted or repeat"):
            load(folder)


def _drop(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["items.c"]


def _add(tensors: dict[str, torch.Tensor]) -> None:
    tensors["items.more"] = torch.zeros(3)


def _narrow(tensors: dict[str, torch.Tensor]) -> None:
    # A compiled kernel would read beyond its end.
    tensors["users.W"] = torch.zeros(1, 1, 1)


def _double(tensors: dict[str, torch.Tensor]) -> None:
    tensors["users.V"] = tensors["users.V"].double()


def _spoil(tensors: dict[str, torch.Tensor]) -> None:
    tensors["users.V"][3, 2, 1] = float("nan")


def _all_units_more(tensors: dict[str, torch.Tensor]) -> None:
    for name in "WV":
        tensors[f"users.{name}"] = torch.zeros(101, 5, 9)
    tensors["users.c"] = torch.zeros(9)


def _no_rows(tensors: dict[str, torch.Tensor]) -> None:
    tensors["users.b"] = torch.tensor(1.0)


def _lose_all(tensors: dict[str, torch.Tensor]) -> None:
    tensors.clear()


@pytest.mark.parametrize(
    "change", [_drop, _add, _narrow, _double, _spoil, _all_units_more, _no_rows, _lose_all]
)
def test_tensors_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    write_tensors(folder, change)
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        load(folder)


@pytest.mark.parametrize("weight", [3e38, -3e38, 1e5])
@pytest.mark.parametrize("name", ["users.W", "items.V", "users.c", "items.b"])
def test_weights_with_which_predictions_overflow_are_refused(
    folder: Path, name: str, weight: float
) -> None:
    """They are finite, but their sum over a context is not."""

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name].flatten()[1:3] = weight

    write_tensors(folder, change)
    with pytest.raises(ModelFileError, match=rf"{name} has a weight of .*would overflow; copy"):
        load(folder)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_with_the_largest_weights_predictions_are_finite(folder: Path, activation: str) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        for tensor in tensors.values():
            tensor.fill_(LARGEST_WEIGHT)
            tensor.flatten()[::3] *= -1

    write_tensors(folder, change)
    write_card(folder, settings={**TINY.model_dump(), "activation": activation})
    model = RatingModel.from_artifact(replace(Artifact.load(folder), sums={}))
    ids = model.users.ids
    pairs = {"user": ids, "item": [model.items.ids[0]] * len(ids)}
    assert np.isfinite(model.predict_proba(pairs)).all()


@pytest.mark.parametrize("change", [{"temperature": 1e-300}, {"widening": 1e300}])
def test_an_absurd_calibration_is_refused(folder: Path, change: dict[str, float]) -> None:
    calibration = {"warm": {"temperature": 1.0, "widening": 0.0, **change}}
    write_card(folder, calibration=calibration)
    with pytest.raises(ModelFileError, match=r"the calibration .* is out of range"):
        load(folder)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_pipe_or_a_device_among_the_files_is_refused_at_once(
    folder: Path, name: str, kind: str
) -> None:
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ModelFileError, match=rf"{name} is not a file|no model\.json"):
        load(folder)


def test_settings_of_a_huge_model_are_refused_without_its_memory(folder: Path) -> None:
    write_card(folder, settings={**TINY.model_dump(), "hidden_users": 10**15})
    with pytest.raises(ModelFileError, match=r"damaged|found tensors of shapes"):
        load(folder)


def _sums(folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    path = folder / "sums.safetensors"
    save_file({name: change(own) for name, own in load_file(path).items()}, path)
    reseal(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own[:-1].clone(),
        lambda own: own.float(),
        lambda own: own * float("inf"),
        lambda own: own.flatten(),
        lambda own: own.long(),
        lambda own: own + 1e300,
    ],
)
def test_sums_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    _sums(folder, change)
    with pytest.raises(ModelFileError, match=r"sums\.safetensors: found sums of shapes .*; copy"):
        load(folder)


def test_saved_sums_are_read_and_have_the_bits_of_a_computation(
    model: RatingModel, saved: Path, folder: Path
) -> None:
    artifact = Artifact.load(saved)
    for name, sums_mh in artifact.sums.items():
        np.testing.assert_array_equal(sums_mh, model.artifact.item_sums(name))
        np.testing.assert_array_equal(sums_mh, replace(artifact, sums={}).item_sums(name))
    assert artifact.sums.keys() == artifact.networks.keys()
    pairs = small_table().frame.select("user", "item")
    _sums(folder, lambda own: own + 1.0)  # so they are what predictions are made from
    assert not np.array_equal(load(folder).predict_proba(pairs), model.predict_proba(pairs))


def test_every_tensor_of_a_network_has_a_name_of_its_own() -> None:
    """The names on disk are a table, and a layer of any kind is in it by its prefix."""
    rating = RatingSettings(cold_start_units=2, bilinear_rate=1)
    ranking = RankingSettings(learned_decay=True, residual_units=3, ensemble_size=2)
    rows = {"users": 3, "items": 3}
    networks = [
        Network.of(rating, rows, 2, cold_start=True),
        Network.of(ranking, rows, 1, members=2),
    ]
    found = set().union(*(saved_tensors(network) for network in networks))
    layers = {f"items.layer.{at}.{name}" for at in (0, 1) for name in ("into", "bias", "back")}
    assert found == set(NAMES) | layers


def test_unchanged_tensors_written_anew_are_accepted(folder: Path) -> None:
    write_tensors(folder, lambda tensors: None)
    assert load(folder).settings == TINY


def test_a_pickle_is_never_opened(folder: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "exploded",)

    torch.save({"x": Bomb()}, folder / "model.safetensors")
    with pytest.raises(ModelFileError):
        load(folder)
    assert not (tmp_path / "exploded").exists()
