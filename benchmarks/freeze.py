"""Check that a refactoring changes no result: the same commands in two checkouts, in turn.

    python benchmarks/freeze.py OLD [NEW] [--tolerance 1e-4]     (NEW: this checkout)

Each checkout trains small models of both tasks on the same toy table and runs every command that
prints JSON. Losses of every validation, predictions, ranked lists, explanations and metrics
must be equal to the last digit, or up to a tolerance where sums are added up in another order.
Times, versions and help texts are left out. SETTINGS and KEYS map
the words of OLD to those of NEW, in settings and in JSON keys; both are empty where nothing was
renamed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
SETTINGS: dict[str, str] = {}
REMOVED: set[str] = {"residual_layer"}  # settings that only one of the two has
KEYS: dict[str, str] = {}
MEASURED = {
    "meaning",
    "seconds",
    "seconds_in_steps",
    "machine",
    "versions",
    "cfuica",
    "date",
    "peak_memory_gb",
    "data",
    "source",
}

SMALL = ["hidden_users=6", "hidden_items=5", "batch_users=20"]
RATING = [
    *SMALL,
    "ensemble_size=2",
    "cold_start_units=4",
    "max_steps=60",
    "validate_every=15",
    "batch_items=20",
]
TRAININGS = {
    "rating": [*RATING],
    "rating-paper": [*SMALL, "max_steps=40", "validate_every=10", "batch_items=20"],
    "rating-paper-as-written": [*SMALL, "max_steps=40", "validate_every=10", "batch_items=20"],
    "ranking": [*SMALL, "ensemble_size=2", "residual_units=7", "epochs=4", "validate_every=5"],
    "ranking-paper": [*SMALL, "batch_items=15", "epochs=3", "validate_every=5"],
    "ranking-paper-uniform": [*SMALL, "batch_items=15", "epochs=2", "validate_every=5"],
    "ranking-paper-inverse": [*SMALL, "batch_items=15", "epochs=2", "validate_every=5"],
    "ranking-sampled": [*SMALL, "loss=sampled-softmax", "softmax_candidates=9", "epochs=2"],
    "ranking-global": [
        *SMALL,
        "ordering=global-time",
        "loss=bernoulli",
        "residual_units=0",
        "epochs=2",
    ],
}
ANSWERS = {
    "data show": "data show ratings.csv --json",
    "data show demo": "data show demo --json",
    "settings": "settings --json",
    "settings ranking": "settings --task ranking --preset paper --json",
    "predict": "predict rating --pairs pairs.csv --distribution --json",
    "predict paper": "predict rating-paper --pairs pairs.csv --json",
    "recommend": "recommend rating --user u3 --user cold -n 5 --json",
    "recommend lower": "recommend rating --all-users --by lower -n 3 --json",
    "recommend history": "recommend rating --history i1:5,i2:1 -n 5 --json",
    "recommend ranking": "recommend ranking --all-users -n 4 --json",
    "recommend ranking paper": "recommend ranking-paper --user u1 -n 4 --include-seen --json",
    "recommend ranking history": "recommend ranking --history i1,i2,i7 -n 5 --json",
    "recommend sampled": "recommend ranking-sampled --user u5 --exclude i1 --json",
    "similar users": "similar rating --user u2 --json",
    "similar items": "similar rating --item i1 -n 3 --json",
    "similar ranking": "similar ranking --user u2 -n 3 --json",
    "explain": "explain rating --user u3 --item i9 --json",
    "explain cold": "explain rating --history i1:5,i3:2 --item i9 --json",
    "explain ranking": "explain ranking --user u3 --item i9 --json",
    "evaluate": "evaluate rating --json",
    "evaluate paper": "evaluate rating-paper-as-written --json",
    "evaluate ranking": "evaluate ranking --json",
    "evaluate ranking by paper": "evaluate ranking-paper --protocol paper --json",
    "evaluate uniform": "evaluate ranking-paper-uniform --at 1,3 --json",
    "evaluate global": "evaluate ranking-global --json",
    "evaluate table": "evaluate rating --predictions predictions.csv --json",
    "compare": "compare rating rating-paper --json",
    "compare rankings": "compare ranking ranking-paper-inverse --json",
    "observe": "observe rating --events events.csv --out observed",
    "recommend observed": "recommend observed --user u3 --user new -n 5 --json",
    "observe ranking": "observe ranking --events events.csv --out observed-ranking",
    "recommend observed ranking": "recommend observed-ranking --user u3 --user new -n 5 --json",
    "forget": "forget observed --user u3 --out forgotten",
    "predict forgotten": "predict forgotten --pairs pairs.csv --json",
}


def write_tables(folder: Path) -> None:
    """The toy tables: interactions with times, many of them equal, pairs, events, predictions."""
    draw = random.Random(7)
    rows = [
        f"u{user},i{item},{draw.randint(1, 5)},{1_000_000 + 500 * user + draw.randint(0, 9)}"
        for user in range(60)
        for item in range(40)
        if draw.random() < 0.3
    ]
    pairs = ["u1,i1", "u2,i39", "u59,i0", "cold,i3", "u4,unseen", "cold,unseen"]
    events = ["u3,i5,1,1500000", "u3,i6,5,1500001", "new,i5,4,1500002", "new,i8,4,1500003"]
    predictions = [
        f"u{user},i{item},{draw.random() * 5}" for user in range(60) for item in range(40)
    ]
    tables = {
        "ratings": ("user,item,rating,timestamp", rows),
        "pairs": ("user,item", pairs),
        "events": ("user,item,rating,timestamp", events),
        "predictions": ("user,item,rating", predictions),
    }
    for name, (header, lines) in tables.items():
        (folder / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")


# Runs in the checkout's own Python: every command one after another, its output as one JSON line.
DRIVER = """
import contextlib, io, json, sys
from cfuica.cli import main
for line in sys.stdin:
    sys.argv = ["cfuica", *json.loads(line)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def frozen(checkout: Path, rename: dict[str, str]) -> dict[str, Any]:
    """What the commands of one checkout give, by name."""
    given: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        commands = {f"train {name}": training(name, rename) for name in TRAININGS}
        commands |= {name: command.split() for name, command in ANSWERS.items()}
        said = run(checkout, folder, list(commands.values()))
        for (name, words), (code, out, err) in zip(commands.items(), said, strict=True):
            if code:
                sys.exit(f"{checkout}: cfuica {' '.join(words)} ended with {code}: {err}")
            if words[0] == "train":
                lines = (folder / words[3] / "metrics.jsonl").read_text().splitlines()
                given[name] = [json.loads(line) for line in lines]
            elif "--json" in words:
                given[name] = json.loads(out)
    return given


def training(name: str, rename: dict[str, str]) -> list[str]:
    """The words of a training's command."""
    task, _, preset = name.partition("-")
    words = ["train", "ratings.csv", "--out", name, "--task", task, "--progress", "quiet"]
    words += ["--preset", preset] if preset.startswith("paper") else []
    for change in TRAININGS[name]:
        key, _, value = change.partition("=")
        words += ["--set", f"{rename.get(key, key)}={value}"]
    return words


def run(checkout: Path, folder: Path, commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """(exit code, output, messages) of commands of a checkout, run in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "CFUICA_THREADS": "2"}
    done = subprocess.run(
        [str(checkout / ".venv" / "bin" / "python"), "-c", DRIVER],
        input="".join(json.dumps(words) + "\n" for words in commands),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{checkout}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def plain(value: Any, keys: dict[str, str]) -> Any:
    """Without what was measured or explained, with the new words for keys and for settings."""
    if isinstance(value, dict):
        return {
            keys.get(key, key): plain(each, keys)
            for key, each in value.items()
            if key not in MEASURED
        }
    if isinstance(value, list):
        kept = [
            one for one in value if not isinstance(one, dict) or one.get("setting") not in REMOVED
        ]
        return [plain(each, keys) for each in kept]
    return SETTINGS.get(value, value) if keys and isinstance(value, str) else value


def differences(old: Any, new: Any, where: str, near: float) -> list[str]:
    """Every place where two answers are not the same, as lines."""
    if near and isinstance(old, float) and isinstance(new, float):
        return (
            [] if abs(old - new) <= near * max(1.0, abs(old)) else [f"{where}: {old} became {new}"]
        )
    if isinstance(old, dict) and isinstance(new, dict):
        found = [f"{where}: only one has {key}" for key in sorted(old.keys() ^ new.keys())]
        for key in old.keys() & new.keys():
            found += differences(old[key], new[key], f"{where}.{key}", near)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line
            for at, (one, other) in enumerate(zip(old, new, strict=True))
            for line in differences(one, other, f"{where}[{at}]", near)
        ]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=HERE)
    parser.add_argument("--tolerance", type=float, default=0.0)
    given = parser.parse_args()
    old, new = (
        frozen(given.old.resolve(), {new: old for old, new in SETTINGS.items()}),
        frozen(given.new.resolve(), {}),
    )
    numbers = 0
    found = []
    for name, answer in old.items():
        numbers += json.dumps(answer).count(",") + 1
        found += differences(plain(answer, KEYS), plain(new[name], {}), name, given.tolerance)
    print("\n".join(found) or f"equal: {len(old)} answers, about {numbers:,} values")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
