from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfuica.data.layout import ReadOptions
from cfuica.data.split_tables import SplitRequest
from cfuica.models.recommender import MODELS, kind_named
from cfuica.runs.inputs import prepared_split, read_split
from cfuica.runs.prepared import PreparedCache
from cfuica.runs.run import RunCheckpointer
from tests.cli import harness
from tests.cli.harness import done, refused
from tests.runs.small import small_table

FEW = ["--set", "epochs=3", "--set", "factors=8"]
QUICK = {"bpr": FEW, "biasmf": FEW, "eals": FEW}


AGAIN = "the model has learned again, for as many steps, from the train and the validation set."


@pytest.mark.parametrize(
    ("model", "end"),
    [
        ("bpr", AGAIN),
        ("eals", AGAIN),
        ("itempop", "learned from the validation set, too."),
        ("biasmf", "Kept of model 1/1: the best parameters, of step"),
    ],
)
def test_a_baseline_is_trained_evaluated_and_recommends(
    model: str, end: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    trained = done("train", "demo", "--model", model, "--out", run, *QUICK.get(model, []))
    assert f"(1,000 users, 500 items), model {model}." in trained.err
    assert end in trained.err
    record = json.loads((run / "run.json").read_text())
    assert record["model"] == model
    assert record["status"] == "finished"
    assert record["training"]["last"]["valid"]
    assert f"Model {model}, trained on " in (run / "report.html").read_text("utf-8")
    found = json.loads(done("evaluate", run, "--json").out)
    assert found.get("rmse", 0.9) < 1.0
    assert ("hr@10" in found) == (record["task"] == "ranking")
    assert "For user 121" in done("recommend", run, "--user", "121", "-n", "2").out
    ranked = json.loads(done("evaluate", run, "--protocol", "full", "--json").out)
    assert 0 < ranked["auc"]["value"] < 1
    again = tmp_path / "again"
    done("train", "demo", "--settings", run / "settings.toml", "--model", model, "--out", again)
    weights = [path / "model" / "model.safetensors" for path in (run, again)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_an_interrupted_run_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    words = ("train", "demo", "--model", "bpr", *QUICK["bpr"], "--out")
    done(*words, whole)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: True)
        outcome = harness.run(*words, run)
    assert outcome.code == 130
    assert f"after epoch 1 and is kept; go on with:  cfuica train --resume {run}" in outcome.err
    message = refused("train", "--resume", run, "--set", "factors=9")
    assert "Setting factors cannot change when a run is resumed, only learning_rate, " in message
    assert f"Resuming {run} after step 1." in done("train", "--resume", run).err
    weights = [path / "model" / "model.safetensors" for path in (whole, run)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3
    assert "finished; there is nothing to resume" in refused("train", "--resume", run)


@pytest.mark.parametrize("model", ["bias", "itemknn"])
def test_several_seeds_and_a_comparison(model: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done("train", "demo", "--model", model, "--out", runs, "--seeds", "0,1")
    metrics = json.loads(done("evaluate", runs, "--json").out)["metrics"]
    assert metrics["rmse" if model == "bias" else "hr@10"]["spread"] == 0
    compared = json.loads(done("compare", runs / "seed-0", runs / "seed-1", "--json").out)
    assert compared["rmse" if model == "bias" else "hr@10"]["difference"] == 0
    other = "item-mean" if model == "bias" else "itempop"
    message = refused("train", "demo", "--model", other, "--out", runs, "--seeds", "0,1")
    assert "is a run of another model" in message


def test_what_cannot_be_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for words, expected in (
        (("--model", "bpr", "--task", "rating"), "--model bpr is for the task ranking, but"),
        (("--model", "deep"), "--model deep is not known; the models are cf-uica, global-mean"),
        (("--model", "bpr", "--preset", "paper"), "There is no preset 'paper' of the model bpr"),
        (("--model", "bpr", "--set", "factors=0"), "Setting factors = 0 is not usable"),
        (("--model", "bpr", "--set", "hidden_users=3"), "There is no setting 'hidden_users'"),
    ):
        assert expected in refused("train", "demo", "--out", tmp_path / "run", *words)
    (tmp_path / "own.toml").write_text('task = "ranking"\nmodel = "bpr"\nfactors = 3\n')
    words = ("train", "demo", "--task", "ranking", "--out", tmp_path / "run")
    message = refused(*words, "--settings", tmp_path / "own.toml")
    assert "has settings of the model bpr, but the model is cf-uica; add --model bpr" in message


@pytest.mark.parametrize("command", ["train", "tune", "settings"])
def test_the_help_names_every_model(command: str) -> None:
    text = " ".join(done(command, "--help").out.split())
    assert [name for name in MODELS if name not in text] == []


def test_the_settings_of_a_baseline_are_listed() -> None:
    listed = done("settings", "--model", "bpr").out
    assert "Settings for bpr" in listed
    assert "initial_deviation" in listed


def test_a_baseline_is_tuned(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = ("tune", "demo", "--model", "ease", "--trials", "2", "--out", tmp_path / "tuned")
    found = json.loads(done(*words, "--json").out)
    assert found["measure"] == "NDCG@10"
    assert found["finished"] == 2
    assert "--model ease" in (tmp_path / "tuned" / "best.toml").read_text()
    message = refused("tune", "demo", "--model", "itempop", "--out", tmp_path / "none")
    assert "The model itempop has no settings to search; train it as it is." in message


@pytest.mark.parametrize("model", ["bias", "itempop"])
def test_prepared_data_gives_the_same_model(model: str, tmp_path: Path) -> None:
    small_table().frame.write_csv(tmp_path / "table.csv")
    kind = kind_named(model)
    cache = PreparedCache(tmp_path / "cache", least=1)
    request, options = SplitRequest(kind.split), ReadOptions()
    found = []
    for _ in range(2):  # written, then mapped
        place = str(tmp_path / "table.csv")
        split = prepared_split(cache, kind.settings(), place, None, None, request, options)
        found.append(kind.model().fit(split.train, valid=split.valid, vocabulary=split.whole))
        assert split.whole.prepared is not None
    plain = read_split(place, None, None, request, options, task=kind.settings.task)
    found.append(kind.model().fit(plain.train, valid=plain.valid, vocabulary=plain.whole))
    tops = [each.recommend([3, 4], 5) for each in found]
    assert tops[0].equals(tops[1])
    assert tops[0].equals(tops[2])
