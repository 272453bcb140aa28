"""What a system of recommendation is asked, and what it must be able to answer.

Shape suffixes: u users who are asked about, d draws of candidates, c candidates of a user, m all
items, b users of a block.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cfuica.errors import DataError
from cfuica.evaluation.rows import ItemRows


class Scorer(Protocol):
    """Anything that scores items for users, by their indices; a higher score is better."""

    def scores(self, users_b: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """(B, M) of all items."""
        ...

    def candidate_scores(
        self, users_b: npt.NDArray[np.int32], items_bc: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float32]:
        """(B, C) of these items of each user."""
        ...


@dataclass(frozen=True, eq=False)
class Questions:
    """Which items are best for each of U users: among candidates, or among all that are unseen."""

    protocol: str
    users_u: npt.NDArray[np.int32]
    relevant: ItemRows
    """U rows: what each user in fact did; at least one item each."""
    candidates_duc: npt.NDArray[np.int32] | None = None
    """(D, U, C) what is ranked in each of D draws: first the relevant items in the order of
    `relevant`, then items that count as irrelevant, then -1 where there are fewer. None: every
    item of the catalogue that is not seen."""
    seen: ItemRows | None = None
    """U rows: what is not ranked because the user is known to have done it; no relevant item is
    among it. For questions without candidates."""
    catalogue_m: npt.NDArray[np.bool_] | None = None
    """(M,) which items may be recommended at all. For questions without candidates."""

    @classmethod
    def among_unseen(
        cls,
        protocol: str,
        users_u: npt.NDArray[np.int32],
        relevant: ItemRows,
        *,
        seen: ItemRows,
        catalogue_m: npt.NDArray[np.bool_],
    ) -> Questions:
        """Every item of the catalogue is a candidate that the user has not seen; a relevant item
        always is one."""
        _check(users_u, relevant)
        return cls(
            protocol, users_u, relevant, seen=seen.without(relevant), catalogue_m=catalogue_m
        )

    @classmethod
    def among(
        cls,
        protocol: str,
        users_u: npt.NDArray[np.int32],
        relevant: ItemRows,
        others_duc: npt.NDArray[np.int32],
    ) -> Questions:
        """The relevant items among others (D, U, C'), -1 behind the last where there are fewer.

        Another may equal a relevant one, as in NCF's files: it then has its score, and counts as
        any irrelevant candidate with that score does.
        """
        _check(users_u, relevant)
        draws, users, n_others = others_duc.shape
        if users != users_u.size:
            raise DataError(
                f"There are candidates for {users} users, but {users_u.size} are asked about; give "
                f"candidates to each."
            )
        sizes_u = relevant.sizes
        candidates_duc = np.full((draws, users, int(sizes_u.max()) + n_others), -1, np.int32)
        rows = relevant.row_of_member()
        places = np.arange(rows.size) - relevant.offsets[rows]
        candidates_duc[:, rows, places] = relevant.members
        behind_uc = sizes_u[:, None] + np.arange(n_others)
        candidates_duc[:, np.arange(users)[:, None], behind_uc] = others_duc
        return cls(protocol, users_u, relevant, candidates_duc)

    @property
    def n_users(self) -> int:
        """U."""
        return int(self.users_u.size)

    def first(self, n: int) -> Questions:
        """Those about the first n users."""
        rows = np.arange(min(n, self.n_users))
        return replace(
            self,
            users_u=self.users_u[rows],
            relevant=self.relevant.take(rows),
            candidates_duc=None if self.candidates_duc is None else self.candidates_duc[:, rows],
            seen=None if self.seen is None else self.seen.take(rows),
        )

    def sha256(self) -> str:
        """Hash of all of it: two systems with the same hash were asked the same."""
        digest = hashlib.sha256(self.protocol.encode())
        arrays: dict[str, npt.NDArray[Any] | None] = {
            "users": self.users_u,
            "relevant offsets": self.relevant.offsets,
            "relevant": self.relevant.members,
            "candidates": self.candidates_duc,
            "seen offsets": None if self.seen is None else self.seen.offsets,
            "seen": None if self.seen is None else self.seen.members,
            "catalogue": self.catalogue_m,
        }
        for name, array in arrays.items():
            if array is not None:
                digest.update(f"\n{name} {array.shape}\n".encode())
                digest.update(array.astype("<i4").tobytes())
        return digest.hexdigest()


def _check(users_u: npt.NDArray[np.int32], relevant: ItemRows) -> None:
    if users_u.size == 0:
        raise DataError("Nobody is asked about: there is no user with a behaviour to test on.")
    if relevant.n_rows != users_u.size or relevant.sizes.min() < 1:
        raise DataError(
            f"There are {relevant.n_rows} rows of relevant items for {users_u.size} users, and "
            f"each user needs at least one item; leave out who has none."
        )
