"""An engineer with a shop's click table: from the files to a web worker that follows events.

Train on everything, serve, observe, remove, forget, retire, retrain, swap.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import polars as pl
import pytest
from fastapi.testclient import TestClient

import cfuica
from tests.cli.harness import Outcome, run
from tests.stories.shop import LENGTH, write_shop

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "web_worker.py"
SMALL = ("ensemble_size=1", "hidden_users=16", "hidden_items=16", "residual_units=8", "epochs=12")
CUSTOMER = "c00007"


def cfuica_(*words: object) -> Outcome:
    outcome = run(*words)
    assert outcome.code == 0, outcome.err
    return outcome


def train(clicks: Path, items: Path, out: Path, *options: object) -> Outcome:
    sets = [word for setting in SMALL for word in ("--set", setting)]
    return cfuica_(
        "train", clicks, "--task", "ranking", "--targets", "purchase", "--items", items,
        "--out", out, *sets, *options,
    )  # fmt: skip


def worker(model: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The example, as a web server imports it."""
    monkeypatch.setenv("MODEL", str(model))
    spec = importlib.util.spec_from_file_location("web_worker", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return TestClient(module.app)


def bought(clicks: Path, customer: str) -> set[str]:
    frame = pl.read_csv(clicks).filter(customer_id=customer, event_type="purchase")
    return set(frame["sku"])


def test_from_a_click_table_to_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks, items = write_shop(tmp_path)

    # What is in the table?
    shown = cfuica_("data", "show", clicks).out
    assert "view" in shown
    assert "purchase" in shown

    # The first thing everybody tries is told what to do.
    refused = run("train", clicks, "--out", tmp_path / "wrong")
    assert refused.code == 1
    assert "--task ranking" in refused.err
    assert not (tmp_path / "wrong").exists()

    # Does it learn? Purchases are held out, views are context; far better than chance.
    log = train(clicks, items, tmp_path / "measured").err
    assert "milliseconds" in log
    assert "context only" in log
    metrics = json.loads(cfuica_("evaluate", tmp_path / "measured", "--at", "5", "--json").out)
    assert metrics["hr@5"]["value"] > 2.5 * 5 / 48

    # Train on everything, and serve.
    serving = tmp_path / "serving"
    train(clicks, items, serving, "--split", "none")
    words = ("recommend", serving, "--user", CUSTOMER, "-n", 99, "--format", "json")
    cheap = json.loads(cfuica_(*words, "--exclude-seen", "purchase", "--where", "price<10").out)
    prices = dict(pl.read_csv(items).select("sku", "price").iter_rows())
    assert {row["item"] for row in cheap} == {
        one for one, price in prices.items() if price < 10
    } - bought(clicks, CUSTOMER)
    zeros = run("recommend", serving, "--user", "7")
    assert zeros.code == 0
    assert "unknown" in zeros.err  # 7 is not c00007

    # A web worker: answers know the events.
    web = worker(serving, monkeypatch)
    first = web.get(f"/recommend/{CUSTOMER}", params={"n": 5}).json()
    assert len(first["items"]) == 5
    wanted = first["items"][0]["item"]
    events = [{"user": CUSTOMER, "item": wanted, "type": "purchase"}]
    assert web.post("/events", json=events).json()["added"] == 1
    after = web.get(f"/recommend/{CUSTOMER}", params={"n": 5}).json()
    assert after["sequence"] == first["sequence"] + 1
    assert wanted not in {row["item"] for row in after["items"]}
    assert web.post("/remove", json=[[CUSTOMER, wanted]]).json()["removed"] == 1
    assert web.get(f"/recommend/{CUSTOMER}", params={"n": 5}).json()["items"] == first["items"]
    new = web.post("/events", json=[{"user": "guest", "item": "S1-2", "type": "view"}]).json()
    assert new["new_users"] == 1
    guest = web.get("/recommend/guest", params={"n": 3}).json()["items"]
    assert len(guest) == 3
    assert web.delete("/users/guest").json() == {"removed": 1}

    # The nightly file of events, as JSON lines; a product that is sold out.
    tonight = tmp_path / "tonight.jsonl"
    tonight.write_text(
        "".join(
            json.dumps({"customer_id": CUSTOMER, "sku": f"S2-{place}", "event_type": kind}) + "\n"
            for place in range(LENGTH)
            for kind in ("view", "purchase")
        )
    )
    assert "interactions added" in cfuica_("observe", serving, "--events", tonight).out
    cfuica_("retire", serving, "--item", "S3-0")
    top = json.loads(cfuica_(*words).out)
    assert not {row["item"] for row in top} & {"S3-0", *(f"S2-{place}" for place in range(LENGTH))}
    cfuica_("forget", serving, "--user", CUSTOMER)

    # Retrain without the user, and swap the model of the running worker.
    rest = pl.read_csv(clicks).filter(pl.col("customer_id") != CUSTOMER)
    rest.write_csv(tmp_path / "rest.csv")
    train(tmp_path / "rest.csv", items, tmp_path / "next", "--split", "none")
    since = [{"user": "c00001", "item": "S5-5", "type": "purchase"}]
    swapped = web.post("/swap", params={"folder": str(tmp_path / "next")}, json=since)
    assert swapped.status_code == 200
    assert "S5-5" not in {
        row["item"] for row in web.get("/recommend/c00001", params={"n": 48}).json()["items"]
    }
    assert CUSTOMER not in cfuica.load(tmp_path / "next").users.ids
