"""Clusters of users, or of items, that share rows of W and V, and the nearest one of a new user.

In the paper's Section "Netflix" the users of a cluster share columns of W^U and V^U. A user that
training did not see joins the cluster whose members the network encodes most like that user: the
hidden vectors of the items side describe users by their histories, and those of the users side
describe items. `Centroids` compares them in the directions in which clusters differ most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Directions that centroids are compared in; the search then takes less than a millisecond for
# 20,000 clusters.
DIRECTIONS = 64


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The rows of W and V of n users, or items, some of whom share them.

    row_of (n + C + 1) int32 is the row of W and V of each row of b: those of the n users, then one
    of each of C clusters, for new users that join it, then that of all other cold-start users,
    whose row of W and V is the last one too.
    """

    row_of: np.ndarray
    n_clusters: int = 0

    @property
    def n_rows(self) -> int:
        """The rows of b."""
        return len(self.row_of)

    @property
    def n_table_rows(self) -> int:
        """The rows of W and V."""
        return int(self.row_of[-1]) + 1

    def entries(self, entries: np.ndarray, n_labels: int) -> np.ndarray:
        """Entries (row * K + label) of a table with a row for everyone as entries of W."""
        entry_of = self.row_of[:, None] * np.int32(n_labels) + np.arange(n_labels, dtype=np.int32)
        in_table: np.ndarray = entry_of.reshape(-1)[entries]
        return in_table


@dataclass(frozen=True, eq=False)
class Centroids:
    """The mean hidden vector of each of C clusters, in D directions; row c is that of cluster c.

    A cluster without members has NaN, and is nobody's nearest one."""

    directions_hd: np.ndarray  # (H, D) float32
    points_cd: np.ndarray  # (C, D) float32

    @classmethod
    def of(cls, means_ch: np.ndarray) -> Centroids:
        """From the mean hidden vectors (C, H) of all clusters, NaN for those without members."""
        present = means_ch[~np.isnan(means_ch[:, 0])]
        spread_hh = np.cov(present, rowvar=False) if len(present) > 1 else np.eye(means_ch.shape[1])
        _, directions = np.linalg.eigh(np.atleast_2d(spread_hh))
        directions_hd = np.ascontiguousarray(directions[:, ::-1][:, :DIRECTIONS], np.float32)
        return cls(directions_hd, (means_ch @ directions_hd).astype(np.float32))

    def nearest(self, hidden_h: np.ndarray) -> int:
        """The cluster nearest to a hidden vector (H,)."""
        # Not a product of matrices, whose last bits depend on how many rows it has.
        point_d = (hidden_h[:, None] * self.directions_hd).sum(0)
        distances_c = np.square(self.points_cd - point_d).sum(1)
        return int(np.nanargmin(distances_c))
