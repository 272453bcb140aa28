"""`cfuica data cache`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cfuica.cli import app
from cfuica.data.layout import ReadOptions
from cfuica.data.split_tables import SplitRequest
from cfuica.runs.inputs import prepared_split
from cfuica.runs.prepared import PreparedCache
from tests.runs.small import TINY, small_table


def _run(*words: str) -> Result:
    result = CliRunner().invoke(app, ["data", "cache", *words])
    assert result.exit_code == 0, result.output
    return result


def test_it_lists_what_is_there_and_clears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFUICA_CACHE", str(tmp_path / "cache"))
    assert json.loads(_run("--json").output) == []
    file, cache = tmp_path / "ratings.csv", PreparedCache(least=1)
    small_table().frame.write_csv(file)
    (tmp_path / "cache" / "ml-1m").mkdir(parents=True)  # a data set stays
    prepared_split(cache, TINY, str(file), None, None, SplitRequest(), ReadOptions())
    (entry,) = json.loads(_run("--json").output)
    assert entry["data"] == str(file)
    assert (entry["interactions"], entry["split"]) == (small_table().n, "random")
    assert entry["folder"].startswith(str(tmp_path / "cache" / "prepared"))
    (cache.folder / "damaged").mkdir()
    (cache.folder / "damaged" / "prepared.json").write_text("{}")
    assert "2,200" in _run("--clear").output
    assert json.loads(_run("--json").output) == []
    assert (tmp_path / "cache" / "ml-1m").is_dir()
