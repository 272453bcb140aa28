"""`cfuica train --resume`: what goes on, what is refused, and what an unfinished run says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import cfuica
from cfuica.errors import ModelFileError
from cfuica.io import MANIFEST, sha256_of_file
from cfuica.run_folder import RunFolder
from cfuica.runs.run import RunCheckpointer
from tests.cli.harness import done, refused, run
from tests.runs.small import SET_TINY

STEPS = 6
# The last parameters, not those that validated best, which may come before a stop.
SETTINGS = [*SET_TINY, "--set", f"max_steps={STEPS}", "--set", "keep_best=false"]


def record(folder: Path) -> dict[str, object]:
    return json.loads((folder / "run.json").read_text("utf-8"))


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def metrics(folder: Path) -> list[dict[str, object]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text("utf-8").splitlines())
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]


def last_line(err: str) -> str:
    return err.splitlines()[-1]


@pytest.fixture(scope="module")
def whole(ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    path = tmp_path_factory.mktemp("whole") / "run"
    done("train", ratings, "--out", path, *SETTINGS)
    return path


@pytest.fixture(scope="module")
def stopped(ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, stopped after step 3; look, do not touch."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    asked = iter(range(STEPS))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: next(asked) == 2)
        outcome = run("train", ratings, "--out", path, *SETTINGS)
    assert outcome.code == 130
    assert last_line(outcome.err) == (
        f"cfuica: Training was stopped after step 3 and is kept; go on with:  "
        f"cfuica train --resume {path}"
    )
    return path


@pytest.fixture
def unfinished(stopped: Path, tmp_path: Path) -> Path:
    """A stopped run to do anything to."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def test_a_stopped_run_goes_on_to_the_same_bits(unfinished: Path, whole: Path) -> None:
    outcome = done("train", "--resume", unfinished)
    assert outcome.err.splitlines()[0] == f"Resuming {unfinished} after step 3."
    assert "Done. Test it:" in last_line(outcome.err)
    assert weights(unfinished) == weights(whole)
    assert metrics(unfinished) == metrics(whole)
    assert sorted(os.listdir(unfinished)) == sorted(os.listdir(whole))
    written = record(unfinished)
    assert written["status"] == "finished"
    assert written["resumed_at"] == [{"member": 0, "step": 3}]
    for part in ("data", "split", "settings", "preset", "date"):
        assert part == "date" or written[part] == record(whole)[part]
    done("evaluate", unfinished)


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (6, "after step 6 of model 1/2."),
        (8, "after step 2 of model 2/2 (cold start)."),
    ],
    ids=["between the networks", "inside the cold-start network"],
)
def test_a_run_with_a_network_for_cold_start_goes_on_to_the_same_bits(
    ratings: Path, tmp_path: Path, step: int, place: str
) -> None:
    arguments = ["train", ratings, *SETTINGS, "--set", "cold_start_units=3", "--out"]
    done(*arguments, tmp_path / "whole")
    asked = iter(range(1, 100))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: next(asked) == step)
        assert run(*arguments, tmp_path / "run").code == 130
    outcome = done("train", "--resume", tmp_path / "run")
    assert outcome.err.splitlines()[0] == f"Resuming {tmp_path / 'run'} {place}"
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


def test_the_data_may_be_gone(ratings: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copy(ratings, tmp_path / "gone.csv")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: True)
        assert run("train", tmp_path / "gone.csv", "--out", tmp_path / "r", *SETTINGS).code == 130
    (tmp_path / "gone.csv").unlink()
    done("train", "--resume", tmp_path / "r")
    assert weights(tmp_path / "r") == weights(whole)


@pytest.mark.parametrize("split", [["none", "--valid", "0"], ["users"], ["leave-one-out"]])
def test_every_split_goes_on(ratings: Path, tmp_path: Path, split: list[str]) -> None:
    arguments = ["train", ratings, "--split", *split, *SETTINGS, "--out"]
    done(*arguments, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: True)
        assert run(*arguments, tmp_path / "run").code == 130
    done("train", "--resume", tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    assert sorted(os.listdir(tmp_path / "run")) == sorted(os.listdir(tmp_path / "whole"))


def test_titles_go_on_with_the_run(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: True)
        assert run("train", "demo", "--out", tmp_path / "run", *SETTINGS).code == 130
    done("train", "--resume", tmp_path / "run")
    assert "title" in cfuica.load(tmp_path / "run").recommend([1], 1).columns


def test_a_run_killed_before_its_first_checkpoint_begins_again(
    unfinished: Path, whole: Path
) -> None:
    shutil.rmtree(unfinished / "unfinished" / "checkpoint-000001")
    outcome = done("train", "--resume", unfinished)
    assert outcome.err.splitlines()[0] == f"Resuming {unfinished} from the beginning."
    assert weights(unfinished) == weights(whole)
    assert metrics(unfinished) == metrics(whole)


def test_what_a_killed_process_left_is_cleared_away(unfinished: Path, whole: Path) -> None:
    (unfinished / ".unsealed-model-x1").mkdir()
    (unfinished / ".unsealed-model-x1" / "model.json").write_text("{")
    for name in (".run.json.0f.tmp", ".metrics.jsonl.0f.tmp", ".report.html.0f.tmp"):
        (unfinished / name).write_text("half")
    (unfinished / "unfinished" / ".unsealed-checkpoint-000002-00").mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunCheckpointer, "is_stopping", lambda _: True)
        assert run("train", "--resume", unfinished).code == 130
    assert sorted(os.listdir(unfinished / "unfinished")) == ["checkpoint-000002", "inputs"]
    done("train", "--resume", unfinished)
    assert sorted(os.listdir(unfinished)) == sorted(os.listdir(whole))


def test_metrics_after_the_checkpoint_are_written_again(unfinished: Path, whole: Path) -> None:
    with (unfinished / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "loss": 1.0}\n{"step": 5, "co')
    done("train", "--resume", unfinished)
    assert metrics(unfinished) == metrics(whole)


def resealed(folder: Path) -> None:
    """Make the manifest of a folder that was changed right again."""
    hashes = json.loads((folder / MANIFEST).read_text("utf-8"))
    written = {name: sha256_of_file(folder / name) for name in hashes}
    (folder / MANIFEST).write_text(json.dumps(written))


# What may change.


def test_how_a_run_learns_may_change(unfinished: Path, whole: Path) -> None:
    done("train", "--resume", unfinished, "--set", "learning_rate=0.002")
    assert record(unfinished)["settings"]["learning_rate"] == 0.002
    assert weights(unfinished) != weights(whole)
    assert cfuica.load(unfinished).settings.learning_rate == 0.002


def test_a_run_may_be_made_longer(unfinished: Path) -> None:
    done("train", "--resume", unfinished, "--set", f"max_steps={STEPS + 3}")
    assert record(unfinished)["training"]["steps"] == STEPS + 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("hidden_users=3", "Setting hidden_users cannot change when a run is resumed, only learn"),
        ("seed=1", "Setting seed cannot change"),
        ("ensemble_size=2", "Setting ensemble_size cannot change"),
        ("cold_start_units=2", "Setting cold_start_units cannot change"),
        ("length_normalisation=0.5", "Setting length_normalisation cannot change"),
        ("learning_rate=0", "learning_rate = 0 is not usable"),
        ("max_steps=3", "Setting max_steps = 3 is not usable: 3 steps are done already"),
        ("nonsense=1", "There is no setting 'nonsense'"),
        ("nonsense", "not of the form KEY=VALUE"),
    ],
)
def test_what_a_run_learns_may_not_change(unfinished: Path, change: str, message: str) -> None:
    before = record(unfinished)
    assert message in refused("train", "--resume", unfinished, "--set", change)
    assert record(unfinished) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["DATA"], ["--seed", "0"], ["--seed", "1"], ["--overwrite"], ["--no-overwrite"],
        ["--train", "a", "--test", "b"], ["--preset", "default"], ["--split", "random"],
        ["--folds", "10"], ["--fold", "0"], ["--valid", "0.05"], ["--split-seed", "0"],
        ["--test-from", "2020-01-01"], ["--test-share", "0.1"],
    ],
)  # fmt: skip
def test_what_a_run_has_already_is_not_given_again(
    unfinished: Path, ratings: Path, arguments: list[str]
) -> None:
    words = [str(ratings) if word == "DATA" else word for word in arguments]
    message = refused("train", *words, "--resume", unfinished)
    assert message.startswith("cfuica: A resumed run has its data, split and settings already: ")
    assert arguments[0].lower().removeprefix("--no-") in message
    assert record(unfinished)["status"] == "training"


def test_a_run_is_either_new_or_resumed(unfinished: Path, ratings: Path) -> None:
    for given in ([ratings], [ratings, "--out", "x", "--resume", unfinished]):
        outcome = run("train", *given)
        assert outcome.code == 2
        assert "--resume RUN to go on with one" in " ".join(outcome.err.replace("│", "").split())


def test_the_same_command_again_says_that_the_run_can_go_on(
    unfinished: Path, ratings: Path
) -> None:
    message = refused("train", ratings, "--out", unfinished, *SETTINGS)
    assert f"go on with it (cfuica train --resume {unfinished}), add --overwrite or" in message


def test_a_demo_does_not_delete_an_unfinished_run(unfinished: Path) -> None:
    assert "go on with it (cfuica train --resume" in refused("demo", "--out", unfinished)
    done("train", "--resume", unfinished)


# What cannot be resumed.


def test_there_must_be_an_unfinished_run(trained: Path, tmp_path: Path) -> None:
    assert "There is no run folder" in refused("train", "--resume", tmp_path / "nowhere")
    assert "is not a run (no run.json)" in refused("train", "--resume", tmp_path)
    assert "is finished; there is nothing to resume" in refused("train", "--resume", trained)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "run.json is damaged; train again"),
        ('{"status": "trai', "run.json is damaged; train again"),
        ("[" * 100_000, "run.json is damaged; train again"),
        ("[]", "run.json is not of a run; train again"),
        ("{}", "run.json is damaged or not of a run; train again"),
    ],
)
def test_a_damaged_record_is_refused(unfinished: Path, content: str, message: str) -> None:
    (unfinished / "run.json").write_text(content)
    assert message in refused("train", "--resume", unfinished)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": None}, "The settings in"),
        ({"settings": {"hidden": 3}}, "The settings in"),
        ({"settings": {"hidden_users": "many"}}, "The settings in"),
        ({"settings": {}}, "but the run began with"),
    ],
)
def test_a_record_of_something_else_is_refused(
    unfinished: Path, change: dict[str, object], message: str
) -> None:
    (unfinished / "run.json").write_text(json.dumps({**record(unfinished), **change}))
    outcome = run("train", "--resume", unfinished)
    assert outcome.code == 1
    assert message in last_line(outcome.err)
    assert (unfinished / "unfinished" / "checkpoint-000001").is_dir()


@pytest.mark.parametrize(
    "damaged",
    ["inputs/train.parquet", "inputs/about.json", "inputs/manifest.json",
     "checkpoint-000001/tensors.safetensors", "checkpoint-000001/state.json"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["missing", "cut"])
def test_a_checkpoint_must_be_whole(unfinished: Path, damaged: str, how: str) -> None:
    path, before = unfinished / "unfinished" / damaged, record(unfinished)
    if how == "missing":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 2)
    message = refused("train", "--resume", unfinished)
    assert f"{path.parent} is damaged (" in message
    assert message.endswith("; train again.")
    assert record(unfinished) == before


def test_without_its_inputs_a_run_cannot_go_on(unfinished: Path) -> None:
    shutil.rmtree(unfinished / "unfinished" / "inputs")
    assert "inputs is missing, so the run cannot be resumed" in refused(
        "train", "--resume", unfinished
    )


# A divergence.


def test_a_divergence_says_how_to_go_on_and_going_on_so_works(unfinished: Path) -> None:
    outcome = run("train", "--resume", unfinished, "--set", "learning_rate=1e20")
    assert outcome.code == 1
    message = last_line(outcome.err)
    assert message.startswith("cfuica: Training diverged at step 4: the parameters overflowed at")
    assert "try a lower learning_rate than 1e+20; what is kept is from before" in message
    command = message.split("with:  cfuica ")[1]
    assert command == f"train --resume {unfinished} --set learning_rate=2.5e+19"
    # Still absurd; the checkpoint is from before all this.
    done("train", "--resume", unfinished, "--set", "learning_rate=0.01")
    assert record(unfinished)["training"]["steps"] == STEPS


def test_a_divergence_at_the_beginning_leaves_nothing(ratings: Path, tmp_path: Path) -> None:
    absurd = ["--set", "learning_rate=1e20"]
    message = refused("train", ratings, "--out", tmp_path / "run", *SETTINGS, *absurd)
    assert "Training diverged at step 1: the parameters overflowed" in message
    assert message.endswith("try a lower learning_rate than 1e+20.")
    assert not (tmp_path / "run").exists()


# An unfinished run is no model.


@pytest.mark.parametrize(
    "command",
    [["evaluate", "RUN"], ["recommend", "RUN", "--user", "1"],
     ["predict", "RUN", "--pairs", "PAIRS", "--out", "OUT"]],
)  # fmt: skip
def test_an_unfinished_run_says_how_to_finish_it(
    unfinished: Path, ratings: Path, tmp_path: Path, command: list[str]
) -> None:
    words = {"RUN": unfinished, "PAIRS": ratings, "OUT": tmp_path / "out.csv"}
    outcome = run(*(words.get(word, word) for word in command))
    assert outcome.code == 1
    assert outcome.out == ""
    assert last_line(outcome.err) == (
        f"cfuica: The run {unfinished} has no model yet, its training was not finished; go on "
        f"with:  cfuica train --resume {unfinished}"
    )


def test_python_says_the_same(unfinished: Path) -> None:
    with pytest.raises(ModelFileError, match=r"not finished; go on with:  cfuica train --resume"):
        cfuica.load(unfinished)


def test_a_run_that_is_being_trained_is_left_alone(
    ratings: Path, stopped: Path, tmp_path: Path
) -> None:
    """Neither a second trainer nor --overwrite may touch it."""
    folder = RunFolder(Path(shutil.copytree(stopped, tmp_path / "run")))
    with folder.held():
        assert "Another process is training in" in refused("train", "--resume", folder.path)
        again = ["train", ratings, "--out", folder.path, "--overwrite", *SET_TINY]
        assert "Another process is training in" in refused(*again)
    assert (folder.path / "run.json").is_file()


@pytest.mark.parametrize(("name", "value"), [("activation", "relu"), ("seed", 99), ("bins", 2)])
def test_a_record_whose_settings_were_edited_is_refused(
    stopped: Path, tmp_path: Path, name: str, value: object
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    edited = record(folder)
    edited["settings"][name] = value  # type: ignore[index]
    (folder / "run.json").write_text(json.dumps(edited), "utf-8")
    message = refused("train", "--resume", folder)
    assert f"Setting {name} is {value!r} in" in message
