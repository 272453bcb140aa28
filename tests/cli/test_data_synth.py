"""`cfuica data synth`, at a small size; and its file as `cfuica train` reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cfuica.cli import app
from cfuica.data.readers import read_table
from cfuica.errors import SettingsError

SMALL = ("--like", "shop", "--users", 2000, "--items", 2000, "--interactions", 20_000)


def _run(*words: object) -> Result:
    return CliRunner().invoke(app, ["data", "synth", *map(str, words)])


def test_it_writes_the_file_and_states_the_floor(tmp_path: Path) -> None:
    path = tmp_path / "shop.parquet"
    result = _run(*SMALL, "--out", path)
    assert result.exit_code == 0, result.output
    for part in ("20,000", "2,000", "stated: 0.6", "floor (RMSE), test set"):
        assert part in result.output
    table = read_table(path)
    assert (table.n, table.users.size, table.item_ids.size) == (20_000, 2000, 2000)
    assert table.repeats_dropped == 0
    assert set(table.scale.values) == {1, 2, 3, 4, 5}


def test_json_is_the_same_for_a_seed_and_another_for_another(tmp_path: Path) -> None:
    runs = [
        _run(*SMALL, "--out", tmp_path / "x.parquet", "--seed", seed, "--json").stdout
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]
    made = json.loads(runs[0])
    assert 0.7 < made["floor"] < 0.9
    assert sum(made["stars"]) == made["interactions"] == 20_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--like", "imdb", "--out", "x.parquet"), "--like imdb is not known"),
        (("--like", "shop", "--out", "x.csv"), r"does not end in \.parquet"),
        (("--like", "shop", "--out", "no/x.parquet"), "there is no folder no"),
        ((*SMALL[:-1], 100, "--out", "x.parquet"), "cannot have 100 interactions"),
    ],
)
def test_what_cannot_be_made_is_refused(
    words: tuple[object, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = _run(*words)
    assert isinstance(result.exception, SettingsError)
    with pytest.raises(SettingsError, match=said):
        raise result.exception
    assert list(tmp_path.iterdir()) == []
