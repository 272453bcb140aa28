"""Rows written in every form that is read, for tests."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Mapping

import polars as pl
import pyarrow as pa

from cfuica.data.layout import ReadOptions

Row = tuple[str | int, str | int, float | None, int]
COLUMNS = ("user", "item", "rating", "timestamp")


def delimited(rows: list[Row], separator: str = ",", header: tuple[str, ...] = COLUMNS) -> str:
    """Without quotes; None is empty."""
    texts = [["" if value is None else str(value) for value in row] for row in (header, *rows)]
    return "".join(separator.join(row) + "\n" for row in texts)


def quoted(rows: list[Row], separator: str = ",") -> str:
    """Every field in quotes, as RFC 4180 has it, with a field in between that needs them."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(("user", "note", *COLUMNS[1:]))
    writer.writerows((user, f'a "{separator}\nb', *rest) for user, *rest in rows)
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    """Compressed."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def zipped(files: Mapping[str, bytes]) -> bytes:
    """An archive of these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def _inter(rows: list[Row]) -> bytes:
    header = ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
    return delimited(rows, "\t", header).encode()


# Suffix, and how rows are written.
TEXT: Mapping[str, tuple[str, Callable[[list[Row]], bytes]]] = {
    "csv": (".csv", lambda rows: delimited(rows).encode()),
    "bom, crlf": (
        ".csv",
        lambda rows: b"\xef\xbb\xbf" + delimited(rows).replace("\n", "\r\n").encode(),
    ),
    "tsv": (".tsv", lambda rows: delimited(rows, "\t").encode()),
    "::": (".dat", lambda rows: delimited(rows, "::").encode()),
    "bare": (".txt", lambda rows: delimited(rows, ";").partition("\n")[2].encode()),
    "quoted": (".csv", lambda rows: quoted(rows).encode()),
    "latin-1": (".csv", lambda rows: quoted(rows, ";").encode("latin-1")),
    "inter": (".inter", _inter),
    "gzip": (".csv.gz", lambda rows: gzip.compress(delimited(rows).encode())),
    "zstd": (".zst", lambda rows: zstd(delimited(rows).encode())),
    "gzip by content": (".csv", lambda rows: gzip.compress(delimited(rows, "|").encode())),
}


def _frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(COLUMNS), orient="row")


def _parquet(rows: list[Row]) -> bytes:
    out = io.BytesIO()
    _frame(rows).write_parquet(out)
    return out.getvalue()


def _ipc(rows: list[Row], *, stream: bool = False) -> bytes:
    out = io.BytesIO()
    frame = _frame(rows)
    if stream:
        frame.write_ipc_stream(out)
    else:
        frame.write_ipc(out)
    return out.getvalue()


COLUMNAR: Mapping[str, tuple[str, Callable[[list[Row]], bytes]]] = {
    "parquet": (".parquet", _parquet),
    "ipc": (".arrow", _ipc),
    "ipc stream": (".arrows", lambda rows: _ipc(rows, stream=True)),
    "parquet by content": (".dat", _parquet),
}

LATIN_1 = {"latin-1": ReadOptions(encoding="latin-1")}
"""What a reader must be told of some forms: ids that happen to be UTF-8 as well are ambiguous."""
