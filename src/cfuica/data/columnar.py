"""Reader of Parquet and Arrow IPC into `Interactions`; only the needed columns are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from cfuica.data.columns import Place, canonical_rows
from cfuica.data.layout import FIND_OUT, ReadOptions, columns_of
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.io import shown

_PARQUET, _IPC_FILE, _IPC_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
# Raised by the libraries at unexpected bytes; polars sometimes panics.
_DAMAGE = (
    OSError,
    ValueError,
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)


def read_columnar(
    path: str | Path, options: ReadOptions = FIND_OUT, *, only: tuple[str, ...] | None = None
) -> Interactions:
    """Read a Parquet file, a folder of them (hive partitions too), or Arrow IPC, file or stream.

    Columns are found by name, as in text files, or named by `options`. Ids keep their type. With
    `only` the rows are not interactions: only these columns are read, and every row stays.
    """
    path = Path(path)
    wanted = _Wanted(options, only)
    if path.is_dir():
        columns, place = _folder(path, wanted)
    else:
        columns, place = _file(path, wanted), _rows_of(path)
    if not any(map(len, columns.values())):
        raise DataError(f"{path} has no rows, but at least one interaction was expected.")
    try:
        frame, notes = canonical_rows(
            columns, place, bad_rows=options.bad_rows, empty_rating=options.empty_rating
        )
    except DataError as error:
        # What is wrong with a whole column is said without a place.
        raise error if shown(path) in str(error) else DataError(f"{shown(path)}: {error}") from None
    if only is not None:
        return Interactions(frame, source=shown(path), source_notes=notes)
    return Interactions.of_rows(frame, options=options, source=shown(path), source_notes=notes)


@dataclass(frozen=True)
class _Wanted:
    """Which columns are to be read."""

    options: ReadOptions
    only: tuple[str, ...] | None

    def among(self, names: list[str], path: Path) -> dict[str, int]:
        """Role to the position of its column."""
        return columns_of(names, self.options, str(path), only=self.only)


def _rows_of(path: Path) -> Place:
    return lambda row: f"{shown(path)}, row {row + 1:,},"


def _file(path: Path, wanted: _Wanted) -> dict[str, pl.Series]:
    """Role to its column, named as in the file."""
    with _clearly(path):
        with path.open("rb") as file:
            start = file.read(6)
        if start.startswith(_PARQUET):
            lazy, chosen = _parquet(path, wanted, hive=False)
            frame = lazy.collect()
        elif start == _IPC_FILE or start.startswith(_IPC_STREAM):
            frame, chosen = _ipc(path, wanted, stream=start != _IPC_FILE)
        else:
            found = f"begins with {start!r}" if start else "is empty"
            raise DataError(
                f"{path} {found}, but a Parquet or Arrow IPC file was expected; write it again as "
                f"one of them, or as CSV."
            )
    return {role: frame[role].alias(name) for role, name in chosen.items()}


def _folder(folder: Path, wanted: _Wanted) -> tuple[dict[str, pl.Series], Place]:
    """The rows of all Parquet files in a folder and below, in the order of their paths."""
    # Spark and others leave files of their own there, whose names begin so.
    # Spark also names folders so; whoever is given one reads all that is in it a second time.
    found = (path for path in sorted(folder.rglob("*.parquet")) if path.is_file())
    inside = {path: path.relative_to(folder).parts for path in found}
    files = [path for path, parts in inside.items() if not any(p[0] in "._" for p in parts)]
    if not files:
        raise DataError(f"{folder} has no Parquet files; give a folder of files *.parquet.")
    hive = any("=" in part for path in files for part in inside[path][:-1])
    parts: list[pl.LazyFrame] = []
    names: dict[str, str] = {}
    for file in files:
        with _clearly(file):
            lazy, chosen = _parquet(file, wanted, hive=hive)
        names = names or chosen
        if chosen.keys() != names.keys():
            raise DataError(
                f"{file} has columns for {', '.join(chosen)}, but {files[0]} for "
                f"{', '.join(names)}; give both the same columns."
            )
        parts.append(lazy)
    with _clearly(folder):
        frame = pl.concat(parts, how="vertical_relaxed").collect()

    def place(row: int) -> str:
        for file in files:
            with file.open("rb") as opened:
                height = pq.read_metadata(opened).num_rows
            if row < height:
                break
            row -= height
        return _rows_of(file)(row)

    return {role: frame[role].alias(name) for role, name in names.items()}, place


def _parquet(path: Path, wanted: _Wanted, *, hive: bool) -> tuple[pl.LazyFrame, dict[str, str]]:
    """(a column per role, role to the column's name in the file)."""
    if hive and shown(path) != str(path):
        raise DataError(f"{path} has a name that is not UTF-8 below a partition; rename it.")
    with path.open("rb") as file:
        foreign = any(_has_unknown_zone(field.type) for field in pq.read_schema(file))
    if foreign:
        return _zoned_parquet(path, wanted, hive=hive)
    # Polars finds no file whose name is not UTF-8.
    source = [path] if shown(path) == str(path) else [path.read_bytes()]
    lazy = pl.scan_parquet(source, glob=False, hive_partitioning=hive)
    names = lazy.collect_schema().names()
    chosen = {role: names[at] for role, at in wanted.among(names, path).items()}
    return lazy.select(pl.col(name).alias(role) for role, name in chosen.items()), chosen


def _zoned_parquet(
    path: Path, wanted: _Wanted, *, hive: bool
) -> tuple[pl.LazyFrame, dict[str, str]]:
    """The same by pyarrow, for files with a time zone in any column at which polars panics."""
    # Imported here because few files have such a time zone.
    import pyarrow.dataset as ds

    dataset = ds.dataset(str(path), format="parquet", partitioning="hive" if hive else None)
    names = dataset.schema.names
    chosen = {role: names[at] for role, at in wanted.among(names, path).items()}
    table = dataset.to_table(columns=list(chosen.values()))
    return _as_polars(table, list(chosen)).lazy(), chosen


def _ipc(path: Path, wanted: _Wanted, *, stream: bool) -> tuple[pl.DataFrame, dict[str, str]]:
    """The same of Arrow IPC; by pyarrow, because polars panics at some damaged files."""
    opened = pa.ipc.open_stream if stream else pa.ipc.open_file
    # As bytes, because the name may not be UTF-8.
    with pa.memory_map(os.fsencode(path)) as source:
        names = opened(source).schema.names
        positions = wanted.among(names, path)
        source.seek(0)
        only = pa.ipc.IpcReadOptions(included_fields=list(positions.values()))
        table = opened(source, options=only).read_all()
        # Offsets and lengths from a file are not to be trusted by whoever follows them.
        table.validate(full=True)
    # The columns come in the order of the file, not in that of the request.
    roles = sorted(positions, key=lambda role: positions[role])
    return _as_polars(table, roles), {role: names[at] for role, at in positions.items()}


def _as_polars(table: pa.Table, roles: list[str]) -> pl.DataFrame:
    """The columns named by their roles; times in a zone that polars does not support in UTC."""
    table = table.rename_columns(roles)
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and _has_unknown_zone(field.type):
            in_utc = table.column(at).cast(pa.timestamp(field.type.unit, "UTC"))
            table = table.set_column(at, field.name, in_utc)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _has_unknown_zone(kind: pa.DataType) -> bool:
    """Whether there is a time zone, perhaps deep inside, that polars panics at."""
    for zone in re.findall(r"tz=([^\]]*)\]", str(kind)):
        try:
            pl.Series([0]).cast(pl.Datetime("us", zone))
        except pl.exceptions.ComputeError:
            return True
    return False


@contextmanager
def _clearly(path: Path) -> Iterator[None]:
    """Say in one sentence what a library met in a file that is damaged, cut short or foreign."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.strerror and not path.is_file():
            raise DataError(
                f"{path} cannot be read ({error.strerror}); give a Parquet or Arrow IPC file."
            ) from error
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".:")
        raise DataError(
            f"{path} is damaged, incomplete or of a kind that is not supported ({reason}); write "
            f"or fetch it again."
        ) from error
