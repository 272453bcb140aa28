from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cfuica.metrics.rating_metrics import calibration_scores
from cfuica.reporting.report import learning_curves, write_run_report
from cfuica.run_folder import RunFolder
from tests.runs.small import TINY, progress

RECORD: dict[str, Any] = {
    "preset": "tiny",
    "date": "2026-01-01T00:00:00+00:00",
    "settings": TINY.model_dump(),
    "data": {"train": 1881, "users": 100, "items": 60},
    "training": {"steps": 20, "seconds": 3.0, "parameters": 13_616, "cold_start": None},
}


def test_there_is_a_curve_per_model_of_an_ensemble() -> None:
    history = [progress(step=s, member=m, networks=2) for m in range(2) for s in (10, 20)]
    rmse, loss = learning_curves(history)
    for chart in (rmse, loss):
        assert [series.name for series in chart.series] == ["model 1", "model 2"]
        assert [list(series.x) for series in chart.series] == [[10, 20], [10, 20]]
    assert rmse.title == "Validation RMSE"


def test_the_cold_start_network_has_charts_of_its_own() -> None:
    """Among the curves of an ensemble its own would be taken for a model that failed."""
    history = [
        progress(step=s, member=m, networks=3, cold_start=m == 2, rmse=0.9 + 0.1 * m)
        for m in range(3)
        for s in (10, 20)
    ]
    charts = {chart.title: chart for chart in learning_curves(history)}
    assert list(charts) == [
        "Validation RMSE",
        "Loss of the minibatch",
        "Validation RMSE, cold-start network",
        "Loss of the minibatch, cold-start network",
    ]
    for title, chart in charts.items():
        names = ["CF-UIcA"] if "cold-start" in title else ["model 1", "model 2"]
        assert [series.name for series in chart.series] == names
    (curve,) = charts["Validation RMSE, cold-start network"].series
    assert list(curve.y) == [1.1, 1.1]


def test_one_model_beside_the_cold_start_network_is_not_numbered() -> None:
    history = [progress(member=m, networks=2, cold_start=m == 1) for m in range(2)]
    rmse, *_ = learning_curves(history)
    assert [series.name for series in rmse.series] == ["CF-UIcA"]


def test_without_validation_only_the_loss_is_drawn() -> None:
    (chart,) = learning_curves([progress(step=s, rmse=None) for s in (10, 20)])
    assert chart.title == "Loss of the minibatch"


def test_without_a_history_nothing_is_drawn() -> None:
    assert learning_curves([]) == []


def test_the_report_names_data_settings_and_how_to_go_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a <run>")
    folder.path.mkdir()
    write_run_report(folder, RECORD, [progress(step=s) for s in (10, 20)], {})
    page = folder.report.read_text("utf-8")
    assert "1,881 ratings of 100 users and 60 items" in page
    assert "13,616 parameters" in page
    for name in TINY.model_dump():
        assert name in page
    assert page.count("<svg") == 2
    assert "<run>" not in page  # escaped
    assert "cfuica evaluate" in page
    assert "old-start" not in page


def test_the_report_says_what_the_cold_start_network_is(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    training = {**RECORD["training"], "cold_start": {"parameters": 1234, "last": {}}}
    history = [progress(member=m, networks=2, cold_start=m == 1) for m in range(2)]
    write_run_report(folder, {**RECORD, "training": training}, history, {})
    page = folder.report.read_text("utf-8")
    assert "network of their own, with 1,234 parameters" in page
    assert "validated with every user as a cold-start user" in page
    assert page.count("<svg") == 4


def test_the_report_shows_the_calibration_of_each_network(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    labels_p, values_k = np.arange(40) % 2, np.array([1.0, 2.0])
    right, wrong = (
        calibration_scores(np.full((40, 2), (1 - p, p)), labels_p, values_k, values_k[labels_p])
        for p in (0.5, 0.9)
    )
    checks = {"warm": {"before": wrong, "after": right}, "cold_start": {"uncalibrated": wrong}}
    write_run_report(folder, RECORD, [progress()], checks)
    page = folder.report.read_text("utf-8")
    assert page.count("<svg") == 2 + 2 * 2
    for title in ("<h2>Calibration</h2>", "<h2>Calibration, cold-start network</h2>"):
        assert title in page
    assert "<td>before</td><td class=number>0.4000" in page
    assert "<td>after</td><td class=number>0.0000" in page
    assert "<td>uncalibrated</td>" in page
    assert "validation set, to which it was fitted" in page


def test_without_a_check_there_is_no_calibration(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    write_run_report(folder, RECORD, [progress()], {"warm": {}})
    assert "alibration" not in folder.report.read_text("utf-8")
