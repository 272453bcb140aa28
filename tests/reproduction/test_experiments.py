"""What the tables and figures need, and what they show of cells that are finished."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cfuica.errors import DataError, SettingsError
from cfuica.models.recommender import MODELS, kind_named
from cfuica.reproduction import plan as plans
from cfuica.reproduction import reproduce_all, systems
from cfuica.reproduction.cells import Cell, CellFolder, Watch
from cfuica.reproduction.experiments import EXPERIMENTS
from cfuica.reproduction.page import write_page
from cfuica.reproduction.plan import Plan
from cfuica.reproduction.reproduce_all import cells_of, experiments_named
from cfuica.reproduction.systems import RATING, SYSTEMS
from tests.reproduction.measured import fail, finish, plan_in, write

SCORES = {"rmse": 0.9, "hr@10": 0.5, "ndcg@10": 0.25}


def names(cells: list[Cell]) -> list[str]:
    return [cell.name for cell in cells]


def page(plan: Plan, *what: str) -> str:
    write_page(plan, what or ("table1",))
    return (plan.folder.path / "report.md").read_text("utf-8")


def line(text: str, start: str) -> list[str]:
    """The cells of the first row of a table that begins so."""
    found = next(each for each in text.splitlines() if each.startswith(f"| {start}"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def of(plan: Plan, name: str, what: str = "table1") -> list[Cell]:
    rows = EXPERIMENTS[what].rows(plan)
    return [cell for row in rows if row.name == name for cell in row.cells]


@pytest.mark.parametrize("quick", [False, True])
def test_every_system_that_is_there_has_settings_of_its_model(tmp_path: Path, quick: bool) -> None:
    plan = plan_in(tmp_path, data="demo" if quick else "ml-1m", quick=quick)
    for cell in cells_of(plan, list(EXPERIMENTS)):
        options = dict(pairwise(cell.train))
        if cell.train:
            kind = kind_named(options["--model"], options.get("--task"))
            assert cell.settings.keys() == kind.settings.model_fields.keys()


def test_cells_are_command_lines(tmp_path: Path) -> None:
    cell = of(plan_in(tmp_path, data="ml-1m", folds=(2,), seeds=(3,)), "cf-uica-paper")[0]
    assert cell.name == "ml-1m-rating-cf-uica-paper-fold2-seed3"
    assert " ".join(cell.train) == (
        "train ml-1m --model cf-uica --task rating --preset paper --split random --folds 10 "
        "--fold 2 --valid 0.05 --seed 3"
    )
    quick = of(plan_in(tmp_path, quick=True), "cf-uica-paper")[0]
    assert quick.name.endswith("-quick")
    assert "--set hidden_users=64 --set" in " ".join(quick.train)
    assert "--set schedule=planned" in " ".join(quick.train)


def test_all_has_every_cell_once_and_fold_by_fold(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, folds=(1, 2))
    cells = cells_of(plan, list(EXPERIMENTS))
    assert len(set(names(cells))) == len(cells)
    table1 = names(EXPERIMENTS["table1"].cells(plan))
    folds = [cell.fold for cell in cells if cell.name in table1]
    assert folds == sorted(folds)
    # 500 + 500 units and no clusters are the preset itself.
    assert sum("cf-uica-paper-fold1" in name for name in names(cells)) == 1
    # What asks the run of another comes after it.
    for place, cell in enumerate(cells):
        assert cell.run_of is None or cell.run_of.name in names(cells[:place])


def test_only_some_systems_have_their_variants_and_what_their_cells_need(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    some = names(cells_of(plan, list(EXPERIMENTS), ["cf-uica-paper"]))
    assert "demo-rating-cf-uica-paper-h250-fold1-seed0" in some
    assert not any("bias" in name for name in some)
    both = names(cells_of(plan, ["table1", "figure-tsne"], ["bias"]))
    assert sorted(both) == [
        "demo-rating-bias-fold1-seed0",
        "demo-rating-cf-uica-paper-fold1-seed0",
        "demo-tsne-fold1-seed0",
    ]
    for name in ("biasmv", "ease"):
        with pytest.raises(SettingsError, match=f"--systems {name} is no system of table1; those"):
            cells_of(plan, ["table1"], [name])


def test_what_is_not_known_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="no 'table5' to reproduce; choose from table1, table2"):
        experiments_named(["table5"])
    given: dict[str, Any] = {"data": None, "folds": (1,), "seeds": (0,)}
    folder = CellFolder(Path("x"))
    with pytest.raises(SettingsError, match="leave --netflix out"):
        Plan.of(folder, quick=True, netflix="x", **given)
    with pytest.raises(SettingsError, match="--folds has 10, but the folds are 0 to 9"):
        Plan.of(folder, quick=False, netflix=None, **{**given, "folds": (1, 10)})
    monkeypatch.setattr(plans, "find", lambda name: None)
    assert Plan.of(folder, quick=False, netflix=None, **given).data == "ml-1m"

    assert experiments_named(["table1", "table1"]) == ["table1"]
    assert experiments_named(["table1", "all"]) == list(EXPERIMENTS)


@pytest.mark.parametrize(
    ("extra", "what", "netflix", "some", "is_needed"),
    [
        ("require_tsne", "figure-tsne", None, [], True),
        ("require_tsne", "table1", None, [], False),
        ("require_faiss", "figure-clusters", None, [], True),
        ("require_faiss", "table1", "netflix.parquet", [], True),
        ("require_faiss", "table3", "netflix.parquet", [], True),
        ("require_faiss", "table1", "netflix.parquet", ["bias"], False),
        ("require_faiss", "table1", None, [], False),
    ],
)
def test_extras_are_asked_for_before_anything_is_measured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    extra: str,
    what: str,
    netflix: str | None,
    some: list[str],
    is_needed: bool,
) -> None:
    asked = []
    monkeypatch.setattr(reproduce_all, extra, lambda: asked.append(extra))
    monkeypatch.setattr(reproduce_all, "measure_all", lambda *given: [])
    monkeypatch.setattr(plans, "find", lambda name: None)
    plan = plan_in(tmp_path, data="ml-1m", netflix=netflix)
    reproduce_all.reproduce(plan, [what], some, Watch())
    assert bool(asked) == is_needed


def test_the_table_has_the_papers_figure_ours_difference_and_cost(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m", folds=(1, 2))
    for cell, rmse in zip(of(plan, "cf-uica-paper"), (0.82, 0.83), strict=True):
        finish(plan.folder, cell, {"rmse": rmse})
    text = page(plan)
    assert line(text, "CF-UIcA (preset paper)") == [
        "CF-UIcA (preset paper)", "0.823", "0.8250", "+0.0020", "0.0071", "90 s", "80 s", "1.50 GB",
        "1, 2", "0",
    ]  # fmt: skip
    assert line(text, "BiasMF")[2] == "not measured yet"
    assert "2 cells are finished." in text
    assert "torch 2.x" in text
    assert "a CPU" in text
    assert f"Data: ml-1m, SHA-256 {'d1' * 6}..." in text


def test_a_system_without_a_model_or_tuning_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        systems, "MODELS", {name: each for name, each in MODELS.items() if name != "biasmf"}
    )
    plan = plan_in(tmp_path, data="ml-1m")
    text = page(plan)
    assert line(text, "BiasMF")[2] == "not run: there is no model biasmf yet"
    tuned = next(system for system in RATING if system.needs_tuning)
    assert replace(tuned, model="bias").why_not("other", quick=False) == "not tuned on other"
    assert replace(tuned, model="bias").why_not("other", quick=True) is None


def test_tuned_settings_are_those_of_the_data_and_not_of_a_quick_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"ml-1m": {"rating": {"biasmf": {"factors": 77}}, "ranking": {"biasmf": {"l2": 1}}}}
    monkeypatch.setattr(systems, "tuned", lambda: found)
    factors = [
        of(plan_in(tmp_path, data=data, quick=quick), "biasmf")[0].settings["factors"]
        for data, quick in (("ml-1m", False), ("demo", False), ("ml-1m", True))
    ]
    default = kind_named("biasmf").preset("default").model_dump()["factors"]
    assert factors == [77, default, default]


def test_who_is_ahead_is_said_first_and_who_is_behind_the_floor(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m")
    every = {"cf-uica-default": 0.82, "cf-uica-paper": 0.83, "bias": 0.9, "biasmf": 0.91}
    for name, rmse in every.items():
        finish(plan.folder, of(plan, name)[0], {"rmse": rmse})
    text = page(plan)
    assert "## Table 1: test RMSE on ml-1m\n\nNo row is ahead of CF-UIcA (preset default)." in text
    assert "Behind user + item bias: BiasMF." in text
    assert "| less | CF-UIcA (preset default), RMSE | CF-UIcA (preset paper), RMSE |" in text
    differences = text[text.index("| less |") :]
    assert line(differences, "BiasMF")[1] == "-0.0900 (-0.0900 to -0.0900)"
    assert "Not compared" not in text
    elsewhere = replace(plan, folds=(2,))
    finish(plan.folder, of(elsewhere, "pmf")[0], {"rmse": 0.7})
    text = page(elsewhere)
    assert "No row is ahead" not in page(replace(plan, folder=only_two(tmp_path / "two")))
    assert "Not compared, as no fold and seed is common: PMF. Behind" in text
    finish(plan.folder, of(plan, "item-knn-ratings")[0], {"rmse": 0.81})
    assert (
        "Ahead of CF-UIcA (preset default): item-kNN (beyond the paper) by RMSE -0.0100 (-0.0100 "
        "to -0.0100). Not compared"
    ) in page(plan)


def test_who_is_ahead_by_no_more_than_the_noise_is_said_to_be(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m")
    for name, rmse in {"cf-uica-default": 0.82, "item-knn-ratings": 0.81}.items():
        finish(plan.folder, of(plan, name)[0], {"rmse": rmse})
    path = plan.folder.users(of(plan, "item-knn-ratings")[0], "ratings")
    # The root of the mean square is 0.81, and who has how much of it is chance.
    frame = pl.read_parquet(path).with_columns(rmse=pl.Series([0.81 * 2**0.5, 0.0] * 15))
    frame.write_parquet(path)
    assert re.search(
        r"Ahead .* RMSE -0\.0100 \(-0\.\d+ to \+0\.\d+\), which may be noise\.", page(plan)
    )


def only_two(path: Path) -> CellFolder:
    """Two systems without a common fold are finished."""
    plan = plan_in(path, data="ml-1m")
    finish(plan.folder, of(plan, "cf-uica-default")[0], {"rmse": 0.8})
    finish(plan.folder, of(replace(plan, folds=(2,)), "biasmf")[0], {"rmse": 0.7})
    return plan.folder


def test_the_report_keeps_what_earlier_commands_asked_for(tmp_path: Path) -> None:
    folder = CellFolder(tmp_path)
    watch = Watch()
    for name, system in (("table2", "itempop"), ("table1", "bias")):
        plan = Plan(folder, data="demo", quick=True)
        for cell in cells_of(plan, [name], [system]):
            with folder.held():
                finish(folder, cell, SCORES)
        reproduce_all.reproduce(plan, [name], [system], watch)
    text = (tmp_path / "report.md").read_text("utf-8")
    assert text.index("## Table 1") < text.index("## Table 2 by protocol paper")


def test_the_report_keeps_the_column_of_netflix(tmp_path: Path) -> None:
    file = tmp_path / "netflix.csv"
    file.write_text("user,item,rating\n1,2,3\n")
    plan = plan_in(tmp_path / "out", netflix=str(file))
    assert plan.shown(["table1"])[0].netflix == str(file)
    later, names = replace(plan, netflix=None).shown(["table2"])
    assert later.netflix == str(file)
    assert names == ["table1", "table2"]
    file.unlink()
    assert replace(plan, netflix=None).shown(["table2"])[0].netflix is None


@pytest.mark.parametrize(
    ("given", "named"), [({"data": "ml-100k"}, "ml-100k"), ({"quick": True}, "demo --quick")]
)
def test_a_folder_is_of_one_data_and_quick_or_not(
    tmp_path: Path, given: dict[str, Any], named: str
) -> None:
    plan = plan_in(tmp_path)
    plan.shown(["table1"])
    report = page(plan)
    with pytest.raises(
        SettingsError,
        match=f"is a reproduction of --data demo, and this command is of --data {named}; choose an",
    ):
        reproduce_all.reproduce(replace(plan, **given), ["table1"], [], Watch())
    assert (tmp_path / "report.md").read_text("utf-8") == report


def test_data_is_looked_for_at_once(tmp_path: Path) -> None:
    given: dict[str, Any] = {"folds": (1,), "seeds": (0,), "quick": False}
    with pytest.raises(DataError, match="'nosuch' is neither a registered data set"):
        Plan.of(CellFolder(tmp_path), netflix=None, data="nosuch", **given)
    with pytest.raises(DataError, match="'nosuch' is neither a registered data set"):
        Plan.of(CellFolder(tmp_path), netflix="nosuch", data="demo", **given)


def test_a_cell_is_of_the_content_of_its_data_and_not_of_its_place(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a.csv", "b/a.csv")]
    places[1].parent.mkdir()
    for place in places:
        place.write_text("user,item,rating\n1,2,3\n")
    one, other = (
        of(Plan(CellFolder(tmp_path), data=str(place)), "bias")[0].definition for place in places
    )
    assert one == other
    places[1].write_text("user,item,rating\n1,2,4\n")
    assert of(Plan(CellFolder(tmp_path), data=str(places[1])), "bias")[0].definition != one


def test_a_failure_is_in_the_table_and_in_the_notes(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    fail(plan.folder, of(plan, "bias")[0], "it diverged")
    text = page(plan)
    assert line(text, "user + item bias")[2] == "failed: it diverged"
    assert "- user + item bias, demo, fold 1, seed 0 failed: it diverged (logs/demo-rating-" in text


def test_earlier_folds_are_shown_and_changed_definitions_are_not(tmp_path: Path) -> None:
    earlier = plan_in(tmp_path, folds=(2,))
    finish(earlier.folder, of(earlier, "bias")[0], {"rmse": 0.9})
    assert line(page(plan_in(tmp_path)), "user + item bias")[2] == "0.9000"
    own = of(earlier, "biasmf")[0]
    changed = {**own.settings, "factors": 3}
    finish(earlier.folder, Cell(**{**vars(own), "settings": changed}), {"rmse": 0.9})
    assert line(page(plan_in(tmp_path)), "BiasMF")[2] == "not measured yet"


def test_rankings_have_a_table_for_each_protocol_and_its_own_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plan, "protocols", ("ncf", "paper", "full"))
    plan = plan_in(tmp_path, data="ml-1m")
    for name in ("itempop", "cf-uica-paper"):
        finish(plan.folder, of(plan, name, "table2")[0], SCORES)
    tables = page(plan, "table2").split("## Table 2 by protocol ")[1:]
    ncf, paper, full = (table for table in tables if "paired" not in table.splitlines()[0])
    assert line(ncf, "ItemPop")[1:7] == ["0.454", "0.5000", "+0.0460", "0.254", "0.2500", "-0.0040"]
    assert line(ncf, "CF-UIcA (preset paper)")[1] == "–"
    assert line(paper, "ItemPop")[1] == "–"
    assert line(paper, "CF-UIcA (preset paper)")[1] == "0.736"
    assert line(full, "CF-UIcA (preset paper)")[1] == "–"


def test_peers_are_rows_beyond_the_paper_with_their_own_costs(tmp_path: Path) -> None:
    for name in ("fold-1-dates", "fold-2-dates", "fold-1"):  # fold 2 is none of the plan
        folder = tmp_path / "peers" / f"myfm-demo-{name}"
        folder.mkdir(parents=True)
        (folder / "predicted-rating.parquet").write_text("one")
        used = {"seconds": 600.0, "cpu_seconds": 1200.0, "peak_gb": 3.0}
        used |= {"title": "myFM --dates" if name.endswith("dates") else "myFM"}
        (folder / "result.json").write_text(json.dumps(used))
    plan = plan_in(tmp_path)
    assert len(of(plan, "myfm")) == 1
    (cell,) = of(plan, "myfm-dates")
    file = tmp_path / "peers" / "myfm-demo-fold-1-dates" / "predicted-rating.parquet"
    assert cell.run_of == of(plan, "bias")[0]
    place = "{out}/peers/myfm-demo-fold-1-dates/predicted-rating.parquet"
    assert cell.questions["ratings"][-2:] == ("--predictions", place)
    before = cell.definition
    file.write_text("other")
    (cell,) = of(plan, "myfm-dates")
    assert cell.definition != before
    finish(plan.folder, cell, {"rmse": 0.7})
    write(plan.folder, cell, status="finished", answers={"ratings": {"rmse": 0.7}})
    assert names(cells_of(plan, ["table1"], ["myfm-dates"])) == [
        of(plan, "bias")[0].name,
        cell.name,
    ]
    assert cell.name not in names(cells_of(plan, ["table1"], ["biasmf"]))
    row = line(page(plan), "myFM --dates (beyond the paper)")
    assert (row[2], row[5:8]) == ("0.7000", ["10.0 min", "20.0 min", "3.00 GB"])


def test_a_damaged_result_of_a_peer_is_a_row_that_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "peers" / "myfm-demo-fold-1"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"seconds": 3}')
    plan = plan_in(tmp_path)
    row = line(page(plan), "myfm (beyond the paper)")
    assert row[2].startswith("not run: peers/myfm-demo-fold-1/result.json cannot be read as a res")
    assert of(plan, "bias")


def test_figures_of_other_data_are_not_set_against_the_papers(tmp_path: Path) -> None:
    for data, quick in (("demo", False), ("ml-1m", True)):
        plan = plan_in(tmp_path / data, data=data, quick=quick)
        finish(plan.folder, of(plan, "biasmf")[0], {"rmse": 0.9})
        finish(plan.folder, of(plan, "itempop", "table2")[0], SCORES)
        text = page(plan, "table1", "table2")
        assert line(text, "BiasMF")[1:4] == ["0.845", "0.9000", "–"]
        tables = text.split("## Table 2 by protocol ")[1:]
        assert {line(each, "ItemPop")[3] for each in tables if "| ItemPop |" in each} <= {"–"}


def test_rows_of_different_folds_are_said_to_be(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m", folds=(1, 2))
    for cell in of(plan, "bias"):
        finish(plan.folder, cell, {"rmse": 0.9})
    for cell in of(plan, "biasmf")[:1]:
        finish(plan.folder, cell, {"rmse": 0.9})
    said = "Rows are of different folds or seeds"
    assert said in page(plan)
    finish(plan.folder, of(plan, "biasmf")[1], {"rmse": 0.9})
    assert said not in page(plan)


def test_a_curve_is_over_the_folds_that_most_of_its_points_have(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m", folds=(1, 2))
    cells = EXPERIMENTS["figure-hidden"].cells(plan)
    for cell in cells:
        if cell.fold == 1:
            finish(plan.folder, cell, {"rmse": 0.83})
    # The preset itself has a fold more, an easier one.
    for cell in of(plan, "cf-uica-paper", "figure-hidden"):
        if cell.fold == 2:
            finish(plan.folder, cell, {"rmse": 0.5})
    row = line(page(plan, "figure-hidden"), "CF-UIcA | 1,000")
    assert row[2:] == ["0.8300", "–", "1,234", "90 s", "80 s", "1.50 GB", "1", "0"]
    other = plan_in(tmp_path / "other", data="ml-1m", folds=(1, 2))
    for cell, fold in zip(cells[:3], (1, 1, 2), strict=True):
        own = next(
            c
            for c in EXPERIMENTS["figure-hidden"].cells(other)
            if (c.fold == fold and c.system == cell.system)
        )
        finish(other.folder, own, {"rmse": 0.83})
    text = page(other, "figure-hidden")
    assert "| not measured on the others' folds |" in text


def test_notes_say_what_is_looked_at_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plan, "ncf", None)
    text = page(plan_in(tmp_path, data="ml-1m", folds=(0, 1)))
    assert "- Settings were tuned on fold 0; its figures are not those of a test." in text
    assert "- Table 2 has no protocol ncf, that of the paper's figures" in text
    text = page(plan_in(tmp_path / "demo"))
    assert "fold 0" not in text
    assert "protocol ncf" not in text


def test_every_cell_has_its_own_figures_and_costs(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m", folds=(1, 2))
    for cell, rmse in zip(of(plan, "biasmf"), (0.82, 0.83), strict=True):
        finish(plan.folder, cell, {"rmse": rmse})
    ranked = of(plan, "itempop", "table2")[0]
    ranks = {name: score for name, score in SCORES.items() if name != "rmse"}
    finish(plan.folder, ranked, ranks, cpu_seconds=None)
    (step,) = EXPERIMENTS["table3"].cells(plan)
    answer: dict[str, Any] = {"median_s": 0.1, "dense_median_s": 4.0, "dense_best_median_s": 1.5}
    answer |= {"block": {"users": 900, "items": 1000}, "hidden": {"users": 500, "items": 500}}
    finish(plan.folder, step, {}, answers={"answer": answer})
    record = plan.folder.record(step.name)
    assert record is not None
    del record["training"]
    plan.folder._write(step, record)
    text = page(plan, "table1", "table2", "table3").split("## Every cell")[1]
    costs = ["90 s", "80 s", "1.50 GB", "2026-11-18"]
    assert line(text, "BiasMF, ml-1m, fold 1, seed 0")[1:] == ["RMSE 0.8200", *costs]
    assert line(text, "BiasMF, ml-1m, fold 2, seed 0")[1:] == ["RMSE 0.8300", *costs]
    row = line(text, "ItemPop")
    assert row[1].endswith("full 0.5000 / 0.2500")
    assert row[2:4] == ["90 s", "–"]
    assert line(text, "a minibatch")[1:5] == ["–"] * 4


def test_learning_curves_are_charts(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    finish(plan.folder, of(plan, "biasmf")[0], {"rmse": 0.9})
    finish(plan.folder, of(plan, "bias")[0], {"rmse": 0.9}, curve=[])
    text = page(plan)
    assert "](figures/table-1-validation-rmse-while-training.svg)" in text
    chart = (tmp_path / "figures" / "table-1-validation-rmse-while-training.svg").read_text("utf-8")
    assert "BiasMF" in chart
    assert "bias</text>" not in chart


def test_all_neighbours_are_more_than_there_are_items() -> None:
    row = next(system for system in systems.RANKING if system.name == "itemknn-all")
    assert row.settings("ml-1m", quick=False)[0].model_dump()["neighbours"] > 1000 * 1000 - 1


def test_netflix_has_its_systems_and_the_others_are_not_run(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m", netflix="netflix.parquet")
    of_netflix = [cell for cell in EXPERIMENTS["table1"].cells(plan) if "netflix" in cell.name]
    assert {cell.train[1] for cell in of_netflix} == {"netflix.parquet"}
    assert len(of_netflix) == 5
    text = page(plan).split("## Table 1: test RMSE on Netflix")[1]
    assert line(text, "CF-UIcA (paper-netflix), 20,000")[1:3] == ["0.799", "not measured yet"]
    assert line(text, "I-AutoRec")[1:3] == [
        "0.823",
        "not run: on Netflix only CF-UIcA, BiasMF and the bias are run",
    ]


def test_netflix_has_times_a_curve_of_clusters_and_a_hash_of_its_own(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m", netflix="netflix.parquet")
    training: dict[str, Any] = {"seconds": 90.0, "steps": 10, "seconds_in_minibatches": 30.0}
    training |= {"parameters": 1234, "peak_memory_gb": 1.5}
    own = {"training": training, "data": {"sha256": "e2" * 32, "users": 100}}
    for cell in EXPERIMENTS["figure-clusters"].cells(plan):
        finish(plan.folder, cell, {"rmse": 0.8}, **own if "netflix" in cell.name else {})
    text = page(plan, "table3", "figure-clusters")
    assert line(text, "Netflix | 4,000")[3:] == ["3.4 s", "3.00 s", "–", "–"]
    assert [line(text, f"Netflix | {n},000")[2] for n in (10, 15, 20)] == ["0.8000"] * 3
    assert f"- Data: ml-1m, SHA-256 {'d1' * 6}..." in text
    assert f"- Data: netflix, SHA-256 {'e2' * 6}..." in text


def test_what_failed_is_said_in_its_table(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    for what in ("table3", "table4", "figure-tsne"):
        for cell in EXPERIMENTS[what].cells(plan):
            if not cell.train:
                fail(plan.folder, cell, f"{what} broke")
    text = page(plan, "table3", "table4", "figure-tsne")
    for what in ("table3", "table4", "figure-tsne"):
        assert f"| failed: {what} broke |" in text


def test_times_stand_beside_the_papers_and_the_dense_forms(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m")
    (step,) = EXPERIMENTS["table3"].cells(plan)
    assert step.questions["answer"] == (
        "bench", "step", "--data", "ml-1m", "--hidden", "500", "--json",
    )  # fmt: skip
    answer: dict[str, Any] = {"median_s": 0.1, "dense_median_s": 4.0, "dense_best_median_s": 1.5}
    answer |= {"block": {"users": 900, "items": 1000}, "hidden": {"users": 500, "items": 500}}
    finish(plan.folder, step, {}, answers={"answer": answer})
    text = page(plan, "table3", "table4")
    assert line(text, "ml-1m") == [
        "ml-1m", "900 / 1,000", "500 / 500", "0.77 s", "0.100 s", "4.000 s (40.0 x ours)",
        "1.500 s (15.0 x ours)",
    ]  # fmt: skip
    test, *_, ranking = EXPERIMENTS["table4"].cells(plan)
    finish(plan.folder, test, {}, answers={"answer": answer})
    for name in ("cf-uica-paper",):
        finish(plan.folder, of(plan, name, "table4")[0], SCORES)
    finish(plan.folder, ranking, SCORES)
    times = page(plan, "table4")
    assert line(times, "CF-UIcA | rating")[2:] == [
        "0.80 s",
        "0.25 s",
        "0.100 s",
        "4.000 s",
        "1.500 s",
    ]
    assert line(times, "CF-NADE")[3].startswith("not ")


def test_figures_are_curves_over_units_and_clusters_and_a_map(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, data="ml-1m")
    for what in ("figure-hidden", "figure-clusters"):
        for cell in EXPERIMENTS[what].cells(plan):
            finish(plan.folder, cell, {"rmse": 0.83})
    points = {"Children's": [[0.0, 1.0], [1.0, 2.0]], "Documentary": [[3.0, 3.0]]}
    answer: dict[str, Any] = {"points": points, "neighbours": 10, "p": 0.001}
    answer |= {"agreement": 0.9, "low": 0.85, "high": 0.95}
    answer |= {"chance": 0.5, "chance_low": 0.45, "chance_high": 0.55}
    finish(
        plan.folder,
        of(plan, "ml-1m-tsne-fold1-seed0", "figure-tsne")[0],
        {},
        answers={"answer": answer},
    )
    text = page(plan, "figure-hidden", "figure-clusters", "figure-tsne")
    assert line(text, "CF-UIcA | 250")[2:] == [
        "0.8300",
        "–",
        "1,234",
        "90 s",
        "80 s",
        "1.50 GB",
        "1",
        "0",
    ]
    assert line(text, "ml-1m | none")[2] == "0.8300"
    assert line(text, "Children's and Documentary")[1:3] == ["3", "0.900 (0.850 to 0.950)"]
    html = (tmp_path / "report.html").read_text("utf-8")
    assert html.count("<figure>") == 3
    assert "<script" not in html
    assert html.count("<circle") == 5  # three items, and two in the legend
    assert line(page(replace(plan, folds=(2,)), "figure-tsne"), "Children's and Documentary")
    pictures = [line for line in text.splitlines() if line.startswith("![")]
    assert len(pictures) == 3
    for picture in pictures:
        assert (tmp_path / picture.split("](")[1].rstrip(")")).is_file()


def test_names_are_unique() -> None:
    assert len({system.name for system in RATING}) == len(RATING)
    assert {"pmf", "ials", "cf-uica-netflix-c10000"} <= set(SYSTEMS)
