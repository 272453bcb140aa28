"""Table 2 on MovieLens 1M: train a ranking preset with some seeds, test by protocols, average.

    .venv/bin/python benchmarks/table2.py paper 0 1 2 --protocols paper --out runs
    .venv/bin/python benchmarks/table2.py default 0 1 2 --protocols ncf full paper --out runs

Each seed is one `cfuica train` and a `cfuica evaluate` for each protocol; a seed whose run is
already there is only evaluated, and one that was stopped is resumed. Prints a line per seed and
protocol, and the means: HR@10 and NDCG@10, minutes of training, and the seconds that answering and
measuring took.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean

from trained import changed, evaluate, train

METRICS = ("hr@10", "ndcg@10")


def main() -> None:
    """Run the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset")
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--protocols", nargs="+", default=["paper"])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {protocol: [] for protocol in given.protocols}
    for seed in given.seeds:
        run = trained_run(given, seed)
        for protocol in given.protocols:
            scores = evaluate(run, "--protocol", protocol)
            found[protocol].append({metric: scores[metric]["value"] for metric in METRICS})
            intervals = "  ".join(
                f"{metric.upper()} {scores[metric]['value']:.4f} "
                f"({scores[metric]['low']:.4f} to {scores[metric]['high']:.4f})"
                for metric in METRICS
            )
            print(f"{given.preset} seed {seed}, {protocol}: {intervals}", flush=True)
    for protocol, rows in found.items():
        means = "  ".join(
            f"{metric.upper()} {mean(row[metric] for row in rows):.4f}" for metric in METRICS
        )
        print(f"mean of seeds {', '.join(map(str, given.seeds))}, {protocol}: {means}")


def trained_run(given: argparse.Namespace, seed: int) -> Path:
    """The run of one seed, trained unless it already is."""
    name, settings = changed(given.changes)
    run: Path = given.out / f"{given.data}-ranking-{given.preset}{name}-seed{seed}"
    arguments = [given.data, "--task", "ranking", "--preset", given.preset]
    arguments += ["--split", "leave-one-out", "--set", f"seed={seed}", *settings]
    training = train(run, arguments)
    print(
        f"{given.preset} seed {seed}: {training['steps']} minibatches in "
        f"{training['seconds'] / 60:.1f} min, peak {training['peak_memory_gb']:.2f} GB",
        flush=True,
    )
    return run


if __name__ == "__main__":
    main()
