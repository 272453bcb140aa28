from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import polars as pl
import pytest

from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.recommender import load
from tests.cli.harness import done, refused, run, sentence
from tests.runs.small import SET_TINY, small_table

RUN_FILES = {"run.json", "settings.toml", "metrics.jsonl", "test.parquet", "model", "report.html"}


def record(folder: Path) -> dict[str, object]:
    return json.loads((folder / "run.json").read_text("utf-8"))


def test_a_csv_file_becomes_a_run(ratings: Path, tmp_path: Path) -> None:
    outcome = done("train", ratings, "--out", tmp_path / "run", "--fold", "3", *SET_TINY)
    assert {path.name for path in (tmp_path / "run").iterdir()} == RUN_FILES
    assert outcome.out == ""
    assert outcome.err.splitlines()[0].startswith("Training on 1,881 ratings (100 users, 60 items")
    assert f"cfuica evaluate {tmp_path / 'run'}" in outcome.err
    written = record(tmp_path / "run")
    assert written["data"] | {"sha256": ""} == {
        "source": str(ratings),
        "sha256": "",
        "users": 100,
        "items": 60,
        "train": 1881,
        "valid": 99,
        "test": 220,
    }
    assert written["split"]["fold"] == 3
    assert written["preset"] == "default"
    assert written["training"]["steps"] == 4


def test_the_report_draws_the_learning_curves(trained: Path) -> None:
    page = (trained / "report.html").read_text("utf-8")
    assert 'aria-label="Validation RMSE"' in page


def test_the_run_says_what_was_set(ratings: Path, tmp_path: Path) -> None:
    changes = ["--set", "sides=users", "--set", "max_norm=none", "--set", "l2=0", "--seed", "7"]
    done("train", ratings, "--out", tmp_path / "run", *SET_TINY, *changes)
    settings = record(tmp_path / "run")["settings"]
    assert settings["sides"] == "users"
    assert settings["max_norm"] is None
    assert settings["l2"] == 0.0
    assert settings["seed"] == 7
    assert settings["hidden_users"] == 8
    assert load(tmp_path / "run").settings.model_dump() == settings


def test_the_size_of_the_data_chooses_what_is_not_set_and_the_run_says_so(
    ratings: Path, tmp_path: Path
) -> None:
    short = ["--set", "ensemble_size=1", "--set", "cold_start_units=0", "--set", "max_steps=2"]
    err = done("train", ratings, "--out", tmp_path / "run", *short).err
    note = next(line for line in err.splitlines() if line.startswith("The size of the data"))
    assert "hidden_users=48, hidden_items=48" in note
    assert "start_from_biases=True" in note
    assert "max_steps" not in note
    settings = record(tmp_path / "run")["settings"]
    assert (settings["hidden_users"], settings["max_steps"], settings["sized"]) == (48, 2, [])
    assert "hidden_users = 48" in (tmp_path / "run" / "settings.toml").read_text("utf-8")
    assert load(tmp_path / "run").settings.model_dump() == settings


def test_progress_is_plain_lines_in_a_pipe(ratings: Path, tmp_path: Path) -> None:
    err = done("train", ratings, "--out", tmp_path / "run", *SET_TINY).err
    assert "\x1b" not in err
    assert any(line.startswith("step 4/4  loss ") for line in err.splitlines())


def test_metrics_have_a_line_per_validation(trained: Path) -> None:
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4]
    assert lines[-1]["valid"]["rmse"] == record(trained)["training"]["last"]["valid"]["rmse"]


def test_the_registered_demo_data_trains(tmp_path: Path) -> None:
    done("train", "demo", "--out", tmp_path / "run", *SET_TINY)
    assert record(tmp_path / "run")["data"]["users"] == 1000
    assert "title" in load(tmp_path / "run").recommend([1], 1).columns


def test_the_papers_preset_trains(ratings: Path, tmp_path: Path) -> None:
    arguments = ["--preset", "paper", *SET_TINY]
    outcome = done("train", ratings, "--out", tmp_path / "run", *arguments)
    assert record(tmp_path / "run")["settings"]["schedule"] == "patience"
    assert "step 4  loss" in outcome.err  # the last one is told, without a plan too


def test_a_split_made_elsewhere_is_used(tmp_path: Path) -> None:
    frame = small_table().frame
    frame.head(2000).write_csv(tmp_path / "train.csv")
    frame.tail(200).write_csv(tmp_path / "test.csv")
    files = ["--train", tmp_path / "train.csv", "--test", tmp_path / "test.csv"]
    done("train", *files, "--out", tmp_path / "run", *SET_TINY)
    written = record(tmp_path / "run")
    assert (written["data"]["train"], written["data"]["valid"]) == (1900, 100)
    assert "train.csv and " in written["data"]["source"]
    test = pl.read_parquet(tmp_path / "run" / "test.parquet")
    assert test.equals(pl.read_csv(tmp_path / "test.csv"))
    assert json.loads(done("evaluate", tmp_path / "run", "--json").out)["n"] == 200


def test_test_ids_that_training_never_saw_are_predicted_all_the_same(tmp_path: Path) -> None:
    frame = small_table().frame
    newcomer = frame["user"] == 7
    frame.filter(~newcomer).write_csv(tmp_path / "train.csv")
    frame.filter(newcomer).write_csv(tmp_path / "test.csv")
    files = ["--train", tmp_path / "train.csv", "--test", tmp_path / "test.csv"]
    done("train", *files, "--out", tmp_path / "run", *SET_TINY)
    assert json.loads(done("evaluate", tmp_path / "run", "--json").out)["n"] == newcomer.sum()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["leave-one-out"], (2000, 100, 100)),
        (["date", "--test-share", "0.1", "--valid", "0.2"], (1584, 396, 220)),
        (["users", "--test-share", "0.2", "--valid", "0"], None),
    ],
)
def test_other_splits_train_and_are_tested(
    ratings: Path, tmp_path: Path, arguments: list[str], expected: tuple[int, ...] | None
) -> None:
    arguments = ["--split", *arguments, *SET_TINY]
    err = done("train", ratings, "--out", tmp_path / "run", *arguments).err
    written = record(tmp_path / "run")
    sizes = tuple(written["data"][part] for part in ("train", "valid", "test"))
    assert sum(sizes) == 2200
    assert expected is None or sizes == expected
    cold = written["split"]["cold_users"], written["split"]["cold_items"]
    assert ("have no interaction in the training set" in err) == (cold != (0, 0))
    assert json.loads(done("evaluate", tmp_path / "run", "--json").out)["n"] == sizes[2]


@pytest.mark.parametrize(("valid", "expected"), [("0", (2200, 0)), ("0.4", (1320, 880))])
def test_without_a_split_everything_is_trained_on(
    ratings: Path, tmp_path: Path, valid: str, expected: tuple[int, int]
) -> None:
    arguments = ["--split", "none", "--valid", valid, *SET_TINY]
    outcome = done("train", ratings, "--out", tmp_path / "run", *arguments)
    data = record(tmp_path / "run")["data"]
    assert (data["train"], data["valid"], data["test"]) == (*expected, 0)
    assert "cfuica recommend" in outcome.err
    assert "--test FILE" in refused("evaluate", tmp_path / "run")
    done("evaluate", tmp_path / "run", "--test", ratings)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()


def test_the_seed_decides_every_byte_of_the_model(
    ratings: Path, trained: Path, tmp_path: Path
) -> None:
    done("train", ratings, "--out", tmp_path / "same", "--seed", "0", *SET_TINY)
    done("train", ratings, "--out", tmp_path / "other", "--seed", "1", *SET_TINY)
    assert digest(tmp_path / "same") == digest(trained)
    assert digest(tmp_path / "other") != digest(trained)


def test_what_reading_changed_is_reported(tmp_path: Path) -> None:
    frame = small_table().frame
    pl.concat([frame, frame.head(3)]).write_csv(tmp_path / "twice.csv")
    err = done("train", tmp_path / "twice.csv", "--out", tmp_path / "run", *SET_TINY).err
    assert err.startswith("3 earlier interactions of a repeated (user, item) pair were dropped.\n")


@pytest.mark.parametrize("name", ["m[/b]x", ":smile: [red]", "a b" * 40])
def test_any_name_will_do_for_a_run(ratings: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    err = done("train", ratings, "--out", out, *SET_TINY).err
    assert err.splitlines()[-1] == f"Done. Test it:  cfuica evaluate '{out}'"


def test_a_run_is_not_overwritten_unasked(run_copy: Path, ratings: Path) -> None:
    before = digest(run_copy)
    assert "add --overwrite" in refused("train", ratings, "--out", run_copy, *SET_TINY)
    assert digest(run_copy) == before
    done("train", ratings, "--out", run_copy, "--overwrite", "--seed", "5", *SET_TINY)
    assert digest(run_copy) != before
    assert {path.name for path in run_copy.iterdir()} == RUN_FILES


def test_a_run_with_shared_rows_is_overwritten_too(ratings: Path, tmp_path: Path) -> None:
    arguments = ["train", ratings, "--out", tmp_path / "run", *SET_TINY]
    done(*arguments, "--set", "min_row_interactions=10")
    assert (tmp_path / "run" / "model" / "clusters.safetensors").is_file()
    done(*arguments, "--overwrite")


def test_data_that_cannot_be_trained_on_does_not_delete_an_earlier_run(
    run_copy: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("user,item,rating\n1,2,5\n3,4,5\n")
    arguments = ["--split", "none", "--valid", "0", "--out", run_copy, "--overwrite", *SET_TINY]
    assert "only the rating 5" in refused("train", tmp_path / "bad.csv", *arguments)
    done("evaluate", run_copy)


def test_overwriting_spares_what_is_not_of_a_run(ratings: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("of another project")
    (tmp_path / "thesis.tex").write_text("years of work")
    message = refused("train", ratings, "--out", tmp_path, "--overwrite", *SET_TINY)
    assert "exists and is not empty; choose another" in message
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "No data was given"),
        (["nowhere.csv"], "'nowhere.csv' is neither a registered data set"),
        (["RATINGS", "--preset", "nope"], "the presets are default, paper, paper-netflix"),
        (["RATINGS", "--set", "hiden=3"], "no setting 'hiden'; the settings are: activation"),
        (["RATINGS", "--set", "hidden_users=many"], "hidden_users = 'many' is not usable"),
        (["RATINGS", "--set", "hidden_users=0"], "hidden_users = 0 is not usable"),
        (["RATINGS", "--set", "learning_rate=Infinity"], "learning_rate = inf is not usable"),
        (["RATINGS", "--set", "hidden_users"], "not of the form KEY=VALUE"),
        (["RATINGS", "--set", "=3"], "not of the form KEY=VALUE"),
        (["RATINGS", "--set", f"l2={'[' * 100_000}"], "l2 = "),
        (["RATINGS", "--seed", "-1"], "seed = -1 is not usable"),
        (["RATINGS", "--seed", f"{2**64}"], "seed = 18446744073709551616 is not usable"),
        (["RATINGS", "--fold", "10"], "with 10 folds it must be from 0 to 9"),
        (["RATINGS", "--fold", "-1"], "with 10 folds it must be from 0 to 9"),
        (["RATINGS", "--folds", "1"], "at least 2"),
        (["RATINGS", "--folds", "9999"], "2200 ratings cannot be split into 9999 folds"),
        (["RATINGS", "--valid", "1"], "--valid 1.0 is not a share"),
        (["RATINGS", "--split", "time"], "the splits are random, leave-one-out, date, users"),
        (["RATINGS", "--split", "date", "--fold", "1"], "--fold does not belong to --split date"),
        (["RATINGS", "--split", "date", "--test-from", "1999-01-01"], "left to train on"),
        (["RATINGS", "--split", "date", "--test-from", "9999-01-01"], "left to test on"),
        (["RATINGS", "--split", "date", "--test-from", "soon"], "'soon' is not a date"),
        (["RATINGS", "--split", "users", "--test-share", "0"], "test_share is 0.0"),
        (["RATINGS", "--split", "given"], "needs --train FILE and --test FILE"),
        (["--train", "a", "--test", "b", "--split", "date"], "a split already"),
        (["--train", "a", "--test", "b", "--folds", "3"], "--folds does not belong"),
        (["RATINGS", "--split-seed", "-1"], "seed is -1"),
        (["RATINGS", "--train", "a", "--test", "b"], "not both"),
        (["--train", "RATINGS"], "belong together"),
        (["--train", "RATINGS", "--test", "nowhere.csv"], "nowhere.csv cannot be read"),
        (["--train", "RATINGS", "--test", "RATINGS"], "2200 (user, item) pairs"),
    ],
)
def test_what_cannot_be_trained_is_said_before_anything_is_written(
    ratings: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    words = [str(ratings) if word == "RATINGS" else word for word in arguments]
    assert message in refused("train", *words, "--out", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("user,item,rating\n", "has no interactions"),
        ("user,item,rating\n1,2,good\n", "line 2, has 'good' in column 3 ('rating')"),
        ("user,item,rating\n1,2,nan\n", "line 2"),
        ("user,item\n1,2\n3,4\n", "has no ratings"),
        ("user,item,rating\n1,2,5\n3,4,5\n", "only the rating 5"),
        ("user,item,rating\n1,2,5\n1,3,4\n", "at least 2 users and 2 items"),
        ("who,what\n1,2\n", "no column for user and item"),
    ],
)
def test_data_that_nothing_can_be_learned_from_leaves_no_folder(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "bad.csv").write_text(content)
    arguments = ["--split", "none", "--valid", "0", "--out", tmp_path / "run", *SET_TINY]
    assert message in refused("train", tmp_path / "bad.csv", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


def test_a_test_file_without_ratings_is_named(ratings: Path, tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("user,item\n1,999\n")
    files = ["--train", ratings, "--test", tmp_path / "test.csv"]
    message = refused("train", *files, "--out", tmp_path / "run", *SET_TINY)
    assert f"{tmp_path / 'test.csv'} has no ratings" in message
    assert not (tmp_path / "run").exists()


def test_ids_written_differently_in_the_two_files_are_explained(
    ratings: Path, tmp_path: Path
) -> None:
    (tmp_path / "test.csv").write_text("user,item,rating\nu1,1,5\n")
    files = ["--train", ratings, "--test", tmp_path / "test.csv"]
    message = refused("train", *files, "--out", tmp_path / "run", *SET_TINY)
    assert "user ids are Int64" in message
    assert "String" in message


@pytest.mark.parametrize(("place", "message"), [("", "is a file"), ("/run", "cannot be created")])
def test_a_file_in_the_place_of_the_folder_is_explained(
    ratings: Path, tmp_path: Path, place: str, message: str
) -> None:
    (tmp_path / "file").write_text("precious")
    assert message in refused("train", ratings, "--out", f"{tmp_path / 'file'}{place}", *SET_TINY)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_failure_in_the_middle_leaves_nothing_that_looks_finished(
    ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: object
) -> None:
    def fail(*_: object) -> None:
        raise error  # type: ignore[misc]

    monkeypatch.setattr(RatingModel, "save", fail)
    outcome = run("train", ratings, "--out", tmp_path / "run", *SET_TINY)
    assert outcome.code == (130 if error is KeyboardInterrupt else 1)
    assert "Done." not in outcome.err
    assert not (tmp_path / "run" / "model").exists()
    assert record(tmp_path / "run")["status"] == "training"
    assert "--resume" in run("evaluate", tmp_path / "run").err
    # What was cut short may be trained anew, once that is asked for.
    monkeypatch.undo()
    assert "add --overwrite" in refused("train", ratings, "--out", tmp_path / "run", *SET_TINY)
    done("train", ratings, "--out", tmp_path / "run", "--overwrite", *SET_TINY)


def test_a_failure_before_the_first_validation_leaves_no_folder(
    ratings: Path, tmp_path: Path
) -> None:
    changes = ["--set", "hidden_users=100000000000"]
    outcome = run("train", ratings, "--out", tmp_path / "run", *SET_TINY, *changes)
    assert outcome.code == 1
    assert re.search(r"needs about [\d.]+ GB of memory, but", sentence(outcome.err))
    assert not (tmp_path / "run").exists()


def test_a_run_comes_back_when_what_was_to_replace_it_cannot_be_trained(
    run_copy: Path, tmp_path: Path
) -> None:
    before = digest(run_copy)
    lonely = tmp_path / "lonely.csv"
    lonely.write_text("user,item,rating\n" + "".join(f"1,{i},{1 + i % 5}\n" for i in range(40)))
    outcome = run("train", lonely, "--out", run_copy, "--overwrite", *SET_TINY)
    assert outcome.code == 1
    assert "at least 2 users" in outcome.err
    assert digest(run_copy) == before
    assert {path.name for path in run_copy.iterdir()} == RUN_FILES


def test_what_only_looks_like_a_run_is_not_overwritten(ratings: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "thesis.txt").write_text("years")
    message = refused("train", ratings, "--out", tmp_path / "mine", "--overwrite", *SET_TINY)
    assert "choose another" in message
    assert (tmp_path / "mine" / "model" / "thesis.txt").read_text() == "years"


def test_a_run_writes_its_settings_and_another_takes_them(
    ratings: Path, trained: Path, tmp_path: Path
) -> None:
    words = ["--settings", trained / "settings.toml", "--set", "max_steps=3", "--preset", "paper"]
    done("train", ratings, "--out", tmp_path / "run", *words)
    first, second = (record(path)["settings"] for path in (trained, tmp_path / "run"))
    assert isinstance(first, dict)
    assert second == first | {"max_steps": 3}
    assert "max_steps = 3\n" in (tmp_path / "run" / "settings.toml").read_text("utf-8")


@pytest.mark.parametrize("option", [("--targets", "buy"), ("--types", "buy"), ("--count-repeats",)])
def test_options_of_events_are_for_rankings(tmp_path: Path, option: tuple[str, ...]) -> None:
    (tmp_path / "clicks.csv").write_text("user,item,type\na,x,buy\n")
    message = refused("train", tmp_path / "clicks.csv", "--out", tmp_path / "run", *option)
    assert f"{option[0]} is for rankings" in message
    assert "--task ranking" in message
