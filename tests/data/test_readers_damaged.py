"""Damaged files of every kind give a table or one clear sentence, and nothing else."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.layout import ReadOptions
from cfuica.data.readers import read_table
from cfuica.errors import CfuicaError
from tests.data.files import COLUMNAR, TEXT, delimited, quoted, zipped, zstd

ROWS = [(f"u{n % 7}", n, n % 10 / 2 + 0.5, 1_000_000_000 + n) for n in range(12)]
NUMBERS = [(n % 7 + 1, n + 1, n % 5 + 1, 1_000_000_000 + n) for n in range(12)]

JUNK = [
    b"", b" ", b"\0", b'"', b'""', b",", b";", b"\t", b"::", b"|", b"\n", b"\r", b"\r\n", b"\n\n",
    b"\xff", b"\xe9", b"\xc3", "é".encode(), "\u2028".encode(), "٣".encode(), b"\xef\xbb\xbf",
    b"\xff\xfe", b"nan", b"-inf", b"1e999", b"1_0", b"0x1", b"NULL", b"=1+1", b"-", b"9" * 40,
    b"9" * 5000, b"99999999999", b"-5", b"007", b"2001-02-30", b"2001-01-31",
    b"0001-01-01T00:00+23:59",
    b"user", b"rating", b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"x" * 140_000,
    b'"' + b"x" * 140_000, b"\x1f",
    b"PAR1",
    b"ARROW1",
    b"\xff\xff\xff\xff",
]  # fmt: skip


@st.composite
def damaged(draw, data: bytes) -> bytes:
    """A few wounds, each of one sort."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        sort = draw(st.sampled_from(["flip", "cut", "drop", "field", "insert", "wide", "mix"]))
        if sort == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
        elif sort == "cut":
            data = data[:at]
        elif sort == "drop":
            lines = data.split(b"\n")
            del lines[draw(st.integers(0, len(lines) - 1))]
            data = b"\n".join(lines)
        elif sort == "field":
            fields = data.split(b",")
            fields[draw(st.integers(0, len(fields) - 1))] = draw(st.sampled_from(JUNK))
            data = b",".join(fields)
        elif sort == "insert":
            data = data[:at] + draw(st.sampled_from(JUNK)) + data[at:]
        elif sort == "wide" and len(data) < 10_000:
            kind = draw(st.sampled_from(["utf-16", "utf-16-le", "utf-8-sig", "utf-32"]))
            data = data.decode("latin-1").encode(kind)
        elif sort == "mix":
            separators = st.sampled_from([b",", b";", b"\t", b"::", b"|", b"\n"])
            data = data.replace(draw(separators), draw(separators), draw(st.integers(1, 5)))
    return data


_options = st.builds(
    ReadOptions,
    user=st.sampled_from([None, None, None, "1", "user", "9"]),
    rating=st.sampled_from([None, None, None, "3", "rating", "absent"]),
    separator=st.sampled_from([None, None, None, ",", "::", "u"]),
    header=st.sampled_from([None, None, True, False]),
    encoding=st.sampled_from([None, None, "utf-8", "latin-1"]),
    bad_rows=st.sampled_from(["refuse", "skip"]),
)


def _survives(folder, name: str, data: bytes, options: ReadOptions) -> None:
    path = folder / name
    path.write_bytes(data)
    table, said = None, ""
    try:
        table = read_table(path, options)
    except CfuicaError as error:
        said = str(error)
    if table is None:
        assert str(path) in said
        assert "\n" not in said
        assert len(said) < 2000
    else:
        assert table.n > 0
        assert table.frame.select("user", "item").null_count().row(0) == (0, 0)
        assert all("\n" not in note for note in table.source_notes)


@pytest.mark.parametrize("form", [*TEXT, *COLUMNAR])
@settings(max_examples=60, deadline=None)
@given(data=st.data(), options=_options)
def test_damaged_files(tmp_path_factory, form, data, options):
    suffix, write = (TEXT | COLUMNAR)[form]
    content = data.draw(damaged(write(ROWS)))
    _survives(tmp_path_factory.getbasetemp(), f"damaged{suffix}", content, options)


@pytest.mark.parametrize("compress", [gzip.compress, zstd], ids=["gzip", "zstd"])
@settings(max_examples=60, deadline=None)
@given(data=st.data(), options=_options)
def test_damaged_text_within_a_sound_compression(tmp_path_factory, compress, data, options):
    content = compress(data.draw(damaged(quoted(ROWS).encode())))
    _survives(tmp_path_factory.getbasetemp(), "within.csv", content, options)


MOVIELENS = {
    "ml-1m": {
        "ratings.dat": delimited(NUMBERS, "::").partition("\n")[2].encode(),
        "movies.dat": b"1::Toy Story (1995)::Animation|Comedy\n3::Am\xe9lie::Drama\n",
    },
    "ml-100k": {
        "u.data": delimited(NUMBERS, "\t").partition("\n")[2].encode(),
        "u.item": b"1|Toy Story (1995)|01-Jan-1995||http://x|0|1\n2|L\xe9on||||1|0\n",
        "u.genre": b"unknown|0\nComedy|1\n",
    },
}


@pytest.mark.parametrize("release", MOVIELENS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), options=_options.map(lambda given: ReadOptions(bad_rows=given.bad_rows)))
def test_damaged_movielens(tmp_path_factory, release, data, options):
    files = MOVIELENS[release]
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(files)))
        archive = zipped({**files, name: data.draw(damaged(files[name]))})
    else:
        archive = data.draw(damaged(zipped(files)))
    _survives(tmp_path_factory.getbasetemp(), "movielens.zip", archive, options)
