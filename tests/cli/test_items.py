"""Item metadata from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, refused, run
from tests.runs.small import SET_TINY


@pytest.fixture(scope="module")
def priced(ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with prices and kinds of the items; look, do not touch."""
    folder = tmp_path_factory.mktemp("priced")
    rows = [f"{item},{item / 2},{'a|b' if item % 2 else 'b'}" for item in range(1, 61)]
    (folder / "items.csv").write_text("\n".join(["movieId,price,kinds", *rows]))
    path = folder / "run"
    words = ["train", ratings, "--items", folder / "items.csv", "--out", path, *SET_TINY]
    assert "metadata" not in done(*words).err
    return path


def recommended(run: Path, *words: object) -> set[int]:
    outcome = done("recommend", run, "--user", 3, "-n", 1000, "--include-seen", "--json", *words)
    return {row["item"] for row in json.loads(outcome.out)}


def test_a_run_keeps_the_columns_of_the_items_and_filters_compare_them(priced: Path) -> None:
    assert recommended(priced, "--where", "price<2") <= {1, 2, 3}
    assert recommended(priced, "--where", "price>=29.5") <= {59, 60}
    both = recommended(priced, "--where", "price<10", "--where", "price>5", "--where", "kinds=a")
    assert both
    assert all(item % 2 and 10 < item < 20 for item in both)
    assert all(item % 2 == 0 for item in recommended(priced, "--where", "kinds!=a"))
    message = refused("recommend", priced, "--user", 3, "--where", "price<cheap")
    assert "asks for cheap in the column 'price', which holds numbers" in message


def test_new_values_and_the_metadata_of_new_items_are_observed(
    priced: Path, tmp_path: Path
) -> None:
    (tmp_path / "events.csv").write_text("user,item,rating\n3,900,4\n")
    (tmp_path / "items.csv").write_text("item,price,colour\n1,100,red\n900,120.5,blue\n")
    words = ["observe", priced, "--items", tmp_path / "items.csv", "--out", tmp_path / "next"]
    err = done(*words, "--events", tmp_path / "events.csv").err
    assert "items.csv has metadata of 2 of 61 items." in err
    metadata = load(tmp_path / "next").catalogue.item_metadata
    assert metadata is not None
    found = {row["item"]: row for row in metadata.iter_rows(named=True)}
    assert (found[1]["price"], found[1]["kinds"], found[1]["colour"]) == (100, ["a", "b"], "red")
    assert (found[2]["price"], found[900]["price"]) == (1, 120.5)
    assert recommended(tmp_path / "next", "--where", "price>=100") <= {1, 900}
    outcome = done(*words)
    assert outcome.out == f"Item metadata updated. Written to {tmp_path / 'next'}.\n"


def test_metadata_that_fits_no_item_is_refused(ratings: Path, priced: Path, tmp_path: Path) -> None:
    items = tmp_path / "items.csv"
    items.write_text("item,price\n00001,1\n00002,1\n")
    words = ["train", ratings, "--items", items, "--out", tmp_path / "run", *SET_TINY]
    assert "of none of the 60 items of the interactions: the ids are text" in refused(*words)
    assert not (tmp_path / "run").exists()
    out = tmp_path / "next"
    message = refused("observe", priced, "--items", items, "--out", out)
    assert "of none of the 60 items of the model" in message
    items.write_text("item,price\n1,free\n")
    message = refused("observe", priced, "--items", items, "--out", out)
    assert "holds String, but the model has Float64 in it" in message
    assert not out.exists()
    assert run("observe", priced).code == 2
