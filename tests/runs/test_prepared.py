from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cfuica.data.layout import ReadOptions
from cfuica.data.split_tables import DataSplit, SplitRequest
from cfuica.data.table import Interactions
from cfuica.errors import CfuicaError, ModelFileError
from cfuica.models.co_autoregressive import RatingModel
from cfuica.run_folder import RunFolder
from cfuica.runs import inputs
from cfuica.runs.inputs import prepared_split, save_inputs, saved_inputs
from cfuica.runs.prepared import PreparedCache
from cfuica.runs.run import Job
from cfuica.settings import CommonSettings, RankingSettings
from cfuica.training.display import TrainingCallback
from tests.runs.small import TINY, small_table

RANKING = RankingSettings(hidden_users=4, hidden_items=4, epochs=1)
SETTINGS: dict[str, CommonSettings] = {
    "ratings": TINY,
    "text ids": TINY,
    "half stars": TINY,
    "bins": TINY,
    "some without a rating": TINY,
    "ranking": RANKING,
}


class Cached:
    """A file of ratings and its cache; `split` also says how often the file was read."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.cache = folder / "ratings.parquet", folder / "cache"
        self.said: list[str] = []
        self.readings = 0
        read = inputs.read_split

        def counted(*arguments: Any, **options: Any) -> DataSplit:
            self.readings += 1
            return read(*arguments, **options)

        monkeypatch.setattr(inputs, "read_split", counted)

    def split(
        self,
        settings: CommonSettings = TINY,
        request: SplitRequest | None = None,
        options: ReadOptions | None = None,
        **changes: Any,
    ) -> DataSplit:
        cache = PreparedCache(
            **{"folder": self.cache, "least": 1, "say": self.said.append} | changes
        )
        kind = "leave-one-out" if settings is RANKING else "random"
        request, options = request or SplitRequest(kind), options or ReadOptions()
        self.said.clear()
        return prepared_split(cache, settings, str(self.file), None, None, request, options)

    @property
    def entry(self) -> Path:
        (about,) = self.cache.glob("*/prepared.json")
        return about.parent


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cached:
    small_table().frame.write_parquet(tmp_path / "ratings.parquet")
    return Cached(tmp_path, monkeypatch)


def same_tables(one: DataSplit, other: DataSplit) -> None:
    for part in ("train", "valid", "test"):
        first, second = getattr(one, part), getattr(other, part)
        assert (first is None) == (second is None)
        assert first is None or first.frame.equals(second.frame)
        assert first is None or vars(first).keys() - {"frame"} <= vars(second).keys()
    for axis in ("users", "item_ids"):
        assert getattr(one.whole, axis).ids.equals(getattr(other.whole, axis).ids)
    assert one.whole.sha256() == other.whole.sha256()
    assert one.whole.source_notes == other.whole.source_notes
    assert one.notes == other.notes
    assert json.dumps(one.description) == json.dumps(other.description)


@pytest.mark.parametrize("kind", SETTINGS)
def test_what_comes_from_the_cache_is_what_is_computed_to_the_bit(
    cached: Cached, kind: str
) -> None:
    frame = small_table().frame
    match kind:
        case "text ids":
            frame = frame.with_columns(user="u" + pl.col("user").cast(pl.String))
        case "half stars":
            frame = frame.with_columns(pl.col("rating") / 2)
        case "bins":
            frame = frame.with_columns(rating=pl.col("timestamp") % 97 + 0.5)
    frame.write_parquet(cached.file)
    options = ReadOptions(no_rating=(1.0,)) if kind == "some without a rating" else None
    settings = SETTINGS[kind]
    fresh = cached.split(settings, options=options, least=10**9)
    cached.split(settings, options=options)
    assert cached.said[-1].startswith("Prepared data is kept in ")
    again = cached.split(settings, options=options)
    assert cached.said[-1].startswith(f"Prepared data from the cache ({cached.entry}): ")
    assert cached.readings == 2
    same_tables(fresh, again)
    reading = {"users": again.whole.users, "items": again.whole.item_ids}
    own = {"users": fresh.whole.users, "items": fresh.whole.item_ids}
    if settings is RANKING:
        timelines = (
            split.train.timeline(**ids, has_times=True)
            for split, ids in ((fresh, own), (again, reading))
        )
        one, other = timelines
        assert one.sha256() == other.sha256()
        assert one is not other
        return
    bins = TINY.bins
    scale = fresh.train.label_scale(vocabulary=fresh.whole, bins=bins)
    assert again.train.label_scale(vocabulary=again.whole, bins=bins) == scale
    matrix = again.train.matrix(**reading, scale=scale)
    assert matrix.sha256() == fresh.train.matrix(**own, scale=scale).sha256()
    assert again.whole.prepared is not None
    assert matrix is again.whole.prepared.matrix
    assert matrix.by_item.indices.flags.writeable  # else every kernel is compiled once more
    assert fresh.valid is not None
    assert again.valid is not None
    pairs = fresh.valid.rated_pairs(**own, scale=scale)
    mapped = again.valid.rated_pairs(**reading, scale=scale)
    for name, array in vars(pairs).items():
        assert np.array_equal(array, getattr(mapped, name)), name
        assert array.dtype == getattr(mapped, name).dtype


def test_a_model_trained_from_the_cache_has_the_same_weights(cached: Cached) -> None:
    models = []
    for _ in range(2):
        split = cached.split()
        model = RatingModel(TINY.replaced(max_steps=3))
        model.fit(split.train, valid=split.valid, vocabulary=split.whole, progress=False)
        models.append(model.artifact)
    split = cached.split(least=10**9)
    model = RatingModel(TINY.replaced(max_steps=3))
    model.fit(split.train, valid=split.valid, vocabulary=split.whole, progress=False)
    hashes = {artifact.interactions.sha256() for artifact in (*models, model.artifact)}  # type: ignore[union-attr]
    assert len(hashes) == 1
    for artifact in models:
        for name, tensor in artifact.networks["warm"].state_dict().items():
            assert tensor.equal(model.artifact.networks["warm"].state_dict()[name])


def rewritten(cached: Cached) -> None:
    """The same size and time, another end."""
    before = cached.file.stat()
    content = bytearray(cached.file.read_bytes())
    content[content.rindex(b"Polars")] += 1  # in the footer, where it says who wrote it
    cached.file.write_bytes(content)
    os.utime(cached.file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Cached], Any]] = {
    "time": lambda cached: os.utime(cached.file, (1, 1)) or cached.split(),
    "size": lambda cached: (
        small_table().frame[:-1].write_parquet(cached.file) or cached.split()  # type: ignore[func-returns-value]
    ),
    "footer": lambda cached: rewritten(cached) or cached.split(),  # type: ignore[func-returns-value]
    "options": lambda cached: cached.split(options=ReadOptions(no_rating=(1.0,))),
    "split": lambda cached: cached.split(request=SplitRequest(fold=1)),
    "kind": lambda cached: cached.split(request=SplitRequest("users")),
    "seed": lambda cached: cached.split(request=SplitRequest(seed=1)),
    "bins": lambda cached: cached.split(TINY.replaced(bins=7)),
    "task": lambda cached: cached.split(RANKING),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_the_data_or_of_what_is_asked_misses_the_cache(
    cached: Cached, change: str
) -> None:
    cached.split()
    CHANGES[change](cached)
    assert cached.readings == 2
    # An entry of data that has changed since is of no use any more.
    is_of_old_data = change in ("time", "size", "footer")
    assert len(list(cached.cache.glob("*/prepared.json"))) == (1 if is_of_old_data else 2)


def test_memory_and_a_setting_that_is_not_of_the_data_change_nothing(cached: Cached) -> None:
    cached.split()
    cached.split(TINY.replaced(max_steps=7), options=ReadOptions(max_memory=3.0))
    assert cached.readings == 1


def test_little_data_leaves_no_trace(cached: Cached) -> None:
    split = cached.split(least=5_000_000)
    assert split.whole.prepared is None
    assert cached.said == []
    assert not cached.cache.exists()
    cached.split(least=small_table().n + 1)  # known only after reading
    assert list(cached.cache.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train.arrow", lambda path: path.write_bytes(path.read_bytes()[:-100])),
        ("matrix.by_user.indices.npy", lambda path: path.unlink()),
        ("prepared.json", lambda path: path.write_text("{}")),
        ("matrix.by_item.indices.npy", lambda path: _fill(path, 0x7F)),
        ("matrix.by_user.offsets.npy", lambda path: _fill(path, 0x01)),
        ("matrix.by_user.labels.npy", lambda path: _fill(path, 0xFF)),
    ],
)
def test_a_damaged_entry_is_noticed_and_made_anew(
    cached: Cached, name: str, damage: Callable[[Path], None]
) -> None:
    before = cached.split()
    damage(cached.entry / name)
    after = cached.split()
    assert ["is damaged (" in sentence for sentence in cached.said] == [True, False, False]
    assert cached.readings == 2
    same_tables(before, after)
    cached.split()
    assert cached.readings == 2


def _fill(path: Path, value: int) -> None:
    """The same size, other content behind the header."""
    content = path.read_bytes()
    path.write_bytes(content[:128] + bytes([value]) * (len(content) - 128))


def test_verification_reads_all_of_the_data_and_of_the_entry(cached: Cached) -> None:
    cached.split()
    cached.split(verify=True)
    assert cached.readings == 1
    times = cached.file.stat()
    content = bytearray(cached.file.read_bytes())
    content[8:40] = content[8:40][::-1]  # neither size nor time nor end
    intact = cached.file.read_bytes()
    cached.file.write_bytes(content)
    os.utime(cached.file, ns=(times.st_atime_ns, times.st_mtime_ns))
    cached.split()
    assert cached.readings == 1  # as promised: size, time and end alone
    with pytest.raises(CfuicaError):
        cached.split(verify=True)
    assert cached.said[0] == "The content of the data has changed; it is prepared anew."
    cached.file.write_bytes(intact)
    os.utime(cached.file, ns=(times.st_atime_ns, times.st_mtime_ns))
    path = cached.entry / "pairs.ratings_p.npy"
    _fill(path, 0x11)
    cached.split(verify=True)
    assert "the content of pairs.ratings_p.npy has changed" in cached.said[0]


def test_where_nothing_can_be_written_there_is_no_cache_and_no_error(
    cached: Cached, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    split = cached.split(folder=tmp_path / "file" / "prepared")
    assert split.whole.prepared is None
    assert cached.said == []


def test_an_entry_in_a_place_that_cannot_be_written_is_used(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached.split()

    def refuse(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("locked", "os.utime"):
        monkeypatch.setattr(f"cfuica.runs.prepared.{name}", refuse)
    assert cached.split().whole.prepared is not None
    assert cached.split(request=SplitRequest(fold=1)).whole.prepared is None
    assert cached.readings == 2


def test_a_full_disk_costs_the_entry_and_not_the_training(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert cached.split().train.n == 1881
    assert cached.said[-1] == (
        f"The prepared data is not kept in {cached.cache} (No space left on device)."
    )
    assert list(cached.cache.iterdir()) == []


def test_the_entries_used_longest_ago_make_room(cached: Cached) -> None:
    for fold in range(3):
        cached.split(request=SplitRequest(fold=fold))
        os.utime(cached.cache, (0, 0))
    size = max(size for _, _, size in PreparedCache(cached.cache).entries())
    cached.split(request=SplitRequest(fold=0))  # used again
    cached.split(request=SplitRequest(fold=3), most_bytes=2.5 * size)
    kept = {about["split"]["fold"] for _, about, _ in PreparedCache(cached.cache).entries()}
    assert kept == {0, 3}


def test_of_two_at_once_one_prepares_and_both_have_it(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads, which wait for the lock of the system as two processes do."""
    read, began = inputs.read_split, threading.Event()

    def slowly(*arguments: Any, **options: Any) -> DataSplit:
        began.set()
        time.sleep(0.3)
        return read(*arguments, **options)

    monkeypatch.setattr(inputs, "read_split", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cached.split)
        began.wait(10)
        second = pool.submit(cached.split)
        splits = [first.result(), second.result()]
    assert cached.readings == 1
    assert "Another process is preparing this data; waiting for it." in cached.said
    same_tables(*splits)
    assert all(split.whole.prepared is not None for split in splits)


def test_a_run_links_its_inputs_and_is_resumed_without_data_and_cache(
    cached: Cached, tmp_path: Path
) -> None:
    split = cached.split()
    titles = pl.DataFrame({"item": split.whole.item_ids.ids, "title": "a title"})
    split = replace(split, whole=split.whole.with_items(titles))
    assert split.whole.prepared is not None
    save_inputs(tmp_path / "inputs", split, TINY)
    arrow = "matrix.by_user.indices.npy"
    assert os.path.samefile(tmp_path / "inputs" / arrow, cached.entry / arrow)
    PreparedCache(cached.cache).clear()
    cached.file.unlink()
    again, settings = saved_inputs(tmp_path / "inputs")
    assert settings == TINY
    same_tables(split, again)
    assert again.whole.items is not None
    assert again.whole.items.columns == ["item", "title"]
    _fill(tmp_path / "inputs" / arrow, 0)
    with pytest.raises(ModelFileError, match=r"inputs is damaged .*; train again"):
        saved_inputs(tmp_path / "inputs")


def test_a_run_on_another_disk_copies_its_inputs(
    cached: Cached, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    split = cached.split()
    save_inputs(tmp_path / "inputs", split, TINY)
    same_tables(split, saved_inputs(tmp_path / "inputs")[0])


def test_a_run_resumed_from_linked_inputs_ends_as_one_that_was_not_stopped(
    cached: Cached, tmp_path: Path
) -> None:
    plain = cached.split(least=10**9)
    whole = Job.new(RunFolder.create(tmp_path / "whole"), plain, TINY, preset="default")
    job = Job.new(RunFolder.create(tmp_path / "run"), cached.split(), TINY, preset="default")
    assert job.record["data"] == whole.record["data"]
    assert job.record["split"] == whole.record["split"]
    job.folder.release()
    resumed = Job.resumed(RunFolder.open(tmp_path / "run"), {})
    models = [each.run(TrainingCallback()) for each in (whole, resumed)]
    assert not (tmp_path / "run" / "unfinished").exists()
    one, other = (model.artifact.networks["warm"].state_dict() for model in models)
    assert all(tensor.equal(other[name]) for name, tensor in one.items())


def test_another_table_has_nothing_of_what_was_prepared(cached: Cached) -> None:
    cached.split()
    split = cached.split()
    half = split.train.take(np.arange(100))
    assert half.prepared is None
    own = half.matrix(users=split.whole.users, items=split.whole.item_ids, scale=split.whole.scale)
    assert own.n_interactions == 100
    other = Interactions(split.train.frame).users
    assert other.size <= split.whole.users.size
    assert split.train.sha256() != split.whole.sha256()
