"""Data by name, and where it is looked for."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from cfuica.data import datasets
from cfuica.data.datasets import cache_folder, data_home, found, names, resolve
from cfuica.data.layout import ReadOptions
from cfuica.errors import DataError, SettingsError

RATINGS = "1::1::5::10\n1::2::3::20\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with nothing around it, and a cache of its own."""
    work = tmp_path / "project" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.delenv("CFUICA_DATA", raising=False)
    monkeypatch.delenv("CFUICA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def _put(folder: Path, text: str = RATINGS) -> None:
    folder.mkdir(parents=True)
    (folder / "ratings.dat").write_text(text)


def test_home_is_the_variable_then_the_shared_folder_then_the_cache(place, monkeypatch):
    assert data_home() == place / "cache" / "cfuica"
    shared = place / "project" / "shared" / "data"
    shared.mkdir(parents=True)
    assert data_home() == shared
    monkeypatch.setenv("CFUICA_DATA", str(place / "mine"))
    assert data_home() == place / "mine"


def test_the_cache_is_where_the_system_keeps_caches(place, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: place)
    monkeypatch.setattr(datasets.sys, "platform", "linux")
    assert data_home() == place / ".cache" / "cfuica"
    monkeypatch.setattr(datasets.sys, "platform", "darwin")
    assert data_home() == place / "Library" / "Caches" / "cfuica"
    monkeypatch.setattr(datasets.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(place / "local"))
    assert data_home() == place / "local" / "cfuica"


@pytest.mark.parametrize("inside", ["ml-1m", "ml-1m/ml-1m"])
def test_a_name_is_found_under_the_variable_and_in_the_cache(place, monkeypatch, inside):
    monkeypatch.setenv("CFUICA_DATA", str(place / "mine"))
    _put(place / "cache" / "cfuica" / inside)
    assert resolve("ml-1m").n == 2
    _put(place / "mine" / inside, "1::1::5::10\n")
    assert resolve("ml-1m").n == 1, "the variable comes first"


def test_a_name_that_is_nowhere_says_where_it_was_looked_for(place, monkeypatch):
    monkeypatch.setenv("CFUICA_DATA", str(place / "mine"))
    with pytest.raises(DataError) as caught:
        resolve("ml-1m")
    for part in ("'ml-1m'", "ml-1m.zip", str(place / "mine"), str(place / "cache"), "CFUICA_DATA"):
        assert part in str(caught.value)


def test_a_name_that_is_nowhere_says_how_to_get_it(place):
    with pytest.raises(DataError, match="run  cfuica data get ml-25m  to fetch it"):
        resolve("ml-25m")


def test_the_cache_can_be_elsewhere(place, monkeypatch):
    assert cache_folder() == place / "cache" / "cfuica"
    monkeypatch.setenv("CFUICA_CACHE", str(place / "big disk"))
    assert cache_folder() == place / "big disk"
    _put(place / "big disk" / "ml-10m")
    assert resolve("ml-10m").n == 2


def test_names_are_the_releases_and_the_demo():
    assert names() == (
        "ml-100k",
        "ml-1m",
        "ml-10m",
        "ml-20m",
        "ml-25m",
        "ml-32m",
        "ml-latest-small",
        "demo",
    )


@pytest.mark.parametrize(
    "inside", ["ml-10m", "ml-10M100K", "ml-10m/ml-10M100K", "ml-10M100K/ml-10M100K"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_10m_is_found_by_either_name_as_folder_or_zip(place, inside, packed):
    home = place / "cache" / "cfuica"
    if packed:
        (home / inside).parent.mkdir(parents=True)
        with zipfile.ZipFile(home / f"{inside}.zip", "w") as archive:
            archive.writestr("ml-10M100K/ratings.dat", RATINGS)
        expected = home / f"{inside}.zip"
    else:
        _put(home / inside)
        expected = home / inside
    assert found() == {
        name: expected if name == "ml-10m" else None for name in names() if name != "demo"
    }
    assert resolve("ml-10m").n == 2


def test_a_folder_comes_before_a_zip(place):
    home = place / "cache" / "cfuica"
    _put(home / "ml-1m" / "ml-1m")
    (home / "ml-1m.zip").write_bytes(b"not even a zip")
    assert found()["ml-1m"] == home / "ml-1m" / "ml-1m"


def test_options_reach_the_reader(place):
    _put(place / "cache" / "cfuica" / "ml-1m")
    with pytest.raises(SettingsError, match="separator was given"):
        resolve("ml-1m", ReadOptions(separator=";"))


def test_a_local_folder_of_that_name_is_better_than_nothing(place):
    _put(place / "project" / "work" / "ml-1m")
    assert resolve("ml-1m").n == 2


def test_anything_else_is_a_path(place):
    path = place / "some.csv"
    path.write_text("user,item,rating\n1,1,5\n")
    assert resolve(str(path)).n == 1
    assert resolve(path).n == 1


def test_an_unknown_name_lists_the_known_ones(place):
    with pytest.raises(DataError) as caught:
        resolve("ml-2m")
    for part in (
        "'ml-2m'",
        "ml-100k, ml-1m, ml-10m,",
        "ml-latest-small, demo",
        str(place / "project" / "work" / "ml-2m"),
    ):
        assert part in str(caught.value)


def test_the_home_of_nobody_is_a_folder_that_is_not_there(place, monkeypatch):
    for variable in ("CFUICA_DATA", "CFUICA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, "~nosuchuser-at-all/data")
        with pytest.raises(DataError, match=r"~nosuchuser-at-all/x\.csv' is neither"):
            resolve("~nosuchuser-at-all/x.csv")
        assert set(found().values()) == {None}


def test_demo_is_the_world_of_seed_zero(place):
    table = resolve("demo")
    assert table.n == 60_000
    assert table.source == "the synthetic world of seed 0"


@pytest.mark.parametrize(
    "options", [ReadOptions(separator=";"), ReadOptions(bad_rows="skip"), ReadOptions(header=False)]
)
def test_the_demo_is_not_read_so_that_reading_options_are_refused(options):
    with pytest.raises(SettingsError, match=r"'demo' is made and .* was given; leave it"):
        resolve("demo", options)


def test_real_names(data_path, monkeypatch):
    monkeypatch.setenv("CFUICA_DATA", str(data_path("ml-100k").parent))
    assert resolve("ml-100k").n == 100_000
