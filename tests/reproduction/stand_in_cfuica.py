"""A program that is called like `cfuica` and does what its arguments say, at once.

`train ... --out RUN` writes a run; with `--set do=wait` it trains until it is stopped or resumed,
with `--set do=fail` it fails, with `--set do=die` a signal ends it, and with `--set do=harm` the
lines of its metrics are cut short. `ask WORD` answers in JSON.
Each call is a line of the file CALLS.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

words = sys.argv[1:]
with Path(os.environ["CALLS"]).open("a") as calls:
    calls.write(" ".join(words) + "\n")


def record(run: Path, status: str) -> None:
    training = {"seconds": 2.0, "steps": 3, "parameters": 4, "peak_memory_gb": 0.5}
    content = {"status": status, "training": training, "data": {"sha256": "abc", "users": 7}}
    if "--resume" in words:
        content["resumed_at"] = []
    (run / "run.json").write_text(json.dumps(content))


if words[0] == "ask":
    for word in words:
        if Path(word).parent.name == "users":
            Path(word).write_bytes(b"PAR1 and so on, PAR1")
    print(json.dumps({"rmse": 0.5, "asked": words[1:]}))
elif "do=fail" in words:
    sys.exit("Warming up.\ncfuica: It diverged; try a lower rate.")
elif "do=die" in words:
    os.kill(os.getpid(), signal.SIGKILL)
else:
    run = Path(words[words.index("--resume" if "--resume" in words else "--out") + 1])
    run.mkdir(parents=True, exist_ok=True)
    record(run, "training")
    signal.signal(signal.SIGTERM, lambda *_: ((run / "stopped").touch(), sys.exit(143)))
    while "do=wait" in words:
        # As `--progress json` does: who has no reader any more ends.
        event = {"event": "validated", "member": 0, "networks": 1, "step": 1, "steps_planned": 4}
        print(json.dumps(event), flush=True)
        time.sleep(0.02)
    line = {"member": 0, "seconds": 1.0, "valid": {"rmse": 0.75}}
    text = json.dumps(line) + "\n"
    (run / "metrics.jsonl").write_text(text[:20] if "do=harm" in words else text)
    record(run, "finished")
