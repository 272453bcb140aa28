"""Archives that want to write elsewhere, or without end."""

from __future__ import annotations

import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.data.archive import Limits, _fault_of_name, extract, member_names, open_member
from cfuica.errors import DataError


def _zip(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def _extracted(path: Path, into: Path, limits: Limits | None = None) -> dict[str, bytes]:
    into.mkdir()
    extract(path, into, *([limits] if limits else []))
    files = (one for one in into.rglob("*") if one.is_file())
    return {one.relative_to(into).as_posix(): one.read_bytes() for one in files}


def _refused(path: Path, into: Path, limits: Limits | None = None) -> str:
    """The message; nothing must have been written outside, nor anything inside by a bad name."""
    into.mkdir()
    with pytest.raises(DataError) as caught:
        extract(path, into, *([limits] if limits else []))
    return str(caught.value)


def _read(path: Path, name: str, *limits: Limits) -> bytes:
    with open_member(path, name, *limits) as stream:
        return b"".join(iter(lambda: stream.read(70_000), b""))


def test_a_sound_archive_comes_out_as_it_went_in(tmp_path):
    members = [("set/a.dat", b"1" * 3_000_000), ("set/deep/b", b""), ("c.txt", b"x")]
    path = _zip(tmp_path / "set.zip", [("set/", b""), *members])
    assert _extracted(path, tmp_path / "out") == dict(members)
    assert member_names(path) == [name for name, _ in members]
    for name, data in members:
        assert _read(path, name) == data


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../evil", "points outside"),
        ("set/../../evil", "points outside"),
        ("/tmp/evil", "absolute"),
        ("//host/evil", "absolute"),
        ("C:/evil", "absolute"),
        ("c:evil", "absolute"),
        ("..\\evil", "not every system"),
        ("set\\evil", "not every system"),
        ("set/a:stream", "not every system"),
        ("set/./a", "empty or ends"),
        ("set//a", "empty or ends"),
        ("set/.. /a", "empty or ends"),
        ("set/a\nb", "not every system"),
    ],
)
def test_names_that_lead_elsewhere_are_refused_before_anything_is_written(tmp_path, name, why):
    path = _zip(tmp_path / "evil.zip", [("good", b"x"), (name, b"y")])
    message = _refused(path, tmp_path / "out")
    assert str(path) in message
    assert why in message
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["evil.zip", "out"]


@given(st.text(alphabet="ab./\\: \x00", min_size=1, max_size=12))
def test_no_accepted_name_leaves_the_folder(name):
    if _fault_of_name(name) is None:
        root = Path("/far/from/here")
        place = Path(*root.parts, *name.split("/"))
        assert place.resolve().is_relative_to(root)
        assert "\\" not in name
        assert "\x00" not in name


@pytest.mark.parametrize(
    "kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK]
)
def test_links_and_special_files_are_refused(tmp_path, kind):
    link = zipfile.ZipInfo("set/link")
    link.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("set/link/x", "y")
    assert "is a link or a special file" in _refused(tmp_path / "evil.zip", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("set/a", "set/a"), "occurs twice"),
        (("set/a", "SET/A"), "occurs twice"),
        (("caf\u00e9", "cafe\u0301"), "occurs twice"),
        (("set/a", "set/a/b"), "is a file and a folder"),
    ],
)
def test_one_place_for_two_members_is_refused(tmp_path, names, why):
    path = _zip(tmp_path / "evil.zip", [(name, b"x") for name in names])
    assert why in _refused(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def _flag_encrypted(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(signature) + at
        struct.pack_into("<H", data, place, struct.unpack_from("<H", data, place)[0] | 1)
    path.write_bytes(data)


def test_encrypted_members_are_refused(tmp_path):
    path = _zip(tmp_path / "secret.zip", [("a", b"x" * 50)])
    _flag_encrypted(path)
    assert "is encrypted" in _refused(path, tmp_path / "out")
    with pytest.raises(DataError, match="encrypted"):
        _read(path, "a")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_cannot_be_bounded_are_refused(tmp_path, compression):
    with zipfile.ZipFile(tmp_path / "odd.zip", "w", compression) as archive:
        archive.writestr("a", b"x" * 50)
    assert "an unusual compression" in _refused(tmp_path / "odd.zip", tmp_path / "out")


def test_a_bomb_is_stopped_by_what_comes_out_of_it(tmp_path):
    path = _zip(tmp_path / "bomb.zip", [("a", bytes(5_000_000)), ("b", bytes(5_000_000))])
    for number, limits in enumerate(
        (Limits(total_bytes=6_000_000), Limits(ratio=10, free_bytes=6_000_000))
    ):
        out = tmp_path / f"out{number}"
        assert "zip bomb" in _refused(path, out, limits)
        written = sum(one.stat().st_size for one in out.iterdir())
        assert written < 6_200_000, "the ratio allows some more"
    with pytest.raises(DataError, match="zip bomb"):
        _read(path, "a", Limits(total_bytes=1_000_000))
    assert len(_extracted(path, tmp_path / "whole")) == 2, "small ones may be very regular"


def test_a_real_bomb_is_stopped_by_the_limits_in_use(tmp_path):
    with (
        zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a", "w") as member,
    ):
        for _ in range(40):
            member.write(bytes(1 << 20))
    assert "zip bomb" in _refused(tmp_path / "bomb.zip", tmp_path / "out")
    with pytest.raises(DataError, match="zip bomb"):
        _read(tmp_path / "bomb.zip", "a")


def test_a_size_that_the_archive_claims_is_not_believed(tmp_path):
    """The header says 10 bytes; more come out, or the checksum does not fit, but it never ends."""
    path = _zip(tmp_path / "liar.zip", [("a", bytes(3_000_000))])
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02") + 24
    assert struct.unpack_from("<I", data, at)[0] == 3_000_000
    struct.pack_into("<I", data, at, 10)
    path.write_bytes(data)
    assert "cannot be read" in _refused(path, tmp_path / "out")


def test_too_many_members_are_refused(tmp_path):
    path = _zip(tmp_path / "many.zip", [(f"{number}", b"") for number in range(20)])
    assert "it has 20 members" in _refused(path, tmp_path / "out", Limits(members=19))


def test_a_truncated_or_damaged_archive_is_told(tmp_path):
    whole = _zip(tmp_path / "whole.zip", [("a", b"some text " * 100)]).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[:-30])
    assert "is not a whole zip file" in _refused(tmp_path / "cut.zip", tmp_path / "out1")
    damaged = bytearray(whole)
    damaged[40:44] = b"\xff\xff\xff\xff"
    (tmp_path / "damaged.zip").write_bytes(damaged)
    assert "its member a cannot be read" in _refused(tmp_path / "damaged.zip", tmp_path / "out2")
    assert "cannot be read (No such file" in _refused(tmp_path / "absent.zip", tmp_path / "out3")
