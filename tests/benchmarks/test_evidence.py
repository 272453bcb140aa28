"""The benchmarks about cold-start users and items and about later events: parts, comparisons, kept
models."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
TINY = [
    f"--set={change}"
    for change in (
        "ensemble_size=1",
        "hidden_users=8",
        "hidden_items=8",
        "cold_start_units=8",
        "max_steps=5",
        "validate_every=5",
    )
]

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A file of `benchmarks/` by name; they find each other as they do when run."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.fixture
def run(
    benchmark: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Runs a benchmark on the demo with a handful of steps; what it wrote as JSON."""

    def running(name: str, *arguments: str) -> dict[str, Any]:
        found = tmp_path / "found.json"
        keep = ["--keep", str(tmp_path / "kept")]
        given = ["demo", *TINY, *keep, "--json", str(found), *arguments]
        monkeypatch.setattr(sys, "argv", [name, *given])
        benchmark(name).main()
        return json.loads(found.read_text("utf-8"))

    return running


def test_the_curve_of_cold_start_has_every_length_beside_the_model_that_knew_them(run: Run) -> None:
    found = run("cold_start")
    trained_on, *curve = found["curve"]
    assert [one["model, history"] for one in curve] == ["B, 0", "B, 1", "B, 5", "B, 20", "B, all"]
    assert [one["observed"] for one in curve[:3]] == [0, 100, 500]
    assert curve[-1]["observed"] == trained_on["observed"]
    # Who knows the same ratings is beside the same baseline.
    assert curve[-1]["bias"] == trained_on["bias"] < curve[0]["bias"]
    assert len({one["RMSE"] for one in curve}) == len(curve)
    assert curve[-1]["less A"]["rmse"] == pytest.approx(curve[-1]["RMSE"] - trained_on["RMSE"])
    counts = found["counts"]
    assert counts["users hidden"] == 100
    tested = counts["test ratings of the hidden"] + counts["test ratings of the known"]
    assert tested == 6000


def test_kept_models_answer_again_and_refuse_other_settings(run: Run) -> None:
    first = run("cold_start", "--lengths", "5", "all")
    again = run("cold_start", "--lengths", "5")
    assert again["training_seconds"] == {"A": None, "B": None}
    assert again["curve"] == first["curve"][:2]
    other_axis = run("cold_start", "--axis", "items", "--lengths", "0")
    assert other_axis["training_seconds"]["A"] is None, "A does not depend on who is hidden"
    assert other_axis["counts"]["items hidden"] == 50
    with pytest.raises(SystemExit, match="other settings or other data"):
        run("cold_start", "--seed", "1")


def test_a_tenth_of_every_users_ratings_is_for_the_test(
    benchmark: Callable[[str], ModuleType],
) -> None:
    ratings = benchmark("evidence").Ratings.of("demo", 3)
    is_test = benchmark("cold_start").tested(ratings)
    share = np.bincount(ratings.users, is_test) - np.bincount(ratings.users) / 10
    assert np.abs(share).max() < 1


def test_events_double_the_data_slice_by_slice(run: Run) -> None:
    found = run("by_date", "--slices", "4", "--every", "2500")
    everything = found["all"]
    assert [one["data"] for one in everything] == ["1.0x", "1.2x", "1.5x", "1.8x"]
    assert sum(one["ratings"] for one in everything) == pytest.approx(30_000, rel=0.01)
    for one, known, cold in zip(everything, found["warm"], found["cold_start"], strict=True):
        assert one["ratings"] == known.get("ratings", 0) + cold.get("ratings", 0)
    first, *later = everything
    assert first["observed"] == first["frozen"]
    assert all(one["observed"] != one["frozen"] for one in later)
    assert all(one["live"] != one["observed"] for one in everything)
    saturated = found["saturated"]
    assert saturated[-1]["data"] == "2.0x"
    assert {
        "UUC, warm",
        "IIC, warm",
        "UUC, cold_start",
        "IIC, cold_start",
    } < set(saturated[0])


def test_the_control_asks_the_same_ratings_after_every_slice(run: Run) -> None:
    everything = run("by_date", "--control", "--slices", "2")["all"]
    assert [one["data"] for one in everything] == ["1.0x", "1.5x", "2.0x"]
    assert {one["ratings"] for one in everything} == {3000}
    assert len({one["frozen"] for one in everything}) == 1
    assert everything[-1]["bias"] < everything[0]["bias"]


@pytest.mark.parametrize("axis", ["users", "items"])
def test_the_live_baseline_starts_as_the_fitted_one_and_follows_events(
    benchmark: Callable[[str], ModuleType], axis: str
) -> None:
    evidence = benchmark("evidence")
    ratings, rows = evidence.Ratings.of("demo", 0), np.arange(60_000)
    bias = ratings.bias(rows[::2])
    live = evidence.LiveBias.begin(ratings, axis, bias, rows[::2])
    fitted = ratings.predicted(bias, np.arange(ratings.table.n))
    same_damping = evidence.DAMPINGS.index(5.0)
    # The last sweep moved the users' biases after the items', so theirs are a sweep behind.
    np.testing.assert_allclose(live.predict(rows)[same_damping], fitted, atol=0.01)
    before = evidence.best_in_hindsight(live.predict(rows), ratings.values)
    live.observe(rows[1::2])
    after = evidence.best_in_hindsight(live.predict(rows), ratings.values)
    assert evidence.rmse(after, ratings.values) < evidence.rmse(before, ratings.values) - 0.001


def test_the_standard_error_is_that_of_resampling(
    benchmark: Callable[[str], ModuleType],
) -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=2000)
    one = truth + rng.normal(size=2000)
    other = one + 0.3 * rng.normal(size=2000)
    difference = benchmark("evidence").Difference
    draws = rng.integers(2000, size=(1000, 2000))
    resampled = [difference.of(one[at], other[at], truth[at]).rmse for at in draws]
    found = difference.of(one, other, truth)
    assert found.error == pytest.approx(np.std(resampled), rel=0.1)
    assert difference.of(one, one, truth) == difference(0.0, 0.0)
