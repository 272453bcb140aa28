"""The memory that a training says it needs, beside the peak that it reaches.

    .venv/bin/python benchmarks/budget.py ml-100k ml-1m shop.parquet netflix.parquet
    .venv/bin/python benchmarks/budget.py ml-100k ml-1m shop.parquet --task ranking

Each is a short `cfuica train` of the preset `default` in a process of its own: all its networks,
few minibatches. Data that is prepared for the first time is trained on twice, because preparing
may take more than training.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

# `cfuica`, which also prints the bytes that it checks before it trains.
COMMAND = """
import sys
from cfuica.training import budget
check = budget.check_memory
def printing(needed, *rest):
    print(f"needs {needed.bytes}", file=sys.stderr)
    check(needed, *rest)
budget.check_memory = printing
from cfuica.cli import main
main()
"""
SHORT = {
    "rating": ("max_steps=40", "validate_every=20"),
    "ranking": ("epochs=0.2", "validate_every=40"),
}
PREPARING = "Preparing"


def main() -> None:
    """Print a line for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--task", choices=SHORT, default="rating")
    given = parser.parse_args()
    for data in given.data:
        said, needed, peak = trained(data, given.task)
        if PREPARING in said:
            _, needed, peak = trained(data, given.task)
        print(
            f"{data}: said {needed:.2f} GB, peak {peak:.2f} GB, said / peak {needed / peak:.2f}",
            flush=True,
        )


def trained(data: str, task: str) -> tuple[str, float, float]:
    """What the training said, the GB that it asked for and those that it took."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [data, "--task", task, "--out", folder, "--progress", "lines"]
        arguments += [part for change in SHORT[task] for part in ("--set", change)]
        run = [sys.executable, "-c", COMMAND, "train", *arguments]
        said = subprocess.run(run, check=True, stderr=subprocess.PIPE, text=True).stderr
        record = json.loads((Path(folder) / "run.json").read_text("utf-8"))
    needed = [line.split()[1] for line in said.splitlines() if line.startswith("needs ")]
    return said, float(needed[-1]) / 1e9, record["training"]["peak_memory_gb"]


if __name__ == "__main__":
    main()
