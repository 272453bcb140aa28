"""A run that ranks, from data to lists: every command on what `cfuica train` wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cfuica.models.co_autoregressive import RankingModel
from cfuica.models.recommender import load
from cfuica.runs.run import RunCheckpointer
from tests.cli.harness import done, refused, run
from tests.runs.ranking_run import tied_table

TINY = (
    "ensemble_size=1", "hidden_users=8", "hidden_items=8", "epochs=2", "batch_users=4",
    "validate_every=2",
)  # fmt: skip
RANKING = ("--task", "ranking", *(word for each in TINY for word in ("--set", each)))
OF_USERS = ("hr", "ndcg", "recall", "precision", "mrr", "map")
OF_LISTS = ("novelty", "popularity_bias", "coverage")


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 users, 30 items; times that are often equal; ratings from 0 to 4."""
    path = tmp_path_factory.mktemp("data") / "rated.csv"
    frame = tied_table().frame.with_row_index("row")
    frame.with_columns(rating=pl.col("row") % 5).drop("row").write_csv(path)
    return path


@pytest.fixture(scope="module")
def timed(rated: Path) -> Path:
    """The same without ratings."""
    path = rated.with_name("timed.csv")
    pl.read_csv(rated).drop("rating").write_csv(path)
    return path


@pytest.fixture(scope="module")
def untimed(rated: Path) -> Path:
    """User and item alone."""
    path = rated.with_name("untimed.csv")
    pl.read_csv(rated).select("user", "item").write_csv(path)
    return path


def trained(data: Path, run_name: str, *words: object) -> Path:
    path = data.with_name(run_name)
    done("train", data, "--out", path, *RANKING, *words)
    return path


@pytest.fixture(scope="module")
def ranked(timed: Path) -> Path:
    """A finished run; look, do not touch."""
    return trained(timed, "ranked")


@pytest.fixture
def copied(ranked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ranked, tmp_path / "run"))


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text("utf-8"))
    return found


def evaluated(folder: Path, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done("evaluate", folder, "--json", *words).out)
    assert found.pop("seconds") >= 0
    return found


def test_a_run_has_a_model_a_record_and_a_report_without_calibration(ranked: Path) -> None:
    written = record(ranked)
    assert (written["status"], written["task"]) == ("finished", "ranking")
    assert written["split"]["kind"] == "leave-one-out"
    assert written["training"]["steps"] == 6
    assert written["training"]["cold_start"] is None
    assert 0 <= written["training"]["last"]["valid"]["ndcg"] <= 1
    report = (ranked / "report.html").read_text("utf-8")
    assert "Validation NDCG@10" in report
    assert f"trained on {written['data']['train']:,} interactions of 12 users" in report
    assert "alibration" not in report
    assert isinstance(load(ranked), RankingModel)


@pytest.mark.parametrize(("protocol", "of_lists"), [("full", OF_LISTS), ("paper", ())])
def test_every_protocol_of_leave_one_out_gives_intervals(
    ranked: Path, protocol: str, of_lists: tuple[str, ...]
) -> None:
    found = evaluated(ranked, "--protocol", protocol, "--at", "3,10")
    assert found.pop("protocol") == protocol
    assert found.pop("users") == 12
    names = {f"{metric}@{n}" for metric in (*OF_USERS, *of_lists) for n in (3, 10)}
    assert found.keys() == {*names, "auc"}
    for name, each in found.items():
        assert each.keys() == {"value", "low", "high"}
        if not name.startswith("coverage"):  # of all lists together, so without users to resample
            assert each["low"] <= each["value"] <= each["high"]


def test_what_is_evaluated_is_what_is_recommended(ranked: Path) -> None:
    model = load(ranked)
    test = pl.read_parquet(ranked / "test.parquet")
    assert test.filter(pl.col("full") != pl.col("paper")).height, "ties are broken apart"
    # What only another protocol asks about is known by then.
    model.observe(test.filter(~pl.col("full")).select("user", "item", "timestamp"))
    top = model.recommend(model.users.ids, 30)
    ranks = top.join(test.filter("full"), on=["user", "item"])["rank"]
    assert len(ranks) == 12
    mrr = evaluated(ranked, "--at", "30")["mrr@30"]["value"]
    assert mrr == pytest.approx((1 / ranks).sum() / 12)


def test_a_split_by_date_has_a_protocol_of_its_own(timed: Path, ranked: Path) -> None:
    dated = trained(timed, "dated", "--split", "date", "--test-share", "0.2")
    found = evaluated(dated)
    assert found["protocol"] == "date"
    assert 0 <= found["recall@10"]["value"] <= 1
    assert evaluated(dated, "--protocol", "date") == found
    assert evaluated(dated, "--protocol", "full") == found
    message = refused("evaluate", dated, "--protocol", "paper")
    assert "--protocol paper tests runs with --split leave-one-out" in message
    assert "evaluate by date, or train again" in message
    message = refused("evaluate", ranked, "--protocol", "date")
    assert "--protocol date tests runs with --split date" in message


def test_without_times_the_order_of_the_rows_counts(untimed: Path) -> None:
    path = untimed.with_name("untimed")
    printed = done("train", untimed, "--out", path, *RANKING).err
    assert "has no timestamps: the order of its rows was taken for the order in time." in printed
    last = pl.read_csv(untimed).group_by("user", maintain_order=True).last()
    assert pl.read_parquet(path / "test.parquet").select("user", "item").equals(last)
    assert evaluated(path)["users"] == 12
    assert "times" in refused("evaluate", path, "--protocol", "paper")
    top = json.loads(done("recommend", path, "--user", "1", "-n", "3", "--json").out)
    assert [each["rank"] for each in top] == [1, 2, 3]


def test_ratings_are_not_read(rated: Path, ranked: Path) -> None:
    # Interactions without a rating are interactions: the same model as without the column.
    unread = trained(rated, "unread", "--no-rating", "0")
    assert evaluated(unread) == evaluated(ranked)
    history = ("recommend", unread, "--history", "3,5", "--json")
    assert json.loads(done(*history).out) == load(unread).recommend(history=[3, 5]).to_dicts()


def test_an_empty_rating_is_of_something_done(rated: Path, ranked: Path) -> None:
    some = rated.with_name("some.csv")
    frame = pl.read_csv(rated)
    frame.with_columns(rating=pl.when(pl.col("rating") > 1).then("rating")).write_csv(some)
    assert evaluated(trained(some, "empty")) == evaluated(ranked)
    assert "has '' in column 3 ('rating')" in refused("train", some, "--out", some.with_name("no"))


@pytest.mark.parametrize("words", [(), ("--set", "ensemble_size=2", "--split", "date")])
def test_a_stopped_run_goes_on_to_the_same_bits(
    timed: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    arguments = ("train", timed, *RANKING, *words, "--out")
    done(*arguments, tmp_path / "whole")
    asked = iter(range(100))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: next(asked) == 2)
        assert run(*arguments, tmp_path / "run").code == 130
    assert "has no model yet" in run("recommend", tmp_path / "run", "--user", "1").err
    outcome = done("train", "--resume", tmp_path / "run")
    assert outcome.err.startswith(f"Resuming {tmp_path / 'run'} after step 3")
    for name in ("model.safetensors", "interactions.parquet"):
        both = [(tmp_path / one / "model" / name).read_bytes() for one in ("run", "whole")]
        assert both[0] == both[1]
    assert evaluated(tmp_path / "run") == evaluated(tmp_path / "whole")


def test_runs_are_compared(timed: Path, ranked: Path, tmp_path: Path) -> None:
    other = trained(timed, "other", "--seed", "1")
    printed = json.loads(done("compare", ranked, other, "--json").out)
    assert (printed["protocol"], printed["users"]) == ("full", 12)
    of_both = printed["ndcg@10"]
    assert of_both["first"] == evaluated(ranked)["ndcg@10"]["value"]
    assert of_both["second"] == evaluated(other)["ndcg@10"]["value"]
    assert of_both["difference"] == pytest.approx(of_both["first"] - of_both["second"])
    assert "protocol paper, 12 users" in done("compare", ranked, other, "--protocol", "paper").out


def test_a_run_is_used_like_a_model(ranked: Path) -> None:
    model = load(ranked)
    printed = json.loads(done("recommend", ranked, "--all-users", "-n", "4", "--json").out)
    assert printed == model.recommend(model.users.ids, 4).to_dicts()
    printed = json.loads(done("recommend", ranked, "--history", "3,5", "--json").out)
    assert printed == model.recommend(history=[3, 5]).to_dicts()
    printed = json.loads(done("similar", ranked, "--item", "3", "--json").out)
    assert printed == model.similar_items([3]).to_dicts()
    printed = json.loads(done("explain", ranked, "--user", "2", "--item", "3", "--json").out)
    assert printed == model.explain(2, 3).as_json()


@pytest.mark.parametrize(
    ("history", "unread"),
    [
        ("3:5", "1 of 1 items is unknown to this model: '3:5'"),
        ("x,3,y", "2 of 3 items are unknown to this model: 'x' and 1 more"),
    ],
)
def test_items_of_a_history_that_the_model_lacks_are_reported(
    ranked: Path, history: str, unread: str
) -> None:
    printed = (
        f"Of the history, {unread}; it knows 30 items, such as 1. What is unknown is ignored.\n"
    )
    assert done("recommend", ranked, "--history", history, "--json").err == printed
    assert done("explain", ranked, "--history", history, "--item", "4", "--json").err == printed
    assert done("recommend", ranked, "--history", "3", "--json").err == ""
    message = refused("recommend", ranked, "--history", history, "--unknown", "error")
    assert "is unknown to this model" in message


def test_what_was_observed_is_no_test_any_more(copied: Path) -> None:
    tested = pl.read_parquet(copied / "test.parquet").filter("full").head(2)
    events = copied.with_name("events.parquet")
    tested.select("user", "item", "timestamp").write_parquet(events)
    done("observe", copied, "--events", events)
    message = refused("evaluate", copied)
    assert f"The model of {copied} has observed 2 of the 12 interactions that --protocol" in message
    assert "they test nothing any more" in refused("compare", copied, copied)


def test_a_run_observes_and_forgets(copied: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.csv"
    events.write_text("user,item,timestamp\n77,1,9\n77,99,10\n")
    printed = done("observe", copied, "--events", events).out
    assert "2 interactions added, 0 changed, 0 removed; 1 new users and 1 new items." in printed
    top = json.loads(done("recommend", copied, "--user", "77", "--json").out)
    assert top == load(copied).recommend([77]).to_dicts()
    tested = pl.read_parquet(copied / "test.parquet").filter(user=2).height
    printed = done("forget", copied, "--user", "2").out
    assert f"{tested:,} rows of the run's test set were removed too." in printed
    assert 2 not in load(copied).users.ids
    assert evaluated(copied)["users"] == 11


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--task", "nonsense"), "--task nonsense is not known; the tasks are rating and ranking"),
        (
            ("--preset", "paper-uniform"),
            "'paper-uniform' belongs to the task ranking: use it with --task ranking",
        ),
        (
            ("--task", "ranking", "--preset", "paper-as-written"),
            "'paper-as-written' belongs to the task rating: use it with --task rating",
        ),
        ((*RANKING, "--preset", "papers"), "There is no preset 'papers'; the presets are default"),
        (("--set", "learned_decay=true"), "There is no setting 'learned_decay'; the settings are:"),
        ((*RANKING, "--set", "bins=5"), "There is no setting 'bins'; the settings are:"),
        (
            (*RANKING, "--set", "ordering=uniform", "--set", "learned_decay=true"),
            "learned_decay=true needs a temporal order, which ordering=uniform does not have; add "
            "learned_decay=false",
        ),
        (
            (*RANKING, "--set", "batch_items=200"),
            "batch_items=200 needs loss=bernoulli, but there is loss=softmax; add "
            "batch_items=none (with loss=sampled-softmax the setting softmax_candidates "
            "limits the items).",
        ),
        (
            (*RANKING, "--set", "sides=users", "--set", "residual_units=4"),
            "but there is sides=users; add residual_units=0.",
        ),
        ((*RANKING, "--folds", "5"), "--folds does not belong to --split leave-one-out"),
        ((*RANKING, "--split", "time"), "--split time is not known; the splits are random, leave"),
        ((*RANKING, "--split", "given"), "--split given needs --train FILE and --test FILE"),
        ((*RANKING, "--valid", "v.csv"), "--valid v.csv is no share; give a number"),
    ],
)
def test_what_does_not_belong_together_is_refused_in_one_sentence(
    timed: Path, tmp_path: Path, words: tuple[str, ...], part: str
) -> None:
    assert part in refused("train", timed, "--out", tmp_path / "run", *words)
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_test_set_says_how_to_use_it(timed: Path, tmp_path: Path) -> None:
    printed = done("train", timed, "--out", tmp_path / "run", *RANKING, "--split", "none").err
    assert "cfuica evaluate" not in printed
    assert printed.splitlines()[-1].startswith("Done. Use it:  cfuica recommend")


def test_a_stopped_run_whose_data_lost_its_times_is_refused(timed: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: True)
        assert run("train", timed, "--out", tmp_path / "run", *RANKING).code == 130
    path = tmp_path / "run" / "unfinished" / "inputs" / "train.parquet"
    pl.read_parquet(path).drop("timestamp").write_parquet(path)
    assert "train.parquet" in refused("train", "--resume", tmp_path / "run")


def test_what_only_the_other_task_has_is_refused_in_one_sentence(
    ranked: Path, timed: Path, rated: Path
) -> None:
    message = refused("recommend", ranked, "--user", "2", "--by", "lower")
    assert "but RankingModel has one score; leave by out" in message
    message = refused("predict", ranked, "--pairs", timed)
    assert (
        "RankingModel cannot predict ratings; RatingModel and baselines of ratings can" in message
    )
    predicting = rated.with_name("predicting")
    words = ("--set", "hidden_users=4", "--set", "hidden_items=4", "--set", "ensemble_size=1")
    few = ("--set", "cold_start_units=0", "--set", "max_steps=2")
    done("train", rated, "--out", predicting, *words, *few)
    message = refused("evaluate", ranked, "--by", "lower")
    assert "but RankingModel has one score; leave by out" in message
    assert "compare their rankings with --protocol" in refused("compare", ranked, predicting)
    message = refused("recommend", predicting, "--history", "3,5")
    assert "not of the form ITEM:RATING" in message


def test_the_embedded_data_needs_no_option(tmp_path: Path) -> None:
    done("train", "demo", "--out", tmp_path / "run", *RANKING, "--set", "epochs=0.01")
    assert record(tmp_path / "run")["data"]["users"] == 1000
