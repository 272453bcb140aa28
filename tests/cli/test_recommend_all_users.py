"""`cfuica recommend --all-users --out`: part by part, and on from where it was ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cfuica.errors import CfuicaError
from cfuica.models import part_files
from cfuica.models.recommender import load
from tests.cli.harness import done, refused
from tests.cli.stand_in import StandIn

WHOLE = {
    "csv": pl.read_csv,
    "jsonl": pl.read_ndjson,
    "json": lambda path: pl.DataFrame(json.loads(path.read_text())),
    "parquet": pl.read_parquet,
}


@pytest.mark.parametrize("form", WHOLE)
def test_the_file_is_what_the_model_answers(
    trained: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_files, "USERS_PER_PART", 30)
    out = tmp_path / f"recs.{form}"
    outcome = done("recommend", trained, "--all-users", "-n", 3, "--out", out)
    model = load(trained)
    expected = model.recommend(model.users.ids, 3)
    assert outcome.err == f"{expected.height:,} recommendations written to {out}\n"
    assert WHOLE[form](out).equals(expected)
    assert list(tmp_path.iterdir()) == [out]


def test_rules_hold_and_who_gets_nothing_is_named(trained: Path, tmp_path: Path) -> None:
    out, model = tmp_path / "recs.parquet", load(trained)
    item = model.items.ids[0]
    outcome = done("recommend", trained, "--all-users", "--item", item, "--out", out)
    expected = model.recommend(model.users.ids, items=[item])
    assert pl.read_parquet(out).equals(expected)
    assert "There is nothing to recommend to user" in outcome.err


def test_a_command_goes_on_after_its_last_part(
    model: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_files, "USERS_PER_PART", 2)
    words = ["recommend", "run", "--all-users", "-n", 2, "--out", tmp_path / "recs.csv"]
    done(*words)
    whole = (tmp_path / "recs.csv").read_bytes()
    answer = model.recommend

    def ended(users: pl.Series, *arguments: Any, **options: Any) -> pl.DataFrame:
        if len(model.calls) == 2:
            raise CfuicaError("The power is out.")
        return answer(users, *arguments, **options)

    model.calls.clear()
    monkeypatch.setattr(model, "recommend", ended)
    assert refused(*words) == "cfuica: The power is out."
    assert (tmp_path / "recs.csv").read_bytes() == whole  # of the command before
    monkeypatch.setattr(model, "recommend", answer)
    model.calls.clear()
    outcome = done(*words)
    assert [len(call[1][0]) for call in model.calls] == [2, 1]
    assert "4 of 7 users were done before\n" in outcome.err
    assert (tmp_path / "recs.csv").read_bytes() == whole


def test_parts_of_another_question_are_not_taken(model: StandIn, tmp_path: Path) -> None:
    out = tmp_path / "recs.csv"
    folder = part_files.folder_of(out)
    folder.mkdir()
    for name in ("request.json", "part-000000.parquet"):
        (folder / name).write_text("{}")
    done("recommend", "run", "--all-users", "-n", 2, "--out", out)
    assert pl.read_csv(out).height == 2 * len(model.ids)


def test_two_commands_do_not_write_one_file(model: StandIn, tmp_path: Path) -> None:
    out = tmp_path / "recs.csv"
    with part_files.answered_in_parts(
        out, {}, model.users.ids, 1, lambda own: model.recommend(own, 1)
    ):
        message = refused("recommend", "run", "--all-users", "--out", out)
    assert message.startswith(f"cfuica: Another process is writing {out}")
