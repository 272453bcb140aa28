from __future__ import annotations

import os
from pathlib import Path

from cfuica.io import expanded, shown


def test_the_home_folder_is_put_in(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("USERPROFILE", "/home/ann")
    assert expanded("~/x.csv") == Path("/home/ann/x.csv")


def test_the_home_of_an_unknown_user_stays_as_it_is() -> None:
    assert expanded("~nosuchuser-at-all/x.csv") == Path("~nosuchuser-at-all/x.csv")


def test_a_name_that_is_not_utf_8_can_be_written() -> None:
    assert shown(os.fsdecode(b"caf\xe9.csv")).encode() == rb"caf\udce9.csv"
    assert shown("café.csv") == "café.csv"
