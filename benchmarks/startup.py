"""Seconds of fresh processes: importing cfuica, help, and `recommend` for one user of a run.

    .venv/bin/python benchmarks/startup.py [RUN ...] [--repeats 9]

Medians, the programs in turns. The imports of torch, numba and polars alone are the yardstick:
each line also has its ratio to them. Of each run, `recommend` also runs once with an empty compile
cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMPORTS = "import torch, numba, polars"
COMMAND = "import sys, cfuica.cli; sys.argv[1:] = {words!r}; cfuica.cli.main()"


def seconds_of(program: str, **environment: str) -> float:
    """Wall seconds of a program in a fresh process."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        env={**os.environ, **environment},
    )
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    programs = {
        IMPORTS: IMPORTS,
        "import cfuica": "import cfuica",
        "cfuica --help": COMMAND.format(words=["--help"]),
    }
    for run in given.runs:
        user = str(json.loads(subprocess.run(
            [sys.executable, "-c", f"import cfuica, json; "
             f"print(json.dumps(cfuica.load({str(run)!r}).users.ids[0]))"],
            check=True, capture_output=True, text=True,
        ).stdout))  # fmt: skip
        words = ["recommend", str(run), "--user", user]
        programs[f"cfuica recommend {run} --user {user}"] = COMMAND.format(words=words)
    found: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(given.repeats + 1):  # the first one warms the file cache
        for name, program in programs.items():
            seconds = seconds_of(program)
            if turn:
                found[name].append(seconds)
    yardstick = statistics.median(found[IMPORTS])
    for name, program in programs.items():
        seconds = statistics.median(found[name])
        print(f"{name}: {seconds:.3f} s, {seconds / yardstick:.2f}")
        if "recommend" in name:
            with tempfile.TemporaryDirectory() as empty:
                seconds = seconds_of(program, NUMBA_CACHE_DIR=empty)
            print(f"  with an empty compile cache: {seconds:.3f} s, {seconds / yardstick:.2f}")


if __name__ == "__main__":
    main()
