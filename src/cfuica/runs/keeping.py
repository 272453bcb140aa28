"""When a run's training is written down, and when it stops."""

from __future__ import annotations

import time

from cfuica.learning.snapshot import Keeper, Snapshot
from cfuica.runs.checkpoints import Checkpoints
from cfuica.runs.stopping import StopRequest


class RunKeeper(Keeper):
    """A checkpoint every so many seconds, and one when a stop is asked for."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        *,
        every_seconds: float,
        stop: StopRequest,
        kept: Snapshot | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self._every = every_seconds
        self._stop = stop
        self._kept = kept
        self._last = time.monotonic()

    def kept(self) -> Snapshot | None:
        """Handed over once: held here, it would cost the memory of a second training."""
        kept, self._kept = self._kept, None
        return kept

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= self._every

    def is_stopping(self) -> bool:
        return self._stop.signal is not None

    def keep(self, snapshot: Snapshot) -> None:
        self._checkpoints.write(snapshot)
        self._last = time.monotonic()
