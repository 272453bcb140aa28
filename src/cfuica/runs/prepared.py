"""The cache of prepared data: large data is read, split and encoded once, then memory-mapped.

`PreparedCache.split` gives the tables of a training. At the first start it makes them and writes an
entry, a sealed folder; later starts map its files into memory, which takes seconds whatever their
size. An entry belongs to files of one path, size, time of change and end (the footer of a Parquet
file), read and split by the same options. The run that trains on it links the files into its own
folder (`link_entry`), so that it can be resumed whatever becomes of the cache or the data.

    prepared.json            what the entry is of, notes, label scale, sizes of the files
    train.arrow ...          the sets, in the ids of the data: mapped by polars
    users.parquet ...        the vocabularies; the item metadata and the item space
    matrix.by_user.*.npy ... what the model reads: mapped by numpy
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import cfuica
from cfuica.data.columns import EventCounts
from cfuica.data.datasets import cache_folder
from cfuica.data.matrix import InteractionMatrix, LabelledCsr, RatedPairs, Timeline
from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions, Prepared
from cfuica.data.vocabulary import LabelScale, Vocabulary
from cfuica.errors import CfuicaError
from cfuica.io import (
    MANIFEST,
    UNSEALED,
    atomic_folder,
    locked,
    parquet_bytes,
    read_parquet,
    sealed_folder,
    sha256_of_file,
    verify,
)

FORMAT = 1
DESCRIPTION, ITEMS = "prepared.json", "items.parquet"
# Fewer interactions are prepared in seconds.
LEAST = 5_000_000
# The entries that were used longest ago are removed where all take more.
MOST_BYTES = 30e9
# An interaction takes some 45 bytes; a disk is not filled for them.
_BYTES_EACH, _SPARE = 60, 1 << 30
_MOST_FILES = 20_000
_BATCH = 1 << 22  # Rows that are written at a time, and stay together when they are mapped.
_TAIL, _LARGEST_FOOTER = 1 << 16, 1 << 24
_DAMAGE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, CfuicaError,
    pl.exceptions.PolarsError, pl.exceptions.PanicException,
)  # fmt: skip
Maker = Callable[[], DataSplit]


@dataclass(frozen=True)
class PreparedCache:
    """Entries in a folder; data of fewer than `least` interactions is not cached."""

    folder: Path = field(default_factory=lambda: cache_folder() / "prepared")
    least: int = LEAST
    most_bytes: float = MOST_BYTES
    verify: bool = False  # Whether the content of the data and of the entry is hashed.
    say: Callable[[str], None] = lambda sentence: None

    def split(
        self, places: list[Path], request: Mapping[str, Any], bins: int | None, make: Maker
    ) -> DataSplit:
        """The split of the data in these files and folders, as `make` makes it.

        `request` is all that it depends on beside the files. `bins` is a setting of the label
        scale; None for a ranking.
        """
        files = _files_of(places)
        marks = _marks(files)
        # An interaction takes two bytes or more in any file.
        if not marks or sum(size for _, size, *_ in marks) < 2 * self.least:
            return make()
        of = {"bins": bins, "places": [str(place.absolute()) for place in places]}
        version = {"cfuica": cfuica.__version__, "format": FORMAT}
        request = json.loads(json.dumps({**request, **of, **version}))
        key = hashlib.sha256(json.dumps([request, marks]).encode()).hexdigest()[:24]
        entry = self.folder / key
        with ExitStack() as stack:
            lock = self.folder / f".{key}.lock"
            waiting = "Another process is preparing this data; waiting for it."
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(lock, lambda: self.say(waiting)))
            except OSError:  # where nothing can be written, there may still be an entry
                return self._found(entry, files) or make()
            stack.callback(lock.unlink, missing_ok=True)
            if found := self._found(entry, files):
                return found
            began = time.monotonic()
            data_split = make()
            if data_split.whole.n < self.least or marks != _marks(files):
                return data_split
            n = data_split.whole.n
            self.say(f"Preparing {n:,} interactions, once for this start and later ones.")
            description = {"request": request, "marks": marks, "content": _contents(files)}
            if not self._written(entry, data_split, description, bins):
                return data_split
            del data_split  # the same is mapped from now on
            self._make_room(entry, request)
            self.say(f"Prepared data is kept in {entry}: {time.monotonic() - began:.0f} s.")
            return read_entry(entry)

    def _found(self, entry: Path, files: list[Path]) -> DataSplit | None:
        """The split of an entry; None where there is none, or where it cannot be used."""
        if not (entry / DESCRIPTION).is_file():
            return None
        began = time.monotonic()
        try:
            if self.verify:
                verify(entry)
                description = json.loads((entry / DESCRIPTION).read_text("utf-8"))
                if description["content"] != _contents(files):
                    self.say("The content of the data has changed; it is prepared anew.")
                    return None
            data_split = read_entry(entry)
            with suppress(OSError):  # of another user, perhaps
                os.utime(entry / DESCRIPTION)
        except _DAMAGE as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            self.say(f"The prepared data in {entry} is damaged ({reason}) and is made anew.")
            return None
        self.say(f"Prepared data from the cache ({entry}): {time.monotonic() - began:.1f} s.")
        return data_split

    def _written(
        self, entry: Path, data_split: DataSplit, description: dict[str, Any], bins: int | None
    ) -> bool:
        """Whether the entry could be written; where not, training goes on without it."""
        try:
            for left in self.folder.glob(f"{UNSEALED}{entry.name}-*"):
                shutil.rmtree(left, ignore_errors=True)  # left by a process that was killed
            free = shutil.disk_usage(self.folder).free - _SPARE
            if free < (needed := _BYTES_EACH * data_split.whole.n):
                sizes = f"{needed / 1e9:.1f} GB are needed and {max(free, 0) / 1e9:.1f} free"
                raise OSError(errno.ENOSPC, sizes)
            write_entry(entry, data_split, description, bins)
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.say(f"The prepared data is not kept in {self.folder} ({reason}).")
            return False
        return True

    def entries(self) -> Iterator[tuple[Path, dict[str, Any], int]]:
        """(folder, what it is of, bytes) of each entry, the one used last first."""
        found = [path.parent for path in self.folder.glob(f"[!.]*/{DESCRIPTION}")]
        for entry in sorted(found, key=_last_use, reverse=True):
            with suppress(OSError, ValueError):
                description = json.loads((entry / DESCRIPTION).read_text("utf-8"))
                size = sum(path.stat().st_size for path in entry.iterdir())
                if "sizes" in description:  # else it is damaged
                    yield entry, description, size

    def clear(self) -> None:
        """Remove all entries. Trainings that have mapped one go on with it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_room(self, new: Path, request: Mapping[str, Any]) -> None:
        """Remove entries of the same data before it changed, and those that are too much."""
        total = 0
        for entry, description, size in list(self.entries()):
            total += size
            is_outdated = description.get("request") == request or total > self.most_bytes
            if entry != new and is_outdated:
                shutil.rmtree(entry, ignore_errors=True)
                total -= size


def _last_use(entry: Path) -> float:
    return (entry / DESCRIPTION).stat().st_mtime


def _files_of(places: list[Path]) -> list[Path]:
    """All files in these places, in order; none where they are too many, or not to be read."""
    files: list[Path] = []
    for place in places:
        inside = place.rglob("*") if place.is_dir() else [place]
        for path in inside:
            if path.is_file() and os.access(path, os.R_OK):
                files.append(path)
            if len(files) > _MOST_FILES:
                return []
    return sorted(files)


def _marks(files: list[Path]) -> list[list[Any]]:
    """Of each file: path, size, time of change, and a hash of its end; none where one is gone."""
    marks = []
    for path in files:
        if not path.is_file():
            return []
        status = path.stat()
        with path.open("rb") as file:
            tail = min(_TAIL, status.st_size)
            if status.st_size > 12:
                file.seek(-8, os.SEEK_END)
                length, magic = file.read(4), file.read(4)
                if magic == b"PAR1":
                    footer = int.from_bytes(length, "little") + 8
                    tail = min(footer, status.st_size, _LARGEST_FOOTER)
            file.seek(-tail, os.SEEK_END)
            digest = hashlib.sha256(file.read()).hexdigest()
        marks.append([str(path.absolute()), status.st_size, status.st_mtime_ns, digest])
    return marks


def _contents(files: list[Path]) -> list[str]:
    return [sha256_of_file(path) for path in files]


def write_entry(
    entry: Path, data_split: DataSplit, description: Mapping[str, Any], bins: int | None
) -> None:
    """Encode the sets and write all of it; an older entry is replaced."""
    whole, train, valid = data_split.whole, data_split.train, data_split.valid
    sets = {"train": train, "valid": valid, "test": data_split.test}
    ids: dict[str, Any] = {"users": whole.users, "items": whole.item_ids}
    description = {
        **description,
        "split": data_split.description,
        "split_notes": data_split.notes,
        "sha256": whole.sha256(),
        "interactions": whole.n,
        "bins": bins,
        "tables": {
            name: _described(table)
            for name, table in {"whole": whole, **sets}.items()
            if table is not None
        },
    }
    with sealed_folder(entry) as work:
        for name, table in sets.items():
            if table is not None:
                table.frame.write_ipc(work / f"{name}.arrow", record_batch_size=_BATCH)
        tables = {name: own.ids.to_frame() for name, own in ids.items()}
        named = {"users.parquet": tables["users"], "item_ids.parquet": tables["items"]}
        if whole.items is not None:
            named[ITEMS] = whole.items
        if whole.item_space is not None:
            named["item_space.parquet"] = whole.item_space.rename("item").to_frame()
        for name, frame in named.items():
            (work / name).write_bytes(parquet_bytes(frame))
        arrays: dict[str, NDArray[Any] | None] = {}
        if bins is None:
            has_times = train.has_times and (valid is None or valid.has_times)
            description["has_times"] = has_times
            timeline = train.timeline(**ids, has_times=has_times, types=train.types)
            arrays |= {f"timeline.{name}": array for name, array in vars(timeline).items()}
            arrays.pop("timeline.n_items")
        else:
            scale = train.label_scale(vocabulary=whole, bins=bins)
            description["scale"] = asdict(scale)
            matrix = train.matrix(**ids, scale=scale)
            for name, csr in (("by_user", matrix.by_user), ("by_item", matrix.by_item)):
                arrays |= {f"matrix.{name}.{part}": array for part, array in vars(csr).items()}
            if valid is not None:
                pairs = valid.rated_pairs(**ids, scale=scale)
                arrays |= {f"pairs.{name}": array for name, array in vars(pairs).items()}
        for name, array in arrays.items():
            if array is not None:
                np.save(work / f"{name}.npy", array, allow_pickle=False)
        description["sizes"] = {path.name: path.stat().st_size for path in sorted(work.iterdir())}
        (work / DESCRIPTION).write_text(json.dumps(description) + "\n", encoding="utf-8")


def _described(table: Interactions) -> dict[str, Any]:
    """What a table has beside its rows."""
    return {
        "source": table.source,
        "source_notes": table.source_notes,
        "repeats_dropped": table.repeats_dropped,
        "types": table.types,
        "events": None if table.events is None else asdict(table.events),
    }


def read_entry(entry: Path) -> DataSplit:
    """The split of an entry, memory-mapped; an error of any kind where it is not whole."""
    description = json.loads((entry / DESCRIPTION).read_text("utf-8"))
    for name, size in description["sizes"].items():
        # The item metadata of a run may be its own.
        if name != ITEMS and (entry / name).stat().st_size != size:
            raise ValueError(f"{name} has not {size:,} bytes")
    users, items = (
        Vocabulary(read_parquet(entry / f"{name}.parquet").to_series())
        for name in ("users", "item_ids")
    )
    metadata = read_parquet(entry / ITEMS) if (entry / ITEMS).is_file() else None
    space = entry / "item_space.parquet"
    shared: dict[str, Any] = {"items": metadata, "item_space": None}
    if space.is_file():
        shared["item_space"] = read_parquet(space).to_series()
    tables: dict[str, Interactions | None] = dict.fromkeys(("valid", "test"))
    frames = {}
    for name, own in description["tables"].items():
        fields: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in own.items()
        }
        if fields["events"] is not None:
            fields["events"] = EventCounts(**fields["events"])
        if name == "whole":
            described = fields
            continue
        frames[name] = _mapped_frame(entry / f"{name}.arrow")
        tables[name] = Interactions(frames[name], **fields, **shared)
    common = [name for name in frames["train"].columns if all(name in f for f in frames.values())]
    rows = pl.concat([frame.select(common) for frame in frames.values()], rechunk=False)
    train, valid, test = tables["train"], tables["valid"], tables["test"]
    assert train is not None
    whole = Interactions(rows, **described, **shared)
    arrays = {path.name.removesuffix(".npy"): _mapped(path) for path in sorted(entry.glob("*.npy"))}
    bins, scale = description["bins"], description.get("scale")
    if scale is not None:
        edges = None if scale["edges"] is None else tuple(scale["edges"])
        scale = LabelScale(tuple(scale["values"]), edges, scale["note"])
    prepared = Prepared(
        folder=entry,
        sha256=description["sha256"],
        whole=rows,
        train=train,
        valid=valid,
        test=test,
        users=users,
        items=items,
        bins=bins,
        scale=scale,
        matrix=None if scale is None else _matrix(arrays, users.size, items.size, scale.size),
        pairs=RatedPairs(**_of(arrays, "pairs")) if "pairs.users_p" in arrays else None,
        timeline=_timeline(arrays, users.size, items.size) if scale is None else None,
        has_times=description.get("has_times"),
    )
    prepared.attach(whole)
    return DataSplit(
        whole, train, valid, test, description["split"], tuple(description["split_notes"])
    )


def _mapped_frame(path: Path) -> pl.DataFrame:
    """A table in memory-mapped pages, by pyarrow: polars would copy them."""
    import pyarrow as pa

    frame = pl.from_arrow(pa.ipc.open_file(pa.memory_map(str(path))).read_all(), rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _mapped(path: Path) -> NDArray[Any]:
    """An array in memory-mapped pages. They are private: a compiled loop takes arrays that can be
    written, and would be compiled again for others."""
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))


def _of(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, Any]:
    named = {name: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}
    return {name.removeprefix(f"{prefix}."): array for name, array in named.items()}


def _matrix(
    arrays: Mapping[str, NDArray[Any]], n_users: int, n_items: int, n_labels: int
) -> InteractionMatrix:
    rows = []
    for name, n_rows, n_indices in (("by_user", n_users, n_items), ("by_item", n_items, n_users)):
        csr = LabelledCsr(**_of(arrays, f"matrix.{name}"))
        _check_rows(csr.offsets, csr.indices, n_rows, n_indices)
        if csr.labels.shape != csr.indices.shape or csr.labels.max(initial=0) >= n_labels:
            raise ValueError(f"the labels by {name} are none of the {n_labels} labels")
        rows.append(csr)
    return InteractionMatrix(rows[0], rows[1], n_labels)


def _timeline(arrays: Mapping[str, NDArray[Any]], n_users: int, n_items: int) -> Timeline:
    timeline = Timeline(**_of(arrays, "timeline"), n_items=n_items)
    _check_rows(timeline.offsets, timeline.items, n_users, n_items)
    return timeline


def _check_rows(
    offsets: NDArray[np.int64], indices: NDArray[np.int32], n_rows: int, n_indices: int
) -> None:
    """Compiled loops trust what they read, and a disk may have changed it."""
    is_whole = (
        offsets.dtype == np.int64
        and indices.dtype == np.int32
        and offsets.shape == (n_rows + 1,)
        and offsets[0] == 0
        and offsets[-1] == indices.size
        and bool((np.diff(offsets) >= 0).all())
    )
    if not is_whole or indices.min(initial=0) < 0 or indices.max(initial=0) >= n_indices:
        raise ValueError(f"the rows are not {n_rows:,} of {n_indices:,} indices")


def link_entry(prepared: Prepared, folder: Path, own: Mapping[str, bytes]) -> None:
    """A sealed folder of an entry's files, linked or, on another disk, copied, and of own files."""
    entry = prepared.folder
    hashes = json.loads((entry / MANIFEST).read_text("utf-8"))
    with atomic_folder(folder) as work:
        for name in hashes.keys() - own.keys():
            try:
                os.link(entry / name, work / name)
            except FileNotFoundError:
                raise CfuicaError(
                    f"The prepared data in {entry} was removed meanwhile; train again."
                ) from None
            except OSError:
                shutil.copyfile(entry / name, work / name)
        for name, content in own.items():
            (work / name).write_bytes(content)
            hashes[name] = hashlib.sha256(content).hexdigest()
        (work / MANIFEST).write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")
