"""Seconds that `import cfuica` and `cfuica --help` take: medians of fresh processes.

.venv/bin/python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPEATS = 9
PROGRAMS = {
    "python -c pass": "pass",
    "import cfuica": "import cfuica",
    "cfuica --help": "import sys, cfuica.cli; sys.argv[1:] = ['--help']; cfuica.cli.main()",
}

if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        seconds = []
        for _ in range(REPEATS + 1):  # the first one warms the file cache
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
        print(f"{name}: {statistics.median(seconds[1:]):.3f} s")
