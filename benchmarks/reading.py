"""Seconds and peak memory from a file of ratings to the matrix, each in a fresh process.

    .venv/bin/python benchmarks/reading.py [--rows 10000000] [--text-ids]

Generates a CSV of user, item, rating, timestamp (140,000 users, 20,000 items, half stars; fixed
seed) in a temporary folder. If MovieLens 1M is there, its zip to the matrix is timed as well, with
all imports.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

USERS, ITEMS, PART = 140_000, 20_000, 1_000_000
READ = """
import resource, sys, time
start = time.perf_counter()
from cfuica.data.table import Interactions
imported = time.perf_counter()
table = Interactions.read(sys.argv[1])
read = time.perf_counter()
matrix = table.matrix(users=table.users, items=table.item_ids, scale=table.scale)
done = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
cpu = time.process_time()
print(f"import {imported - start:.2f} s, read {read - imported:.2f} s, matrix {done - read:.2f} s; "
      f"in all {done - start:.2f} s (CPU {cpu:.2f} s), peak {peak:.2f} GB, "
      f"{matrix.n_interactions:,} ratings")
"""


def main() -> None:
    """Generate, then read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--text-ids", action="store_true", help="ids that are not numbers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cfuica-reading-") as folder:
        path = Path(folder) / "ratings.csv"
        # Not in this process: a child inherits the peak memory of its parent.
        arguments = [str(path), str(given.rows), "text" if given.text_ids else ""]
        subprocess.run([sys.executable, __file__, "generate", *arguments], check=True)
        print(f"{given.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB: {_timed(path)}")
    zipped = _movielens()
    if zipped is not None:
        print(f"MovieLens 1M, {zipped.name}: {_timed(zipped)}")


def generate(path: Path, rows: int, *, text_ids: bool) -> None:
    """Write `rows` distinct pairs; the i-th pair is i times a prime, modulo all pairs."""
    import numpy as np
    import polars as pl

    random = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, rows, PART):
            size = min(PART, rows - start)
            # Shuffled by multiplication, so that no pair occurs twice: the prime divides no count.
            pair = np.arange(start, start + size, dtype=np.int64) * 1_999_993 % (USERS * ITEMS)
            part = pl.DataFrame(
                {
                    "user": pair // ITEMS + 1,
                    "item": pair % ITEMS + 1,
                    "rating": random.integers(1, 11, size) / 2,
                    "timestamp": random.integers(800_000_000, 1_500_000_000, size),
                }
            )
            if text_ids:
                part = part.with_columns(pl.format("A{}XQ", "user"), pl.format("B{}ZW", "item"))
            part.write_csv(file, include_header=start == 0)


def _timed(path: Path) -> str:
    program = [sys.executable, "-c", READ, str(path)]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip()


def _movielens() -> Path | None:
    from cfuica.data.datasets import homes

    places = (homes()[0] / "ml-1m" / "ml-1m.zip", homes()[0] / "ml-1m.zip")
    return next((path for path in places if path.is_file()), None)


if __name__ == "__main__":
    if sys.argv[1:2] == ["generate"]:
        generate(Path(sys.argv[2]), int(sys.argv[3]), text_ids=sys.argv[4] == "text")
    else:
        main()
