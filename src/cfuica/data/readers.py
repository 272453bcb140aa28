"""Entry to all files of interactions: detects the format of a file and calls its reader.

Parquet and Arrow IPC are read here, by pyarrow, because polars panics at some damaged files and
some time zones; only the needed columns are read. pyarrow is imported inside the functions, because
text needs none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import polars as pl

from cfuica.data.columns import Rows, integers_where_all_are
from cfuica.data.delimited import read_delimited
from cfuica.data.json_lines import holds_json, read_json_lines
from cfuica.data.layout import FIND_OUT, ReadOptions, columns_of
from cfuica.data.movielens import read_movielens
from cfuica.data.netflix import is_netflix, read_netflix
from cfuica.data.table import Interactions
from cfuica.data.time_columns import check_time_options
from cfuica.errors import DataError
from cfuica.forks import need_polars
from cfuica.io import COLUMNAR_RATIO, check_ratio, shown

if TYPE_CHECKING:
    import pyarrow as pa

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_PARQUET, _IPC_FILE, _IPC_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_COLUMNAR_NAMES = (".parquet", ".arrow", ".arrows", ".feather", ".ipc")

# Of the names of the columns of a file: role to the position of its column.
Choose = Callable[[list[str]], dict[str, int]]


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
    is_columnar = _is_columnar(path, start, suffix)
    if not is_columnar and (path.is_dir() or start.startswith(_ZIP) or suffix == ".zip"):
        return read_movielens(path, options)
    rows = Rows(options, shown(path))
    if is_columnar:
        read_columnar(path, rows, only)
    else:
        (read_json_lines if holds_json(path) else read_delimited)(path, rows, only)
    rows.report(1.0)
    frame, notes = rows.frame()
    return Interactions.of_rows(
        frame, options=options, repeats=only is not None, source=rows.name, source_notes=notes
    )


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


def read_columnar(path: Path, rows: Rows, only: tuple[str, ...] | None = None) -> None:
    """Read a Parquet file, a folder of them (hive partitions too), or Arrow IPC, file or stream.

    Columns are found by name, as in text files, or named by the options. Ids keep their type. With
    `only` the rows are not interactions: only these columns are read.
    """
    files = _files(path) if path.is_dir() else {path: {}}
    sizes = [file.stat().st_size if file.exists() else 0 for file in files]
    first: tuple[str, ...] = ()
    for at, (file, keys) in enumerate(files.items()):
        n, before, part = 0, sum(sizes[:at]), sizes[at]
        with _clearly(file):
            for columns, done in _batches(file, rows.options, keys, only):
                first = first or tuple(columns)
                if first != tuple(columns):
                    raise DataError(
                        f"{file} has columns for {', '.join(columns)}, but {next(iter(files))} for "
                        f"{', '.join(first)}; give both the same columns."
                    )
                rows.add(columns, partial(_place, file, n))
                n += columns[first[0]].len()
                rows.report((before + part * done) / max(1, sum(sizes)))


def _place(file: Path, before: int, row: int) -> str:
    return f"{shown(file)}, row {before + row + 1:,},"


def _files(folder: Path) -> dict[Path, dict[str, str | None]]:
    """The Parquet files in a folder and below, in the order of their paths, and what columns the
    folders around each give (hive partitions: key=value)."""
    # Spark and others leave files of their own there, whose names begin so.
    # Spark also names folders so; whoever is given one reads all that is in it a second time.
    found = (path for path in sorted(folder.rglob("*.parquet")) if path.is_file())
    inside = {path: path.relative_to(folder).parts for path in found}
    files = [path for path, parts in inside.items() if not any(p[0] in "._" for p in parts)]
    if not files:
        raise DataError(f"{folder} has no Parquet files; give a folder of files *.parquet.")
    hive = any("=" in part for path in files for part in inside[path][:-1])
    return {file: _partition_keys(file) if hive else {} for file in files}


def _partition_keys(file: Path) -> dict[str, str | None]:
    """The columns that the folders around a file give (key=value)."""
    pairs = (shown(part).split("=", 1) for part in file.parts[:-1] if "=" in part)
    return {key: None if value == _NULL else unquote(value) for key, value in pairs}


_ROWS = 1 << 17  # Rows of a batch.
# The columns of the file in the order of the roles, role to the name of its column (which may be
# one of the path), and how much of the file is read.
_Batch = tuple["pa.RecordBatch", dict[str, str], float]


def _batches(
    path: Path, options: ReadOptions, keys: Mapping[str, str | None], only: tuple[str, ...] | None
) -> Iterator[tuple[dict[str, pl.Series], float]]:
    """(columns by role, how much of the file is read) of a Parquet or Arrow IPC file.

    They come as long as their bytes are not too many.
    """
    import pyarrow as pa

    def choose(names: list[str]) -> dict[str, int]:
        return columns_of(names, options, str(path), only=only)

    with path.open("rb") as file:
        start = file.read(6)
    if start.startswith(_PARQUET):
        found = _parquet(path, choose, keys)
    elif start == _IPC_FILE or start.startswith(_IPC_STREAM):
        found = _ipc(path, choose, stream=start != _IPC_FILE)
    else:
        how = f"begins with {start!r}" if start else "is empty"
        raise DataError(
            f"{path} {how}, but a Parquet or Arrow IPC file was expected; write it again as one of "
            f"them, or as CSV."
        )
    packed, unpacked = path.stat().st_size, 0
    for batch, names, done in found:
        unpacked += batch.nbytes
        # Many equal values take next to nothing in the file.
        check_ratio(str(path), packed, unpacked, COLUMNAR_RATIO)
        # Offsets, lengths and bytes of texts from a file are not to be trusted by whoever reads on.
        batch.validate(full=True)
        columns, arrays = {}, iter(batch.columns)
        for role, name in names.items():
            if name in keys:
                texts = pl.repeat(keys[name], batch.num_rows, dtype=pl.String, eager=True)
                columns[role] = integers_where_all_are(texts).alias(name)
                continue
            column = next(arrays)
            if getattr(column.type, "tz", None) is not None:
                # The points in time stay; polars panics at zones that it does not know.
                column = column.cast(pa.timestamp(column.type.unit, "UTC"))
            columns[role] = pl.Series(name, column)
        yield columns, done


def _parquet(path: Path, choose: Choose, keys: Mapping[str, str | None]) -> Iterator[_Batch]:
    import pyarrow.parquet as pq

    # By the open file, because its name may not be UTF-8.
    with path.open("rb") as file, pq.ParquetFile(file, buffer_size=_BUFFER) as source:
        names = source.schema_arrow.names
        names += [key for key in keys if key not in names]
        chosen = {role: names[at] for role, at in choose(names).items()}
        wanted = [name for name in chosen.values() if name not in keys]
        n = 0
        for batch in source.iter_batches(_ROWS, columns=wanted):
            n += batch.num_rows
            # For a name `a`, pyarrow reads a column `a.b` too.
            yield batch.select(wanted), chosen, n / max(n, source.metadata.num_rows)
        if n != source.metadata.num_rows:
            raise ValueError(f"{n:,} of {source.metadata.num_rows:,} rows are there")


_BUFFER = 1 << 20  # Bytes that are read at a time.


def _ipc(path: Path, choose: Choose, *, stream: bool) -> Iterator[_Batch]:
    import pyarrow as pa

    opened = pa.ipc.open_stream if stream else pa.ipc.open_file
    # As bytes, because the name may not be UTF-8.
    with pa.memory_map(os.fsencode(path)) as source:
        names = opened(source).schema.names
        positions = choose(names)
        source.seek(0)
        only = pa.ipc.IpcReadOptions(included_fields=list(positions.values()))
        reader = opened(source, options=only)
        n = None if stream else reader.num_record_batches
        batches = iter(reader) if n is None else map(reader.get_batch, range(n))
        chosen = {role: names[at] for role, at in positions.items()}
        # The columns come in the order of the file, not in that of the request.
        in_file = sorted(positions.values())
        order = [in_file.index(at) for at in positions.values()]
        for at, batch in enumerate(batches, start=1):
            done = source.tell() / source.size() if n is None else at / n
            yield batch.select(order), chosen, done


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
