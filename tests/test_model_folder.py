"""Saved models: what comes back, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import cfuica
import cfuica.runs.tasks
from cfuica.atomic import exchanged
from cfuica.data.table import BehaviourTable
from cfuica.errors import ModelFileError
from cfuica.model_folder import FILES, load
from cfuica.rating_model import RatingModel
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


@pytest.fixture
def older(folder: Path) -> Path:
    """A model folder from before its files were hashed, which rests on the other checks."""
    write_card(folder, files=None)
    return folder


def card_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "model.json").read_text("utf-8"))


def write_card(folder: Path, **changes: object) -> None:
    (folder / "model.json").write_text(json.dumps({**card_of(folder), **changes}))


def write_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the tensors and keep what they say they belong to."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata)


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


def test_a_model_from_before_there_were_bins_still_loads(older: Path) -> None:
    card = card_of(older)
    assert card.pop("label_edges") is None
    settings = card["settings"]
    del settings["bins"]
    (older / "model.json").write_text(json.dumps(card))
    # What it belonged to was hashed without them.
    tensors = load_file(older / "model.safetensors")
    tables = {name: pl.read_parquet(older / f"{name}.parquet") for name in ("users", "items")}
    beside = {key: card[key] for key in ("settings", "label_values", "behaviours_sha256")}
    beside |= {name: table[name[:-1]].to_list() for name, table in tables.items()}
    beside["rows"] = {name: table["row"].to_list() for name, table in tables.items()}
    belongs_to = hashlib.sha256(json.dumps(beside, sort_keys=True).encode()).hexdigest()
    save_file(tensors, older / "model.safetensors", {"belongs_to": belongs_to})
    again = load(older)
    assert again.settings == TINY
    assert again.knowledge.scale.edges is None


def test_a_model_from_before_there_were_strangers_has_the_mean_of_all_for_them(
    model: RatingModel, older: Path
) -> None:
    card = card_of(older) | {"format": 1}
    del card["settings"]["strangers"]
    (older / "model.json").write_text(json.dumps(card))
    for name in ("users", "items"):
        path = older / f"{name}.parquet"
        pl.read_parquet(path).drop("row").write_parquet(path)
    tensors = load_file(older / "model.safetensors")
    own = {name: t if name.endswith("_h") else t[:-1].clone() for name, t in tensors.items()}
    save_file(own, older / "model.safetensors")
    again = load(older).knowledge
    for name, side in again.network.sides.items():
        before = model.knowledge.network.sides[name]
        assert torch.equal(side.decoder_nkh[:-1], before.decoder_nkh[:-1])
        assert torch.allclose(side.decoder_nkh[-1], before.decoder_nkh[:-1].mean(0), atol=1e-6)
        assert again.rows[name].tolist() == list(range(side.shared_row))


def test_a_network_for_strangers_and_its_correction_come_back(tmp_path: Path) -> None:
    frame = small_table().frame.sample(fraction=1, shuffle=True, seed=0)
    settings = TINY.replaced(strangers=3, size_power=1)
    model = RatingModel(settings).fit(frame.head(1500), valid=frame.tail(700), spans=frame)
    folder = model.save(tmp_path / "model")
    names = set(load_file(folder / "model.safetensors"))
    own = {name for name in names if not name.startswith("strangers.")}
    assert names - own == {f"strangers.{name}" for name in own}
    again = load(folder)
    for of in ("known", "strangers"):
        before, after = getattr(model.knowledge, of), getattr(again.knowledge, of)
        assert after.calibration == before.calibration
        assert not after.calibration.is_identity
        assert after.network.gains == before.network.gains
        for name, tensor in before.network.tensors().items():
            assert torch.equal(after.network.tensors()[name], tensor)
    pairs = {"user": [1, 999, 1], "item": [2, 2, 999]}
    np.testing.assert_array_equal(again.predict_proba(pairs), model.predict_proba(pairs))
    # Without it the model is not whole.
    write_card(folder, files=None)

    def drop(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["strangers.items.decoder_nkh"]

    write_tensors(folder, drop)
    with pytest.raises(ModelFileError, match=r"strangers\.items: found tensors of shapes"):
        load(folder)


def test_all_that_is_known_of_the_items_comes_back(tmp_path: Path) -> None:
    ids = list(range(1, 61))
    about = pl.DataFrame(
        {
            "item": ids,
            "title": [f"T{item}" for item in ids],
            "series": [item // 10 if item > 5 else None for item in ids],
            "index": [str(item) for item in ids],
            "tags": [[item, item + 1] for item in ids],
        }
    )
    table = BehaviourTable.from_frame(small_table().frame, items=about.reverse())
    model = RatingModel(TINY.replaced(max_steps=1)).fit(table)
    known = about.filter(pl.col("item").is_in(model.knowledge.items.ids.to_list()))
    for one in (model, load(model.save(tmp_path / "model"))):
        assert one.knowledge.item_table is not None
        assert one.knowledge.item_table.equals(known)


def test_edges_of_another_model_are_refused(tmp_path: Path) -> None:
    ratings = pl.Series("rating", np.linspace(0, 1, 2200))
    frame = small_table().frame.with_columns(ratings)
    folder = RatingModel(TINY.replaced(max_steps=1)).fit(frame).save(tmp_path / "model")
    edges = card_of(folder)["label_edges"]
    assert len(edges) == 19
    write_card(folder, label_edges=[edges[0] + 1e-6, *edges[1:]])
    with pytest.raises(ModelFileError, match="does not belong"):
        load(folder)
    write_card(folder, label_edges=None)
    with pytest.raises(ModelFileError, match="does not belong"):
        load(folder)


def test_a_model_from_before_its_files_were_hashed_still_loads(folder: Path) -> None:
    card = card_of(folder)
    del card["files"]
    (folder / "model.json").write_text(json.dumps(card))
    again = load(folder)
    assert again.settings == TINY
    assert card_of(again.save(folder))["files"].keys() == FILES - {"model.json"}


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


@pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
def test_a_model_that_is_replaced_while_it_is_read_is_the_new_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its card is the old one's and its files are the new one's, but nothing is damaged."""
    newer = cfuica.load(folder)
    newer.observe([(1, 777, 5.0)])
    hashed = cfuica.model_folder.sha256_of_file
    replaced = []

    def replacing(path: Path) -> str:
        if not replaced and path == folder / name:
            replaced.append(newer.save(folder))
        return hashed(path)

    monkeypatch.setattr(cfuica.model_folder, "sha256_of_file", replacing)
    again = load(folder)
    assert replaced
    assert 777 in again.knowledge.items.ids


def test_a_model_that_changes_all_the_time_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[Path] = []

    def changing(path: Path) -> str:
        readings.append(path)
        write_card(folder, date=len(readings))
        return "another"

    monkeypatch.setattr(cfuica.model_folder, "sha256_of_file", changing)
    with pytest.raises(ModelFileError, match="is damaged or does not belong to"):
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


@pytest.mark.parametrize("step", ["cfuica.model_folder.write_tensors", "os.fsync", "os.replace"])
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
    monkeypatch.setattr("cfuica.model_folder.exchanged", lambda *_: False)
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
    with pytest.raises(ModelFileError, match=r"damaged or incomplete .*; copy it again"):
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


@pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
@pytest.mark.parametrize("damage", ["empty", "half", "garbage", "foreign"])
def test_a_damaged_file_without_a_hash_is_refused(older: Path, name: str, damage: str) -> None:
    test_a_damaged_file_is_refused(older, name, damage)


@pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
def test_a_single_changed_bit_is_refused(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=rf"{name} is damaged or .*; copy the folder again"):
        load(folder)


def test_other_weights_of_the_same_shape_are_refused(folder: Path) -> None:
    def overwrite(tensors: dict[str, torch.Tensor]) -> None:
        for tensor in tensors.values():
            tensor.fill_(3.0)

    write_tensors(folder, overwrite)
    with pytest.raises(ModelFileError, match=r"model\.safetensors is damaged .*SHA-256 differs"):
        load(folder)


@pytest.mark.parametrize("files", [{}, [], 5, "no hashes", {"users.parquet": None}])
def test_hashes_that_are_none_are_refused(folder: Path, files: object) -> None:
    write_card(folder, files=files)
    with pytest.raises(ModelFileError, match="damaged"):
        load(folder)


@pytest.mark.parametrize(
    "text", ["[]", "null", "{}", '"text"', "1", "[" * 100_000, '{"format": "1"}', '{"format": 1}']
)
def test_a_card_that_is_no_card_is_refused(folder: Path, text: str) -> None:
    (folder / "model.json").write_text(text)
    with pytest.raises(ModelFileError, match="damaged or incomplete"):
        load(folder)


@pytest.mark.parametrize("writer", [{"cfuica": "9.9"}, {"cfuica": None}])
def test_a_newer_format_asks_for_an_upgrade(folder: Path, writer: dict[str, object]) -> None:
    write_card(folder, format=3, **writer)
    with pytest.raises(ModelFileError, match=r"in format 3, .* upgrade cfuica"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "sorting"}, "a model for the task 'sorting'"),
        ({"settings": {**TINY.model_dump(), "hidden_users": -1}}, "damaged"),
        ({"settings": {**TINY.model_dump(), "colour": "red"}}, r"damaged .*\(colour: .* not perm"),
        ({"settings": {**TINY.model_dump(), "activation": "relu"}}, "does not belong"),
        ({"settings": {**TINY.model_dump(), "sides": "users"}}, "does not belong"),
        ({"label_values": [1, 2, 3, 4]}, "do not fit the ids and labels beside it"),
        ({"label_values": [5, 4, 3, 2, 1]}, r"damaged .*\(the label scale is not .* ascending\)"),
        ({"label_values": [1, 2, 3, 4, 6]}, "does not belong"),
        ({"label_values": ["a", "b", "c", "d", "e"]}, "damaged"),
        ({"label_values": [1, 2, 3, 4, None]}, r"damaged .*\(the label scale is not finite"),
        ({"label_values": 5}, "damaged"),
        ({"label_values": [1, 2, 3, 4, 10**400]}, "damaged"),
        ({"label_edges": [1.5, 2.5, 3.5, 4.5]}, "does not belong"),
        ({"label_edges": [1.5, 2.5, 3.5]}, "5 values and 3 edges"),
        ({"label_edges": [1.5, 2.5, 2.5, 4.5]}, "not finite and ascending"),
        ({"label_edges": "1234"}, "damaged"),
        ({"behaviours_sha256": "0" * 64}, r"behaviours\.parquet does not belong"),
        ({"typical_sizes": {"users": 7.0, "items": 7.0}}, "does not belong"),
        ({"calibration": {"known": {"temperature": 2.0, "widening": 0.1}}}, "does not belong"),
        ({"calibration": {}}, "does not belong"),
    ],
)
def test_a_card_of_another_model_is_refused(
    folder: Path, changes: dict[str, object], message: str
) -> None:
    write_card(folder, **changes)
    with pytest.raises(cfuica.CfuicaError, match=message):
        load(folder)


@pytest.mark.parametrize("name", ["behaviours", "users", "items", "model"])
def test_files_of_two_models_of_the_same_shape_do_not_mix(
    older: Path, tmp_path: Path, name: str
) -> None:
    frame = small_table().frame.with_columns(
        user=pl.col("user") + 1000, item=pl.col("item") + 1000, rating=6 - pl.col("rating")
    )
    other = RatingModel(TINY).fit(frame).save(tmp_path / "other")
    file = f"{name}.safetensors" if name == "model" else f"{name}.parquet"
    shutil.copy(other / file, older / file)
    with pytest.raises(ModelFileError, match="does not belong"):
        load(older)


def test_parameters_of_another_seed_do_not_pass_for_these(older: Path, tmp_path: Path) -> None:
    other = RatingModel(TINY.replaced(seed=1)).fit(small_table()).save(tmp_path / "other")
    shutil.copy(other / "model.safetensors", older / "model.safetensors")
    with pytest.raises(ModelFileError, match="does not belong"):
        load(older)


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
def test_rows_that_no_parameters_can_have_are_refused(older: Path, rows: list[Any]) -> None:
    path = older / "users.parquet"
    pl.read_parquet(path).with_columns(row=pl.Series(rows, strict=False)).write_parquet(path)
    with pytest.raises(ModelFileError, match=r"rows of the parameters in .* from 0 to 100; copy"):
        load(older)


def test_rows_of_parameters_that_are_not_there_are_refused(older: Path) -> None:
    def shorten(tensors: dict[str, torch.Tensor]) -> None:
        for name in ("encoder_nkh", "decoder_nkh", "decoder_bias_nk"):
            tensors[f"users.{name}"] = tensors[f"users.{name}"][:99].clone()

    write_tensors(older, shorten)
    with pytest.raises(ModelFileError, match=r"found 99 rows for 100 ids, .* number 99; copy"):
        load(older)


def test_ids_out_of_order_are_refused(older: Path) -> None:
    for ids in ([2, 1, *range(3, 101)], [1, 1, *range(3, 101)]):
        pl.DataFrame({"user": ids}).write_parquet(older / "users.parquet")
        with pytest.raises(ModelFileError, match="not sorted or repeat"):
            load(older)


def _drop(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["items.encoder_bias_h"]


def _add(tensors: dict[str, torch.Tensor]) -> None:
    tensors["items.more"] = torch.zeros(3)


def _narrow(tensors: dict[str, torch.Tensor]) -> None:
    # A compiled kernel would read beyond its end.
    tensors["users.encoder_nkh"] = torch.zeros(1, 1, 1)


def _double(tensors: dict[str, torch.Tensor]) -> None:
    tensors["users.decoder_nkh"] = tensors["users.decoder_nkh"].double()


def _spoil(tensors: dict[str, torch.Tensor]) -> None:
    tensors["users.decoder_nkh"][3, 2, 1] = float("nan")


def _all_units_more(tensors: dict[str, torch.Tensor]) -> None:
    for name in ("encoder_nkh", "decoder_nkh"):
        tensors[f"users.{name}"] = torch.zeros(101, 5, 9)
    tensors["users.encoder_bias_h"] = torch.zeros(9)


@pytest.mark.parametrize("change", [_drop, _add, _narrow, _double, _spoil, _all_units_more])
def test_tensors_that_do_not_fit_are_refused(
    older: Path, change: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    write_tensors(older, change)
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        load(older)


def test_unchanged_tensors_written_anew_are_accepted(older: Path) -> None:
    write_tensors(older, lambda tensors: None)
    assert load(older).settings == TINY


def test_a_pickle_is_never_opened(folder: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "exploded",)

    torch.save({"x": Bomb()}, folder / "model.safetensors")
    with pytest.raises(ModelFileError):
        load(folder)
    assert not (tmp_path / "exploded").exists()
