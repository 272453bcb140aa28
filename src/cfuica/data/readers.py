"""Entry to all files of interactions: detects the format of a file and calls its reader."""

from __future__ import annotations

from pathlib import Path

from cfuica.data.delimited import read_delimited
from cfuica.data.layout import FIND_OUT, ReadOptions
from cfuica.data.movielens import read_movielens
from cfuica.data.table import Interactions
from cfuica.errors import DataError

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
# Parquet; Arrow IPC as a file, and as a stream of messages.
_COLUMNAR = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
_COLUMNAR_NAMES = (".parquet", ".arrow", ".arrows", ".feather", ".ipc")


def read_table(
    path: str | Path, options: ReadOptions = FIND_OUT, *, only: tuple[str, ...] | None = None
) -> Interactions:
    """Read delimited text (plain, gzip, zstd; RecBole's .inter), Parquet, Arrow IPC, or MovieLens.

    The first bytes of a file tell its format, else its name; everything else is text. A folder
    holds Parquet files or a MovieLens release. With `only` the rows are not interactions but pairs
    to predict (`PAIR`), users, or an ad-hoc history: only these columns are read, and every row
    stays.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(
            f"{path} is neither a file nor a folder, and a pipe cannot be read twice, as is needed "
            f"to find out what it holds; save it to a file first."
        )
    start = b"" if path.is_dir() else _start(path)
    suffix = path.suffix.lower()
    if _is_columnar(path, start, suffix):
        # Imported here: text needs no pyarrow.
        from cfuica.data.columnar import read_columnar

        return read_columnar(path, options, only=only)
    if path.is_dir() or start.startswith(_ZIP) or suffix == ".zip":
        return read_movielens(path, options)
    return read_delimited(path, options, only=only)


def _is_columnar(path: Path, start: bytes, suffix: str) -> bool:
    if path.is_dir():
        # Directly or in hive partitions (key=value); searching the whole tree may take too long.
        return any(path.glob("*.parquet")) or any(path.glob("*=*/**/*.parquet"))
    return start.startswith(_COLUMNAR) or (suffix in _COLUMNAR_NAMES and not start.startswith(_ZIP))


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give a file of interactions or a folder of "
            f"MovieLens."
        ) from error
