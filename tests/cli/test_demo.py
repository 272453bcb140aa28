from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cfuica.cli import demo
from cfuica.settings import RatingSettings
from tests.cli.harness import done, refused
from tests.runs.small import TINY, small_world


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo on a world of a hundred users."""
    monkeypatch.setattr(demo, "make_world", lambda seed: small_world())
    monkeypatch.setattr(demo, "DEMO_SETTINGS", TINY)
    tiny = {
        "ensemble_size": 1,
        "hidden_users": 4,
        "hidden_items": 4,
        "epochs": 1,
        "validate_every": 5,
    }
    monkeypatch.setattr(demo, "CHANGES", tiny)


@pytest.mark.usefixtures("small_demo")
def test_the_demo_shows_scores_recommendations_and_where_things_are(tmp_path: Path) -> None:
    out = tmp_path / "[/demo]"
    text = done("demo", "--out", out).out
    for name in ("global mean", "item mean", "user + item bias", "CF-UIcA (ours)", "best possible"):
        assert name in text
    assert "Recommended to user" in text
    assert "The " in text  # a title
    assert f"cfuica recommend '{out}' --user" in text
    assert "cfuica train ratings.csv" in text
    # Learning curves and calibration, two charts each.
    assert (out / "report.html").read_text("utf-8").count("<svg") == 4
    assert (out / "model" / "model.safetensors").is_file()


@pytest.mark.usefixtures("small_demo")
def test_the_demo_ranks_and_shows_commands_that_do_the_same(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    text = done("demo", "--out", out).out
    ranking = text[text.index("What comes next?") :]
    assert "popularity" in ranking
    shown = re.findall(r"^\$ cfuica ((?:.*\\\n)*.*)$", ranking, re.MULTILINE)
    typed = [shlex.split(command.replace("\\\n", "")) for command in shown]
    assert [command[0] for command in typed] == ["train", "evaluate", "recommend", "recommend"]
    for command in typed[1:]:
        done(*command)
    # The registered world is larger than this one, so only the settings of the training are tried.
    changes = [each for each in typed[0] if "=" in each]
    assert dict(change.split("=") for change in changes) == {
        name: str(value) for name, value in demo.CHANGES.items()
    }


@pytest.mark.usefixtures("small_demo")
def test_the_demo_may_be_run_again_but_spares_other_runs(
    trained: Path, run_copy: Path, tmp_path: Path
) -> None:
    done("demo", "--out", tmp_path / "demo")
    done("demo", "--out", tmp_path / "demo")
    assert "exists and is not empty" in refused("demo", "--out", run_copy)
    original = (trained / "model" / "model.safetensors").read_bytes()
    assert (run_copy / "model" / "model.safetensors").read_bytes() == original


@pytest.mark.usefixtures("small_demo")
def test_a_demo_that_was_cut_short_is_taken_up_again(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "metrics.jsonl").write_text("{}\n")
    done("demo", "--out", tmp_path / "demo")


@pytest.mark.usefixtures("small_demo")
def test_the_terminal_can_be_drawn(tmp_path: Path) -> None:
    done("demo", "--out", tmp_path / "demo", "--picture", tmp_path / "demo.svg")
    assert "CF-UIcA" in (tmp_path / "demo.svg").read_text("utf-8")


def test_the_real_demo_beats_biases_and_popularity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Half of its steps: the world is the real one, the order of the table's rows as well.
    shorter: RatingSettings = demo.DEMO_SETTINGS.replaced(max_steps=300)
    monkeypatch.setattr(demo, "DEMO_SETTINGS", shorter)
    text = done("demo", "--out", tmp_path / "demo").out
    rows = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    scores = {cells[1].strip(): float(cells[2]) for cells in rows if len(cells) == 4}
    names = list(scores)
    assert names[0] == "global mean"
    assert names[-1].startswith("best possible")
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert 0.65 < scores[names[-1]] < scores["CF-UIcA (ours)"] < 0.85
    ranks = {cells[1].strip(): float(cells[3]) for cells in rows if len(cells) == 5}
    assert list(ranks) == ["popularity", "CF-UIcA (ours)"]
    assert ranks["CF-UIcA (ours)"] > 1.5 * ranks["popularity"]
    # After the first and second part of a series comes the third.
    asked = text[text.index("Next for a cold-start user") :]
    first = next(line for line in asked.splitlines() if line.startswith("│ 1"))
    assert " III " in first
