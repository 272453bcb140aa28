"""`cfuica recommend --all-users --out`: part by part, and on from where it was ended."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest

from cfuica.models import part_files
from cfuica.models.recommender import load
from tests.cli.harness import SCRIPT, done, refused
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


def test_a_killed_command_goes_on_after_its_last_part(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "recs.parquet"
    words = ["recommend", str(trained), "--all-users", "-n", "3", "--out", str(out)]
    slowly = (
        "import time; from cfuica.models import part_files as p; p.USERS_PER_PART = 10; "
        "from cfuica.models.recommender import Recommender as R; answer = R.recommend; "
        "R.recommend = lambda *a, **o: (time.sleep(0.3), answer(*a, **o))[1]; "
    )
    process = subprocess.Popen([*SCRIPT[:-1], slowly + SCRIPT[-1], *words], cwd=tmp_path)
    folder = part_files.folder_of(out)
    deadline = time.monotonic() + 60
    while len(list(folder.glob("part-*.parquet"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("part-*.parquet")}
    assert len(finished) >= 2
    monkeypatch.setattr(part_files, "USERS_PER_PART", 10)
    asked: list[int] = []
    monkeypatch.setattr(
        type(load(trained)), "recommend", _counted(type(load(trained)).recommend, asked)
    )
    outcome = done(*words)
    n_users = load(trained).users.size
    assert sum(asked) == n_users - 10 * len(finished)
    assert f"{10 * len(finished):,} of {n_users:,} users were done before\n" in outcome.err
    monkeypatch.undo()
    model = load(trained)
    assert pl.read_parquet(out).equals(model.recommend(model.users.ids, 3))
    assert list(tmp_path.iterdir()) == [out]


def _counted(recommend, asked):
    def counted(self, users, *arguments, **options):
        asked.append(len(users))
        return recommend(self, users, *arguments, **options)

    return counted


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
