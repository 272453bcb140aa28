"""Another library's system on a split of ours, in an environment of its own, scored by cfuica.

    .venv/bin/python benchmarks/peers/run.py NAME [--data ml-1m] [--fold 0] --out DIR
        [OPTIONS OF NAME]

NAME is a folder beside this file with a requirements.txt and a predict.py, whose options follow.
The environment is DIR/env-NAME, made once and again when the requirements have changed; the split,
which all systems of a task share, is DIR/split-DATA-... (see split.py). Predictions, the output of
`cfuica evaluate --json` by each protocol, seconds and peak memory are kept in the folder that the
last line names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Nothing large is imported: what a process holds when it starts another one counts as the peak
# memory of that one, too.
HERE = Path(__file__).resolve().parent
# The task of each system, and its name in tables.
SYSTEMS = {
    "myfm": ("rating", "myFM"),
    "rectools_sasrec": ("ranking", "SASRec of RecTools"),
    "implicit_als": ("ranking", "ALS of implicit"),
}
RATING = "rating"
SHOWN = ("rmse", "mae", "hr@10", "ndcg@10")


def main() -> None:
    """Make what is missing, run the system, score its predictions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("name", choices=list(SYSTEMS))
    parser.add_argument("--data", default="ml-1m", help="name, file or folder of the interactions")
    parser.add_argument("--fold", type=int, default=0, help="the random fold, for ratings")
    parser.add_argument("--out", type=Path, required=True)
    given, options = parser.parse_known_args()
    (task, title), data = SYSTEMS[given.name], Path(given.data).stem
    place = f"{data}-fold-{given.fold}" if task == RATING else f"{data}-leave-one-out"
    split = given.out / f"split-{place}"
    if not (split / "complete").is_file():
        fold = ["--fold", given.fold] if task == RATING else []
        call([sys.executable, HERE / "split.py", given.data, "--task", task, "--out", split, *fold])
        (split / "complete").touch()
    python = environment(given.name, given.out / f"env-{given.name}")
    results = given.out / folder_name(given.name, place, options)
    results.mkdir(exist_ok=True)
    command = [python, HERE / given.name / "predict.py", split, "--out", results, *options]
    used = measured(command)
    print(f"{given.name}: {used.seconds:.0f} s, peak memory {used.peak_gb:.1f} GB")
    metrics = {}
    for predictions in sorted(results.glob("predicted-*.parquet")):
        protocol = predictions.stem.removeprefix("predicted-")
        found = metrics[protocol] = evaluated(split / "run", predictions, protocol)
        shown = [f"{name} {value_of(found[name]):.4f}" for name in SHOWN if name in found]
        print(f"{protocol}:", "   ".join(shown))
    record = {"title": " ".join([title, *options]), **asdict(used), "metrics": metrics}
    unfinished = results / "result.json.unfinished"
    unfinished.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    unfinished.replace(results / "result.json")
    print(results)


def folder_name(name: str, place: str, options: Sequence[str]) -> str:
    """Of the results of a system on a split; `cfuica reproduce` finds them by it."""
    return re.sub(r"[^\w.]+", "-", "-".join([name, place, *options]))


def environment(name: str, folder: Path) -> Path:
    """The Python of an environment with a system's requirements."""
    requirements, stamp = HERE / name / "requirements.txt", folder / "installed.txt"
    python = folder / "bin" / "python"
    if not stamp.is_file() or stamp.read_text("utf-8") != requirements.read_text("utf-8"):
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
        call([python, "-m", "pip", "install", "--quiet", "--requirement", requirements])
        stamp.write_text(requirements.read_text("utf-8"), "utf-8")
    return python


@dataclass(frozen=True)
class Used:
    """What a process used."""

    seconds: float
    cpu_seconds: float
    peak_gb: float


def measured(command: Sequence[str | Path]) -> Used:
    """Run a command without our own PYTHONPATH; what it took."""
    start = time.monotonic()
    rest = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(list(map(str, command)), env=rest)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[1]} ended with code {process.returncode}; see above.")
    # Kilobytes, but on macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    seconds, cpu_seconds = time.monotonic() - start, usage.ru_utime + usage.ru_stime
    return Used(seconds, cpu_seconds, usage.ru_maxrss * unit / 1e9)


def evaluated(run: Path, predictions: Path, protocol: str) -> dict[str, Any]:
    """What `cfuica evaluate` says."""
    arguments = ["evaluate", str(run), "--predictions", str(predictions), "--json"]
    if protocol != RATING:
        arguments += ["--protocol", protocol]
    cfuica = [sys.executable, "-c", "from cfuica.cli import main; main()"]
    return json.loads(call([*cfuica, *arguments], stdout=subprocess.PIPE))


def call(command: Sequence[Any], **options: Any) -> str:
    """Run a command, which says itself what fails; what it printed, where that is asked for."""
    ended = subprocess.run(list(map(str, command)), text=True, **options)
    if ended.returncode:
        raise SystemExit(ended.returncode)
    return ended.stdout


def value_of(metric: Any) -> float:
    """A ranking metric has an interval, too."""
    return metric["value"] if isinstance(metric, dict) else metric


if __name__ == "__main__":
    main()
