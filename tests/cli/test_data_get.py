"""`cfuica data get`, against a server of our own."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cfuica.cli import app
from cfuica.data.datasets import resolve
from cfuica.errors import CfuicaError, DataError, SettingsError
from tests.data.webserver import Site, serving


def _packed() -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        ratings = b"userId,movieId,rating,timestamp\n1,1,4.0,964982703\n1,3,4.5,964981247\n"
        archive.writestr("ml-latest-small/ratings.csv", ratings)
        archive.writestr("ml-latest-small/README.txt", b"terms")
    return memory.getvalue()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    monkeypatch.delenv("CFUICA_DATA", raising=False)
    monkeypatch.setenv("CFUICA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with serving({"/ml-latest-small.zip": _packed()}) as site:
        monkeypatch.setenv("CFUICA_MIRROR", site.address)
        yield site


def _run(*words: object) -> Result:
    return CliRunner().invoke(app, ["data", "get", *map(str, words)])


def _refused(kind: type[CfuicaError], *words: object) -> str:
    """The sentence that the console script prints with exit code 1."""
    error = _run(*words).exception
    assert type(error) is kind
    return str(error)


def test_the_help_has_an_example_and_names_the_variables() -> None:
    text = _run("--help").output
    for part in ("Example:  cfuica data get ml-10m", "CFUICA_MIRROR", "CFUICA_CACHE", "ml-32m"):
        assert part in text


def test_it_fetches_says_what_was_done_and_what_comes_next(site: Site, tmp_path: Path) -> None:
    result = _run("ml-latest-small")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "cache" / "ml-latest-small"
    first, verified, terms, following = result.stdout.splitlines()
    assert first == f"ml-latest-small lies in {folder}."
    assert "changes over time" in verified
    assert "may not be redistributed" in terms
    assert (folder / "README.txt").read_bytes() == b"terms"
    assert following == "Next:  cfuica train ml-latest-small --out runs/ml-latest-small"
    assert f"Downloading {site.address}/ml-latest-small.zip." in result.stderr
    assert " MB" in result.stderr
    assert resolve("ml-latest-small").n == 2


def test_twice_is_once_and_force_is_anew(site: Site) -> None:
    _run("ml-latest-small")
    again = _run("ml-latest-small")
    assert "was there already" in again.stdout
    assert "It was not verified again" in again.stdout
    assert len(site.asked) == 1
    assert _run("ml-latest-small", "--force").exit_code == 0
    assert len(site.asked) == 2


def test_from_a_file_needs_no_network(site: Site, tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_bytes(_packed())
    result = _run("ml-latest-small", "--from", tmp_path / "mine.zip")
    assert result.exit_code == 0, result.output
    assert site.asked == []
    assert resolve("ml-latest-small").n == 2


def test_data_that_is_looked_for_first_is_named(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine" / "ml-latest-small"
    mine.mkdir(parents=True)
    (mine / "ratings.csv").write_text("user,item,rating\n1,1,1\n")
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path / "mine"))
    assert f"the name ml-latest-small stands for {mine}" in _run("ml-latest-small").stdout


def test_what_cannot_be_fetched_is_one_sentence(site: Site, tmp_path: Path) -> None:
    assert "'jester' cannot be fetched" in _refused(SettingsError, "jester")
    assert "ml-20m.zip answered 404" in _refused(DataError, "ml-20m")
    absent = _refused(DataError, "ml-latest-small", "--from", tmp_path / "absent")
    assert "absent does not exist" in absent
    for mirror in ("nowhere", "ftp://mirror.example"):
        message = _refused(SettingsError, "ml-1m", "--mirror", mirror)
        assert f"{mirror}/ml-1m.zip is not an address of the web" in message
        assert "later" not in message


def test_wrong_usage_has_exit_code_2() -> None:
    assert _run().exit_code == 2


def test_netflix_is_taken_from_a_path_and_never_downloaded(site: Site, tmp_path: Path) -> None:
    assert "may not be redistributed" in _refused(SettingsError, "netflix")
    source = tmp_path / "mine"
    source.mkdir()
    (source / "combined_data_1.txt").write_bytes(b"1:\n7,5,2005-09-06\n8,3,2005-09-07\n")
    result = _run("netflix", "--from", source)
    assert result.exit_code == 0, result.output
    assert "Netflix may not be redistributed" in result.stdout
    assert "cfuica train netflix" in result.stdout
    assert resolve("netflix").n == 2
    assert "does not exist" in _refused(DataError, "netflix", "--force", "--from", tmp_path / "no")
