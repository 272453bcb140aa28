"""Who and what a run knows, without its parameters: ids, and what each user did in training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

from cfuica.data.ids import IdMap
from cfuica.disk import read_parquet
from cfuica.errors import ModelFileError
from cfuica.evaluation.rows import ItemRows
from cfuica.runs.folder import RunFolder

if TYPE_CHECKING:
    from cfuica.data.table import BehaviourTable
    from cfuica.evaluation.questions import Scorer


class Ranker(Protocol):
    """A model that ranks items, as far as an evaluation looks at it."""

    @property
    def users(self) -> IdMap: ...

    @property
    def items(self) -> IdMap: ...

    @property
    def seen(self) -> Any:
        """Compressed rows by user (`offsets`, `members`): what the model is conditioned on."""
        ...

    def scorer(self, extra: BehaviourTable | None) -> Scorer:
        """Scores given what is seen and these behaviours beside it."""
        ...


@dataclass(frozen=True, eq=False)
class Known:
    """The axes of a run and what its training and validation parts hold."""

    users: IdMap
    items: IdMap
    seen: ItemRows
    """A row per user: the items of the training and validation parts."""

    @classmethod
    def of_model(cls, model: Ranker) -> Known:
        """What a loaded model knows."""
        offsets, members = np.asarray(model.seen.offsets), np.asarray(model.seen.members)
        users = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
        return cls(model.users, model.items, ItemRows.of_pairs(users, members, model.users.size))

    @classmethod
    def of_run(cls, folder: RunFolder) -> Known:
        """What the model folder of a run tells without its parameters."""
        try:
            users, items = (
                IdMap.from_ids(read_parquet(folder.model / f"{role}s.parquet")[role])
                for role in ("user", "item")
            )
            done = read_parquet(folder.model / "behaviours.parquet")
            rows, members = done["user"].to_numpy(), done["item"].to_numpy()
            _check_indices(rows, users.size)
            _check_indices(members, items.size)
        except FileNotFoundError as error:
            raise ModelFileError(
                f"{folder.path} has no finished model ({Path(str(error.filename)).name} is "
                f"missing), whose users, items and behaviours say what is to be ranked; finish the "
                f"training first."
            ) from None
        except (OSError, ValueError, TypeError, pl.exceptions.PolarsError):
            raise ModelFileError(
                f"The users, items or behaviours in {folder.model} are damaged; copy the folder "
                f"again or train anew."
            ) from None
        return cls(users, items, ItemRows.of_pairs(rows, members, users.size))


def _check_indices(index: np.ndarray, size: int) -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        raise ValueError(f"there is an index outside of 0..{size - 1}")
