"""Entry to all files of interactions: detects the format of a file and calls its reader.

Parquet and Arrow IPC are read here, by pyarrow, because polars panics at some damaged files and
some time zones; only the needed columns are read. pyarrow is imported inside the functions, because
text needs none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import polars as pl

from cfuica.data.columns import Place, canonical_rows
from cfuica.data.delimited import integers_where_all_are, read_delimited
from cfuica.data.json_lines import holds_json, read_json_lines
from cfuica.data.layout import FIND_OUT, ReadOptions, columns_of
from cfuica.data.memory import Memory
from cfuica.data.movielens import read_movielens
from cfuica.data.netflix import is_netflix, read_netflix
from cfuica.data.table import Interactions
from cfuica.data.time_columns import check_time_options
from cfuica.errors import DataError, NoRows
from cfuica.forks import need_polars
from cfuica.io import COLUMNAR_RATIO, check_ratio, shown

if TYPE_CHECKING:
    import pyarrow as pa

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_PARQUET, _IPC_FILE, _IPC_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_COLUMNAR_NAMES = (".parquet", ".arrow", ".arrows", ".feather", ".ipc")

# Of the names of the columns of a file: role to the position of its column.
Choose = Callable[[list[str], Path], dict[str, int]]


def read_table(
    path: str | Path, options: ReadOptions = FIND_OUT, *, only: tuple[str, ...] | None = None
) -> Interactions:
    """Read delimited text or JSON lines (plain, gzip, zstd), Parquet, Arrow IPC, or MovieLens.

    The first bytes of a file tell its format, else its name; everything else is text. A folder
    holds Parquet files or a MovieLens release. With `only` the rows are not interactions but pairs
    to predict (`PAIR`), users, or an ad-hoc history: only these columns are read, and every row
    stays.
    """
    need_polars("Reading a table")
    check_time_options(options)
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(
            f"{path} is neither a file nor a folder, and a pipe cannot be read twice, as is needed "
            f"to find out what it holds; save it to a file first."
        )
    start = b"" if path.is_dir() else _start(path)
    suffix = path.suffix.lower()
    if only is None and is_netflix(path, start):
        return read_netflix(path, options)
    if _is_columnar(path, start, suffix):
        return read_columnar(path, options, only=only)
    if path.is_dir() or start.startswith(_ZIP) or suffix == ".zip":
        return read_movielens(path, options)
    read_text = read_json_lines if holds_json(path) else read_delimited
    return read_text(path, options, only=only)


def _is_columnar(path: Path, start: bytes, suffix: str) -> bool:
    if path.is_dir():
        # Directly or in hive partitions (key=value); searching the whole tree may take too long.
        return any(path.glob("*.parquet")) or any(path.glob("*=*/**/*.parquet"))
    if start.startswith((_PARQUET, _IPC_FILE, _IPC_STREAM)):
        return True
    return suffix in _COLUMNAR_NAMES and not start.startswith(_ZIP)


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give a file of interactions or a folder of "
            f"MovieLens."
        ) from error


def read_columnar(
    path: str | Path, options: ReadOptions = FIND_OUT, *, only: tuple[str, ...] | None = None
) -> Interactions:
    """Read a Parquet file, a folder of them (hive partitions too), or Arrow IPC, file or stream.

    Columns are found by name, as in text files, or named by `options`. Ids keep their type. With
    `only` the rows are not interactions: only these columns are read, and every row stays.
    """
    path = Path(path)

    def choose(names: list[str], file: Path) -> dict[str, int]:
        return columns_of(names, options, str(file), only=only)

    memory = Memory.of(shown(path), options)
    if path.is_dir():
        frame, names, place = _folder(path, choose, memory)
    else:
        frame, names = _file(path, choose, {}, memory)
        place = _rows_of(path)
    if frame.is_empty():
        raise NoRows(f"{path} has no rows, but at least one interaction was expected.")
    columns = {role: frame[role].alias(name) for role, name in names.items()}
    try:
        frame, notes = canonical_rows(columns, place, options)
    except DataError as error:
        # What is wrong with a whole column is said without a place.
        raise error if shown(path) in str(error) else DataError(f"{shown(path)}: {error}") from None
    return Interactions.of_rows(
        frame, options=options, repeats=only is not None, source=shown(path), source_notes=notes
    )


def _rows_of(path: Path) -> Place:
    return lambda row: f"{shown(path)}, row {row + 1:,},"


def _folder(
    folder: Path, choose: Choose, memory: Memory
) -> tuple[pl.DataFrame, dict[str, str], Place]:
    """The rows of all Parquet files in a folder and below, in the order of their paths."""
    # Spark and others leave files of their own there, whose names begin so.
    # Spark also names folders so; whoever is given one reads all that is in it a second time.
    found = (path for path in sorted(folder.rglob("*.parquet")) if path.is_file())
    inside = {path: path.relative_to(folder).parts for path in found}
    files = [path for path, parts in inside.items() if not any(p[0] in "._" for p in parts)]
    if not files:
        raise DataError(f"{folder} has no Parquet files; give a folder of files *.parquet.")
    hive = any("=" in part for path in files for part in inside[path][:-1])
    frames: list[pl.DataFrame] = []
    names: dict[str, str] = {}
    for file in files:
        frame, chosen = _file(file, choose, _partition_keys(file) if hive else {}, memory)
        names = names or chosen
        if chosen.keys() != names.keys():
            raise DataError(
                f"{file} has columns for {', '.join(chosen)}, but {files[0]} for "
                f"{', '.join(names)}; give both the same columns."
            )
        frames.append(frame)

    def place(row: int) -> str:
        for file, frame in zip(files, frames, strict=True):
            if row < frame.height:
                return _rows_of(file)(row)
            row -= frame.height
        raise IndexError(row)

    with _clearly(folder):
        frame = pl.concat(frames, how="vertical_relaxed")
    in_paths = [role for role, name in names.items() if name in _partition_keys(files[0])]
    frame = frame.with_columns(
        integers_where_all_are(frame[role]) for role in in_paths if frame.schema[role] == pl.String
    )
    return frame, names, place


def _partition_keys(file: Path) -> dict[str, str | None]:
    """The columns that the folders around a file give (key=value)."""
    pairs = (shown(part).split("=", 1) for part in file.parts[:-1] if "=" in part)
    return {key: None if value == _NULL else unquote(value) for key, value in pairs}


def _file(
    path: Path, choose: Choose, partition: Mapping[str, str | None], memory: Memory
) -> tuple[pl.DataFrame, dict[str, str]]:
    """(a column per role, role to the column's name in the file)."""
    import pyarrow as pa

    with _clearly(path):
        with path.open("rb") as file:
            start = file.read(6)
        if start.startswith(_PARQUET):
            table, names = _parquet(path, choose, partition, memory)
        elif start == _IPC_FILE or start.startswith(_IPC_STREAM):
            table, names = _ipc(path, choose, memory, stream=start != _IPC_FILE)
        else:
            found = f"begins with {start!r}" if start else "is empty"
            raise DataError(
                f"{path} {found}, but a Parquet or Arrow IPC file was expected; write it again as "
                f"one of them, or as CSV."
            )
        table = table.rename_columns(list(names))
        for at, field in enumerate(table.schema):
            # The points in time stay; polars panics at zones that it does not know.
            if getattr(field.type, "tz", None) is not None:
                in_utc = table.column(at).cast(pa.timestamp(field.type.unit, "UTC"))
                table = table.set_column(at, field.name, in_utc)
        return pl.DataFrame(table).rechunk(), names


def _parquet(
    path: Path, choose: Choose, partition: Mapping[str, str | None], memory: Memory
) -> tuple[pa.Table, dict[str, str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # By the open file, because its name may not be UTF-8.
    with path.open("rb") as file, pq.ParquetFile(file) as source:
        names = source.schema_arrow.names
        names += [key for key in partition if key not in names]
        chosen = {role: names[at] for role, at in choose(names, path).items()}
        wanted = [name for name in chosen.values() if name not in partition]
        # Many equal values take next to nothing in the file. How much numbers take is known before;
        # texts are counted as they come.
        n_bytes = 8 * len(wanted) * source.metadata.num_rows
        check_ratio(str(path), path.stat().st_size, n_bytes, COLUMNAR_RATIO)
        if all(pa.types.is_primitive(source.schema_arrow.field(name).type) for name in wanted):
            memory.take(n_bytes)
            table = source.read(columns=wanted)
        else:
            schema = source.read_row_groups([], wanted).schema
            table = _counted(source.iter_batches(_ROWS, columns=wanted), schema, path, memory)
        # For a name `a`, pyarrow reads a column `a.b` too.
        table = table.select(wanted)
        for key in partition.keys() & set(chosen.values()):
            value = pa.scalar(partition[key], pa.string())
            table = table.append_column(key, pa.repeat(value, source.metadata.num_rows))
        return table.select(list(chosen.values())), chosen


_ROWS = 1 << 16


def _counted(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path, memory: Memory
) -> pa.Table:
    """The batches as one table, as long as their bytes are not too many."""
    import pyarrow as pa

    counted, unpacked, packed = [], 0, path.stat().st_size
    for batch in batches:
        unpacked += batch.nbytes
        check_ratio(str(path), packed, unpacked, COLUMNAR_RATIO)
        memory.take(batch.nbytes)
        # Offsets, lengths and bytes of texts from a file are not to be trusted by whoever reads on.
        batch.validate(full=True)
        counted.append(batch)
    return pa.Table.from_batches(counted, schema)


def _ipc(
    path: Path, choose: Choose, memory: Memory, *, stream: bool
) -> tuple[pa.Table, dict[str, str]]:
    import pyarrow as pa

    opened = pa.ipc.open_stream if stream else pa.ipc.open_file
    # As bytes, because the name may not be UTF-8.
    with pa.memory_map(os.fsencode(path)) as source:
        names = opened(source).schema.names
        positions = choose(names, path)
        source.seek(0)
        only = pa.ipc.IpcReadOptions(included_fields=list(positions.values()))
        reader = opened(source, options=only)
        batches = (
            iter(reader)
            if stream
            else (reader.get_batch(at) for at in range(reader.num_record_batches))
        )
        table = _counted(batches, reader.schema, path, memory)
    # The columns come in the order of the file, not in that of the request.
    in_file = sorted(positions.values())
    table = table.select([in_file.index(at) for at in positions.values()])
    return table, {role: names[at] for role, at in positions.items()}


@contextmanager
def _clearly(path: Path) -> Iterator[None]:
    """Say in one sentence what a library met in a file that is damaged, cut short or foreign."""
    import pyarrow as pa

    polars = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
    try:
        yield
    except (OSError, ValueError, pa.ArrowException, *polars) as error:
        if isinstance(error, OSError) and error.strerror and not path.is_file():
            raise DataError(
                f"{path} cannot be read ({error.strerror}); give a Parquet or Arrow IPC file."
            ) from error
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".:")
        raise DataError(
            f"{path} is damaged, incomplete or of a kind that is not supported ({reason}); write "
            f"or fetch it again."
        ) from error
