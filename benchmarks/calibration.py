"""Calibration on the test set of trained runs, before and after the correction.

    .venv/bin/python benchmarks/calibration.py runs/RUN ... [--json FILE] [--html FILE]

The correction is fitted on each run's own validation set and never sees its test set. Prints a
line per run and state: RMSE, NLL, expected calibration error of the most likely rating and the
mean of those of all ratings, and squared error over predicted variance.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import cfuica
from cfuica.data.datasets import resolve
from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.live.live_state import LiveState
from cfuica.metrics.rating_metrics import (
    Bins,
    CalibrationScores,
    RatingScores,
    calibration_scores,
    rating_scores,
)
from cfuica.model.calibration import Calibration
from cfuica.models.co_autoregressive import RatingModel
from cfuica.reporting.charts import line_chart
from cfuica.reporting.report import calibration_section, write_report


def as_json(scores: CalibrationScores) -> dict[str, Any]:
    """Numbers and lists of numbers only."""

    def bins(found: Bins) -> list[dict[str, float]]:
        rows = zip(found.predicted_b, found.observed_b, found.counts_b, strict=True)
        return [{"predicted": float(p), "observed": float(o), "n": int(n)} for p, o, n in rows]

    ratio = scores.spread.ratio if np.isfinite(scores.spread.ratio) else None
    return {
        "ece_top_label": scores.top_label_error,
        "ece_class_wise": scores.class_wise_error,
        "reliability": bins(scores.reliability),
        "spread": {"ratio": ratio, "bins": bins(scores.spread)},
        "n": scores.n,
    }


COLUMNS = ("RMSE", "NLL", "ECE top label", "ECE class-wise", "variance ratio")


def main() -> None:
    """Print the table; write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--json", type=Path, help="all figures and bins")
    parser.add_argument("--html", type=Path, help="charts of the last run")
    given = parser.parse_args()
    width = max(len(run.name) for run in given.runs)
    print(" " * (width + 7), *(f"{column:>14}" for column in COLUMNS))
    results = {}
    for run in given.runs:
        calibration, scores = of_run(run)
        for state, (rating, calibrated) in scores.items():
            figures = (
                rating.rmse,
                rating.nll,
                calibrated.top_label_error,
                calibrated.class_wise_error,
                calibrated.spread.ratio,
            )
            print(f"{run.name:{width}} {state:6}", *(f"{figure:14.5f}" for figure in figures))
        print(f"  T = {calibration.temperature:.4f}, widening = {calibration.widening:.4f}")
        results[run.name] = {
            "temperature": calibration.temperature,
            "widening": calibration.widening,
            **{
                state: {"rmse": rating.rmse, "nll": rating.nll, **as_json(calibrated)}
                for state, (rating, calibrated) in scores.items()
            },
        }
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if given.html:
        table, charts = calibration_section({state: one for state, (_, one) in scores.items()})
        write_report(
            given.html,
            title=f"Calibration of {run.name}",
            intro=f"On {scores['after'][0].n:,} test ratings.",
            tables=[table],
            charts=[line_chart(chart) for chart in charts],
        )


def of_run(run: Path) -> tuple[Calibration, dict[str, tuple[RatingScores, CalibrationScores]]]:
    """The correction fitted on validation, and the test scores before and after it."""
    model = cfuica.load(run)
    data_split = read_split(json.loads((run / "run.json").read_text("utf-8")))
    values_k = model.artifact.scale.values_array()
    logits_pk, labels_p, _ = asked(model, data_split.valid)
    calibration = Calibration.fit(logits_pk, labels_p, values_k)
    logits_pk, labels_p, ratings_p = asked(model, data_split.test)
    scores = {}
    for state, one in (("before", Calibration()), ("after", calibration)):
        p_pk = one.distributions(logits_pk, values_k)
        scored = (p_pk, labels_p, values_k, ratings_p)
        scores[state] = (rating_scores(*scored), calibration_scores(*scored))
    return calibration, scores


def read_split(record: dict[str, Any]) -> DataSplit:
    """The random split of a run, made again from its data."""
    split = record["split"]
    options = {name: split[name] for name in ("folds", "fold", "valid", "seed")}
    data_split = DataSplit.random(resolve(record["data"]["source"]), **options)
    if data_split.description["sha256"] != split["sha256"]:
        raise SystemExit(f"{record['data']['source']} is not what the run was trained on.")
    return data_split


def asked(model: RatingModel, part: Interactions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits (P, K), labels and ratings of a part."""
    warm = model.artifact
    rated = part.rated_pairs(users=warm.users, items=warm.items, scale=warm.scale)
    state = LiveState.of(warm.networks["warm"], warm.interactions, warm.rows)
    logits_pk = state.pair_logits(rated.users_p, rated.items_p)
    return logits_pk, rated.labels_p, rated.ratings_p


if __name__ == "__main__":
    main()
