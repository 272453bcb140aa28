from __future__ import annotations

import json
from pathlib import Path

from cfuica.models.recommender import load
from tests.cli.harness import done, refused


def test_a_retired_item_is_not_recommended_until_it_is_taken_back(run_copy: Path) -> None:
    best = load(run_copy).recommend(3, 1)["item"][0]
    outcome = done("retire", run_copy, "--item", best)
    assert outcome.out == f"1 of 1 items retired. Written to {run_copy / 'model'}.\n"
    served = done("recommend", run_copy, "--user", "3", "-n", "60", "--json").out
    assert best not in {row["item"] for row in json.loads(served)}
    outcome = done("retire", run_copy, "--item", best, "--undo")
    assert "1 of 1 items taken back." in outcome.out
    assert load(run_copy).recommend(3, 1)["item"][0] == best


def test_an_unknown_item_is_refused_and_nothing_is_retired(run_copy: Path) -> None:
    content = (run_copy / "model" / "model.json").read_bytes()
    message = refused("retire", run_copy, "--item", "5", "--item", "007")
    assert "item '007' (row 2) is unknown to this model: it knows 60 items, among them 7" in message
    assert (run_copy / "model" / "model.json").read_bytes() == content


def test_the_changed_model_can_go_elsewhere(run_copy: Path, tmp_path: Path) -> None:
    done("retire", run_copy, "--item", "5", "--out", tmp_path / "model")
    assert load(tmp_path / "model").catalogue.retired_ids.to_list() == [5]
    assert load(run_copy).catalogue.retired_ids.to_list() == []
