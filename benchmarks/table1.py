"""Table 1's protocol on MovieLens 1M: train a preset on some folds, test, average.

    .venv/bin/python benchmarks/table1.py paper 1 2 3 --out runs [--valid 0.05] [--set key=value]

Each fold is one `cfuica train` and one `cfuica evaluate`; a fold whose run is already there is
only evaluated, and one that was stopped is resumed. Prints a line per fold and the mean: RMSE,
minutes of training, the share of time outside the minibatches, peak memory, and the seconds that
predicting the test set took.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trained import changed, evaluate, train


def main() -> None:
    """Run the folds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset")
    parser.add_argument("folds", nargs="+", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--valid", default="0.05")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    given = parser.parse_args()
    rows = [scores_of_fold(given, fold) for fold in given.folds]
    mean = sum(row["rmse"] for row in rows) / len(rows)
    print(f"mean of folds {', '.join(map(str, given.folds))}: RMSE {mean:.4f}")


def scores_of_fold(given: argparse.Namespace, fold: int) -> dict[str, float]:
    """Test scores and seconds of training of one fold, which is trained unless it already is."""
    name, settings = changed(given.changes)
    run = given.out / f"{given.data}-{given.preset}{name}-valid{given.valid}-fold{fold}"
    arguments = [given.data, "--preset", given.preset, "--split", "random", "--folds", "10"]
    arguments += ["--fold", str(fold), "--valid", given.valid, *settings]
    training = train(run, arguments)
    scores: dict[str, float] = evaluate(run)
    outside = 1 - training["seconds_in_minibatches"] / training["seconds"]
    print(
        f"{given.preset} fold {fold}: RMSE {scores['rmse']:.4f}  MAE {scores['mae']:.4f}  "
        f"NLL {scores['nll']:.4f}  {training['steps']} minibatches in "
        f"{training['seconds'] / 60:.1f} min, {outside:.0%} outside them, "
        f"peak {training['peak_memory_gb']:.2f} GB, predicted in {scores['seconds']:.2f} s",
        flush=True,
    )
    return {**scores, "training_seconds": training["seconds"]}


if __name__ == "__main__":
    main()
