"""The calibration section of a report."""

from __future__ import annotations

import numpy as np
import pytest

from cfuica.metrics.rating_metrics import CalibrationScores, calibration_scores
from cfuica.reporting.charts import line_chart
from cfuica.reporting.report import calibration_section, write_report

VALUES_K = np.array([1.0, 2.0, 3.0])


def scores(sharpness: float) -> CalibrationScores:
    rng = np.random.default_rng(0)
    p_pk = rng.dirichlet(np.ones(3), 400) ** sharpness
    p_pk /= p_pk.sum(1, keepdims=True)
    labels_p = rng.integers(0, 3, 400)
    return calibration_scores(p_pk, labels_p, VALUES_K, VALUES_K[labels_p])


def test_charts_hold_a_curve_per_state_and_the_ideal():
    before, after = scores(3.0), scores(1.0)
    _, charts = calibration_section({"before": before, "after": after})
    for chart in charts:
        assert [one.name for one in chart.series] == ["before", "after", "as predicted"]
    reliability, variance = charts
    assert reliability.series[1].x == pytest.approx(after.reliability.predicted_b)
    assert reliability.series[1].y == pytest.approx(after.reliability.observed_b)
    assert variance.series[0].x == pytest.approx(before.spread.predicted_b)
    assert variance.series[0].y == pytest.approx(before.spread.observed_b)


def test_the_ideal_is_the_diagonal_as_far_as_variances_reach():
    one = scores(1.0)
    _, (_, variance) = calibration_section({"after": one})
    ideal = variance.series[-1]
    assert list(ideal.x) == list(ideal.y) == [0.0, one.spread.predicted_b.max()]


def test_the_table_has_a_row_per_state():
    before, after = scores(3.0), scores(1.0)
    table, _ = calibration_section({"before": before, "after": after})
    assert [row[0] for row in table.rows] == ["before", "after"]
    assert table.rows[0][1] == f"{before.top_label_error:.4f}"
    assert table.rows[1][2] == f"{after.class_wise_error:.4f}"
    assert table.rows[1][3] == f"{after.spread.ratio:.3f}"


def test_it_fits_into_a_report(tmp_path):
    table, charts = calibration_section({"before": scores(3.0), "after": scores(1.0)})
    path = tmp_path / "report.html"
    write_report(
        path,
        title="t",
        intro="i",
        tables=[table],
        charts=[line_chart(chart) for chart in charts],
    )
    page = path.read_text("utf-8")
    assert page.count("<svg") == 2
    assert "observed frequency" in page
    assert "mean squared error" in page
