"""A training that is stopped and taken up again, through files as a run has them."""

from __future__ import annotations

from pathlib import Path

from cfuica.training.checkpoint import Checkpoint, Checkpointer, CheckpointFolder


class StopAfter(Checkpointer):
    """Saves on disk, and stops after so many steps; each one reads what is there anew."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.checkpoints, self.left = CheckpointFolder(folder), steps

    def restored(self) -> Checkpoint | None:
        return self.checkpoints.newest()

    def is_stopping(self) -> bool:
        self.left -= 1
        return self.left == 0

    def save(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.write(checkpoint)
