"""A training that is stopped and taken up again, through files as a run has them."""

from __future__ import annotations

from pathlib import Path

from cfuica.training.checkpoint import Checkpoints, Keeper, Snapshot


class StopAfter(Keeper):
    """Keeps on disk, and stops after so many steps; every keeper reads what is there anew."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.checkpoints, self.left = Checkpoints(folder), steps

    def kept(self) -> Snapshot | None:
        return self.checkpoints.newest()

    def is_stopping(self) -> bool:
        self.left -= 1
        return self.left == 0

    def keep(self, snapshot: Snapshot) -> None:
        self.checkpoints.write(snapshot)
