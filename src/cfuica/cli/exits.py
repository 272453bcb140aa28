"""Exit codes of the commands; docs/runs.md explains them."""

from __future__ import annotations

# 128 + the number of the signal, as in shells.
USER_ERROR, BUG, INTERRUPTED, TERMINATED = 1, 70, 130, 143

EXIT_CODES = (
    "Exit codes: 0 done, 1 something given cannot be used, 2 wrong usage, 70 a bug in cfuica, "
    "130 Ctrl-C, 143 SIGTERM."
)
