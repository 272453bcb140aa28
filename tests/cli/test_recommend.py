from __future__ import annotations

import json
from pathlib import Path

from cfuica.model_folder import load
from tests.cli.harness import done, in_a_process, refused


def test_json_is_all_that_standard_output_holds(trained: Path) -> None:
    words = ["recommend", trained.name, "--user", "3", "-n", "4", "--json"]
    outcome = in_a_process(*words, cwd=trained.parent)
    assert outcome.returncode == 0
    rows = json.loads(outcome.stdout)
    assert [list(row) for row in rows] == [["user", "rank", "item", "score"]] * 4
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert {row["user"] for row in rows} == {3}
    assert rows == load(trained).recommend([3], 4).to_dicts()
    assert outcome.stderr == ""


def test_people_get_a_table_per_user(trained: Path) -> None:
    text = done("recommend", trained, "--user", "3", "--user", "5", "-n", "2").out
    assert "For user 3" in text
    assert "For user 5" in text
    assert text.count("│ 2 │") == 2


def test_seen_items_are_left_out_unless_wanted(trained: Path) -> None:
    words = ["recommend", trained, "--user", "3", "-n", "1000", "--min-support", "1", "--json"]
    unseen = {row["item"] for row in json.loads(done(*words).out)}
    every = {row["item"] for row in json.loads(done(*words, "--include-seen").out)}
    assert unseen < every


def test_an_unknown_user_is_explained(trained: Path) -> None:
    message = refused("recommend", trained, "--user", "3", "--user", "zzz")
    assert "The user 'zzz' (row 2) is unknown to this model: it knows 100 users" in message


def test_nothing_left_to_recommend_is_said_and_is_no_failure(trained: Path) -> None:
    words = ["recommend", trained, "--user", "3", "--min-support", "1000"]
    for outcome in (done(*words), done(*words, "--json")):
        assert outcome.out in ("", "[]\n")
        assert "nothing to recommend to user 3" in outcome.err
        assert "--min-support" in outcome.err


def test_a_missing_run_is_explained(tmp_path: Path) -> None:
    assert "There is no model in" in refused("recommend", tmp_path / "nowhere", "--user", "1")
