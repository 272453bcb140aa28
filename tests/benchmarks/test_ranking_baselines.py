"""The benchmark of implicit's rankers: they score as implicit does, and are asked what ours are."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.evaluation.evaluate import evaluate_model
from tests.runs.ranking_run import finished_run, ranker_of, tied_table

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A file of `benchmarks/` by name; they find each other as they do when run."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module(name)


@pytest.fixture
def systems(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("implicit", reason="implicit is not installed (extra bench)")
    return imported("implicit_systems", monkeypatch)


@pytest.fixture
def baselines(systems: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return imported("ranking_baselines", monkeypatch)


def test_without_implicit_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit", None)
    monkeypatch.setitem(sys.modules, "implicit.als", None)
    monkeypatch.delitem(sys.modules, "implicit_systems", raising=False)
    with pytest.raises(SystemExit, match=r"pip install 'cfuica\[bench\]'"):
        imported("implicit_systems", monkeypatch)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ALS", {"factors": 6, "alpha": 3.0, "iterations": 3}),
        ("BPR", {"factors": 6, "iterations": 5}),
        ("NEIGHBOURS", {"weighting": "cosine", "K": 5}),
        ("NEIGHBOURS", {"weighting": "TF-IDF", "K": 5}),
        ("NEIGHBOURS", {"weighting": "BM25", "K": 5}),
    ],
)
def test_scores_are_those_that_implicit_recommends_by(
    baselines: ModuleType, systems: ModuleType, name: str, settings: dict[str, Any]
) -> None:
    system = getattr(systems, name)
    interactions = baselines.Interactions(DataSplit.leave_one_out(tied_table(), protocols=True))
    model = systems.fit(system.new(settings, 0), interactions.matrix(interactions.train))
    histories, users = interactions.matrix(interactions.seen), np.arange(12, dtype=np.int32)
    scorer = system.scorer(model, histories)
    reads = {"recalculate_user": True} if name == "ALS" else {}
    items, scores = model.recommend(
        users, histories, N=4, filter_already_liked_items=False, **reads
    )
    ours = scorer.scores(users)
    np.testing.assert_allclose(np.take_along_axis(ours, items, 1), scores, rtol=1e-4)
    np.testing.assert_allclose(-np.sort(-ours)[:, :4], scores, rtol=1e-4)
    np.testing.assert_array_equal(
        scorer.candidate_scores(users, items.astype(np.int32)), np.take_along_axis(ours, items, 1)
    )


def test_a_system_reads_all_but_what_the_protocol_asks_about(
    baselines: ModuleType, systems: ModuleType, tmp_path: Path
) -> None:
    interactions = baselines.Interactions(DataSplit.leave_one_out(tied_table(), protocols=True))
    read = []

    def watched(model: Any, histories: Any) -> Any:
        read.append(histories.toarray())
        return systems.POPULARITY.scorer(model, histories)

    system = replace(systems.POPULARITY, scorer=watched)
    model = systems.fit(system.new({}, 0), interactions.matrix(interactions.train))
    rival = baselines.Rival(system, model, interactions)
    folder = interactions.folder(tmp_path)
    for protocol in ("full", "paper"):
        evaluate_model(folder, rival, protocol=protocol)
    everything = interactions.matrix(interactions.rows(interactions.data_split.whole)).toarray()
    test = interactions.data_split.test
    for protocol, histories in zip(("full", "paper"), read, strict=True):
        asked = Interactions(test.frame.filter(pl.col(protocol)))
        withheld = interactions.matrix(interactions.rows(asked)).toarray()
        np.testing.assert_array_equal(histories, everything - withheld)
    np.testing.assert_array_equal(
        model.count_m, np.bincount(interactions.train.indices, minlength=33)
    )


def test_all_systems_are_in_the_table_and_the_same_seed_gives_the_same(
    baselines: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tied_table().frame.write_csv(tmp_path / "data.csv")
    found = []
    for name in ("one", "other"):
        to = tmp_path / f"{name}.json"
        given = ["--data", str(tmp_path / "data.csv"), "--quick", "--json", str(to)]
        monkeypatch.setattr(sys, "argv", ["ranking_baselines", *given])
        baselines.main()
        found.append(json.loads(to.read_text("utf-8"))["systems"])
    assert [one["system"] for one in found[0]] == ["popularity", "item-kNN", "ALS", "BPR"]
    for one, other in zip(*found, strict=True):
        assert one["protocols"].keys() == {"full", "paper"}
        for protocol, figures in one["protocols"].items():
            assert figures["ndcg@10"] == other["protocols"][protocol]["ndcg@10"]
        best = max(value for value, _ in one["tried"])
        assert [best, one["settings"]] in one["tried"]
        assert one["validation ndcg@10"] == best
    table = capsys.readouterr().out.splitlines()
    assert "HR@10 full  NDCG@10 full" in table[0]
    assert table[3].split()[0] == "ALS"


def test_a_run_of_ours_is_beside_them_unless_it_is_of_other_data(
    baselines: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = DataSplit.leave_one_out(tied_table(), protocols=True)
    run = finished_run(tmp_path / "run", parts)
    known = {"preset": "default", "settings": {"ensemble_size": 1}, "training": {"seconds": 2.0}}
    run.write_record(run.read_record() | known)
    monkeypatch.setattr(baselines.cfuica, "load", lambda path: ranker_of(parts))
    interactions = baselines.Interactions(parts)
    folder = interactions.folder(tmp_path)
    record = baselines.of_run(run.path, folder, interactions)
    by_us = evaluate_model(run, ranker_of(parts), protocol="paper", cutoffs=(10,))
    assert record["protocols"]["paper"]["hr@10"] == by_us.as_json()["hr@10"]
    assert baselines.row(record)["seconds"] == "2.0"
    other = baselines.Interactions(DataSplit.leave_one_out(tied_table(seed=1), protocols=True))
    (tmp_path / "other").mkdir()
    with pytest.raises(SystemExit, match="is of other data"):
        baselines.of_run(run.path, other.folder(tmp_path / "other"), other)
