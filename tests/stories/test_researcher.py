"""A researcher with a split of their own: metrics, users, vectors, seeds, settings, a loss."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import cfuica
from tests.cli.harness import Outcome, run

SMALL = {
    "ensemble_size": 1, "hidden_users": 16, "hidden_items": 16, "residual_units": 8, "epochs": 6,
}  # fmt: skip
SETS = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]


def cfuica_(*words: object) -> Outcome:
    outcome = run(*words)
    assert outcome.code == 0, outcome.err
    return outcome


def own_split(folder: Path) -> dict[str, Path]:
    """Each user's last two interactions to test on, the one before to validate on; 80 users whose
    items follow each other in circles of 30."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(80):
        first = int(rng.integers(30))
        rows += [(f"u{user}", f"i{(first + step) % 30}", 5, step) for step in range(10)]
    frame = pl.DataFrame(rows, ["user", "item", "rating", "timestamp"], orient="row")
    sets = {
        "train": frame.filter(pl.col("timestamp") < 7),
        "valid": frame.filter(pl.col("timestamp") == 7),
        "test": frame.filter(pl.col("timestamp") > 7),
    }
    for name, rows_of_set in sets.items():
        rows_of_set.write_parquet(folder / f"{name}.parquet")
    return {name: folder / f"{name}.parquet" for name in sets}


def test_from_a_split_of_ones_own_to_a_table_of_results(tmp_path: Path) -> None:
    files = own_split(tmp_path)
    given = [word for name, path in files.items() for word in (f"--{name}", path)]

    # Settings by trials that never see the test set; then three seeds, mean and spread.
    cfuica_(
        "tune", files["train"], "--task", "ranking", "--trials", 2, "--out", tmp_path / "tuned",
        *SETS,
    )  # fmt: skip
    best = tmp_path / "tuned" / "best.toml"
    cfuica_(
        "train", "--task", "ranking", *given, "--settings", best, *SETS, "--seeds", "0,1",
        "--out", tmp_path / "seeds",
    )  # fmt: skip
    over = json.loads(cfuica_("evaluate", tmp_path / "seeds", "--at", "5,10", "--json").out)
    assert over["seeds"] == [0, 1]
    ndcg = over["metrics"]["ndcg@5"]
    assert ndcg["mean"] == np.mean(ndcg["values"])
    assert ndcg["spread"] >= 0

    # One run: the metrics of each user, and of cold and warm users; a cut-off beyond the catalogue.
    one = tmp_path / "seeds" / "seed-0"
    users = tmp_path / "users.parquet"
    words = ("evaluate", one, "--at", "5,100", "--per-user", users, "--cold", 8, "--json")
    metrics = json.loads(cfuica_(*words).out)
    assert metrics["users"] == 80
    assert pl.read_parquet(users)["ndcg@5"].mean() == pytest.approx(metrics["ndcg@5"]["value"])
    assert {"hr@30", "warm_and_cold"} <= metrics.keys()
    assert (one / "settings.toml").is_file()

    # The same metrics from Python.
    model = cfuica.load(one)
    found = model.evaluate(pl.read_parquet(files["test"]), at=(5,))
    assert found["ndcg@5"].value == metrics["ndcg@5"]["value"]

    # What `similar_items` compares.
    vectors = model.item_vectors()
    table = np.stack(vectors["vector"].to_list())
    table -= table.mean(0)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    nearest = model.similar_items("i3", n=1, min_support=0)
    places = [vectors["item"].to_list().index(one) for one in ("i3", nearest["similar"].item())]
    cosine = float(table[places[0]] @ table[places[1]])
    assert abs(cosine - nearest["score"].item()) < 1e-5

    # A loss of one's own.
    def focal(logits_p1: torch.Tensor, labels_p: np.ndarray) -> torch.Tensor:
        happened = torch.from_numpy(labels_p).bool()
        p = torch.where(happened, logits_p1[:, 0].sigmoid(), (-logits_p1[:, 0]).sigmoid())
        return -((1 - p).square() * p.clamp_min(1e-6).log()).double().sum()

    settings = cfuica.ranking_preset("default").replaced(**SMALL, loss="bernoulli")
    frames = {name: pl.read_parquet(path) for name, path in files.items()}
    own = cfuica.RankingModel(settings, loss=focal).fit(frames["train"], valid=frames["valid"])
    again = own.evaluate(frames["test"], at=(5,))
    assert again["hr@5"].value > 5 / 30  # above chance

    # Ratings are ranked by the same metrics.
    quick = cfuica.rating_preset("default").replaced(
        ensemble_size=1, hidden_users=8, hidden_items=8, cold_start_units=8, max_steps=10
    )
    demo = cfuica.load_data("demo")
    rated = cfuica.RatingModel(quick).fit(demo.take(np.arange(demo.n - 200)))
    last = demo.frame.tail(200).select("user", "item")
    ranked = rated.evaluate_ranking(last, at=(10,), by="expected")
    assert 0 <= ranked["recall@10"].value <= 1
