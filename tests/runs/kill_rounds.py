"""Kill real trainings with SIGKILL at random moments, resume them, and compare with one that ran
through.

    .venv/bin/python -m tests.runs.kill_rounds --rounds 20

A round counts if the process was killed after its first checkpoint and before its end. It is then
resumed, every second time killed once more, and must end in the same model, bit for bit, and in
the same metrics. Processes are forked from this one, which has imported everything and used
nothing: importing would take most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from cfuica.cli import main as cfuica
from cfuica.runs import job  # noqa: F401  (imported for the forks)

SETTINGS = {
    "members": ["schedule=planned", "members=2", "max_steps=30", "validate_every=6"],
    "patience": ["schedule=patience", "members=1", "patience=2", "max_steps=60",
                 "validate_every=2", "learning_rate=0.1", "stop_rate=0.002", "rate_divisor=3"],
}  # fmt: skip
OPTIONS = ["--checkpoint-every", "0", "--progress", "quiet"]
SMALL = ["hidden_users=12", "hidden_items=9", "batch_users=60", "batch_items=40"]


def main() -> None:
    """Play the rounds; a line of JSON says how many were equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    equal = dict.fromkeys(SETTINGS, 0)
    moments: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = _data(folder / "ratings.csv")
        whole: dict[str, tuple[Path, float]] = {}
        for name in SETTINGS:
            _wait(_fork(_new(data, folder / f"warm-{name}", name)))  # compiles the kernels
            start = time.monotonic()
            _wait(_fork(_new(data, folder / name, name)))
            whole[name] = folder / name, time.monotonic() - start
        played = 0
        while played < given.rounds:
            name = list(SETTINGS)[played % len(SETTINGS)]
            reference, seconds = whole[name]
            run = folder / f"round-{len(moments)}"
            _kill_after(_fork(_new(data, run, name)), chance.uniform(0, seconds))
            moments.append(_state(run))
            if moments[-1] != "checkpoint":
                continue
            played += 1
            if played % 2:
                _kill_after(_fork(_resume(run)), chance.uniform(0, seconds))
            if _state(run) != "finished":
                _wait(_fork(_resume(run)))
            equal[name] += _same(run, reference)
    print(json.dumps({"rounds": played, "equal": sum(equal.values()), "killed": moments}))
    sys.exit(0 if sum(equal.values()) == given.rounds else 1)


def _data(path: Path) -> Path:
    """200 users, 100 items, 4,000 ratings, without using anything that starts threads."""
    chance = random.Random(1)
    pairs = sorted({(chance.randrange(200), chance.randrange(100)) for _ in range(4500)})
    rows = [f"{user},{item},{1 + (user * item + chance.randrange(2)) % 5}" for user, item in pairs]
    path.write_text("\n".join(["user,item,rating", *rows]) + "\n", "utf-8")
    return path


def _new(data: Path, run: Path, name: str) -> list[str]:
    changes = [word for change in SMALL + SETTINGS[name] for word in ("--set", change)]
    return ["train", str(data), "--out", str(run), *OPTIONS, *changes]


def _resume(run: Path) -> list[str]:
    return ["train", "--resume", str(run), *OPTIONS]


def _fork(arguments: list[str]) -> int:
    child = os.fork()
    if child == 0:
        sys.argv = ["cfuica", *arguments]
        code = 70
        try:
            cfuica()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os._exit(code)
    return child


def _kill_after(child: int, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _wait(child: int) -> None:
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise SystemExit(f"A training ended with {os.waitstatus_to_exitcode(status)}.")


def _state(run: Path) -> str:
    record = run / "run.json"
    if record.is_file() and json.loads(record.read_text("utf-8"))["status"] == "finished":
        return "finished"
    return "checkpoint" if list(run.glob("unfinished/checkpoint-*")) else "nothing yet"


def _same(run: Path, reference: Path) -> bool:
    files = ["model/model.safetensors", "model/behaviours.parquet", "test.parquet"]
    same_bytes = all((run / f).read_bytes() == (reference / f).read_bytes() for f in files)
    left = [path.name for path in run.iterdir() if path.name not in os.listdir(reference)]
    return same_bytes and not left and _metrics(run) == _metrics(reference)


def _metrics(run: Path) -> list[dict[str, object]]:
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [{k: v for k, v in each.items() if "seconds" not in k} for each in records]


if __name__ == "__main__":
    main()
