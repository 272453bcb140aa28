"""Checkpoints: the state of a training between two minibatches, in memory and on disk.

A training that continues from a checkpoint ends in the same bits. `CheckpointFolder` holds:

checkpoint-000007/        the newest; the one before it goes once this one is in place
    tensors.safetensors   parameters, moments and best parameters of the network in training
    state.json            everything else
    manifest.json         hashes, written last
member-0.safetensors      parameters of a finished network, written once
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cfuica.errors import CfuicaError, ModelFileError
from cfuica.io import (
    UNSEALED,
    sealed_folder,
    sha256_of_file,
    sync_folder,
    synced_sha256,
    verify,
    write_tensors,
)

Tensors = dict[str, Tensor]


class TrainingInterrupted(CfuicaError):
    """Training was asked to stop, and a checkpoint was saved."""


class TrainingDiverged(CfuicaError):
    """The loss, the gradient or the parameters are not finite."""


@dataclass(frozen=True)
class Checkpoint:
    """A training between two minibatches: the state dicts of its parts, and finished networks.

    The tensors are those of the training itself, not copies: a checkpointer writes them before the
    next step.
    """

    # Of the network in training: "network", "optimizer", "schedule", "average" and "best", if any,
    # and "loop", the state of the training loop. Tensors and the types of JSON.
    states: dict[str, Any]
    finished: list[Tensors]  # Parameters of the networks before it.

    @property
    def member(self) -> int:
        """The number of the network in training, from 0."""
        return len(self.finished)

    @property
    def step(self) -> int:
        """The number of its minibatches so far."""
        return int(self.states["loop"]["step"])

    @property
    def history(self) -> list[dict[str, Any]]:
        """The records of all validations so far."""
        history: list[dict[str, Any]] = self.states["loop"]["history"]
        return history


def _divided(states: dict[str, Any], path: str = "") -> tuple[Tensors, dict[str, Any]]:
    """The tensors of nested dicts by their paths, and the same dicts without them."""
    tensors: Tensors = {}
    rest: dict[str, Any] = {}
    for key, value in states.items():
        if isinstance(value, Tensor):
            tensors[f"{path}{key}"] = value
        elif isinstance(value, dict):
            inner, rest[key] = _divided(value, f"{path}{key}{_LEVEL}")
            tensors |= inner
        else:
            rest[key] = value
    return tensors, rest


def _joined(tensors: Tensors, rest: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `_divided`."""
    for path, tensor in tensors.items():
        *levels, key = path.split(_LEVEL)
        place = rest
        for level in levels:
            place = place[level]
        place[key] = tensor
    return rest


_LEVEL = "/"  # between the levels of a path; parameter names have dots


class Checkpointer:
    """Decides when a training is saved and when it stops; this one never saves or stops."""

    def restored(self) -> Checkpoint | None:
        """The checkpoint to continue from."""
        return None

    def is_due(self) -> bool:
        """Whether it is time to save a checkpoint."""
        return False

    def is_stopping(self) -> bool:
        """Whether training is to be saved and interrupted."""
        return False

    def save(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint."""


_PREFIX = "checkpoint-"


class CheckpointFolder:
    """The checkpoints of one run, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._finished_sha256: dict[int, str] = {}

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint beside the last one, and only then remove that."""
        earlier = self._paths()
        number = _number(earlier[-1]) + 1 if earlier else 1
        hashes = [self._write_member(*each) for each in enumerate(checkpoint.finished)]
        with sealed_folder(self.folder / f"{_PREFIX}{number:06}") as work:
            tensors, rest = _divided(checkpoint.states)
            write_tensors(tensors, work / "tensors.safetensors")
            rest["finished_sha256"] = hashes
            (work / "state.json").write_text(json.dumps(rest) + "\n", encoding="utf-8")
        for path in earlier:
            shutil.rmtree(path, ignore_errors=True)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; None if none was ever written."""
        damage: ModelFileError | None = None
        for path in reversed(self._paths()):
            try:
                return self._read(path)
            except ModelFileError as error:
                damage = damage or error
        if damage is not None:
            raise damage
        return None

    def exist(self) -> bool:
        """Whether there is one to resume from."""
        return bool(self._paths())

    def clean(self) -> None:
        """Remove the half-written files of a killed process."""
        for path in self.folder.glob(f"{UNSEALED}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob(f"{_PREFIX}[0-9]*"), key=_number)

    def _read(self, path: Path) -> Checkpoint:
        verify(path)
        rest = json.loads((path / "state.json").read_text("utf-8"))
        hashes = rest.pop("finished_sha256")
        finished = [self._read_member(*each) for each in enumerate(hashes)]
        return Checkpoint(_joined(_load(path / "tensors.safetensors"), rest), finished)

    def _member(self, number: int) -> Path:
        return self.folder / f"member-{number}.safetensors"

    def _write_member(self, number: int, tensors: Tensors) -> str:
        """The hash of a finished network's file, which is written the first time only.

        A file of an earlier process is written again: the network may have been trained again with
        other settings, from a checkpoint before its end.
        """
        if number not in self._finished_sha256:
            path = self._member(number)
            work = path.with_name(f"{UNSEALED}{path.name}")
            write_tensors(tensors, work)
            sha256 = synced_sha256(work)
            os.replace(work, path)
            sync_folder(self.folder)
            self._finished_sha256[number] = sha256
        return self._finished_sha256[number]

    def _read_member(self, number: int, sha256: str) -> Tensors:
        path = self._member(number)
        if not path.is_file() or sha256_of_file(path) != sha256:
            raise ModelFileError(f"{path} is missing or damaged; train again.")
        return _load(path)


def _number(path: Path) -> int:
    digits = path.name.removeprefix(_PREFIX)
    return int(digits) if digits.isdecimal() else 0


def _load(path: Path) -> Tensors:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}); train again.") from None
