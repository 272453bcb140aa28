"""Which users, and which items, share rows of W and V: the paper's Section "Netflix".

`shared_rows` decides it before training. Users in the same of `user_clusters` share a row; so do
users with fewer than `min_row_interactions` interactions, with their cluster, or all with one row.
Clusters are those of k-means on the factors of a biased matrix factorisation, and are cached.
`centroids` describes the clusters of a trained network, so that a new user can join the nearest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from cfuica.data.datasets import cache_folder
from cfuica.data.matrix import InteractionMatrix, RatedPairs
from cfuica.errors import SettingsError
from cfuica.io import write_bytes_atomically
from cfuica.model.network import Network
from cfuica.model.shared_rows import Centroids, SharedRows
from cfuica.ops import sampling
from cfuica.ops.tables import OTHER, SIDES, Bags, SideName
from cfuica.settings import RatingSettings
from cfuica.training.alternating_least_squares import factorise
from cfuica.training.checkpoint import Checkpointer, TrainingInterrupted
from cfuica.training.trainer import Callback

# Of the factorisation. A penalty counts in ratings: a row with far fewer has factors near 0.
_L2, _BIAS_L2 = 60.0, 3.0
_SWEEPS, _STEPS = 8, 3
_ITERATIONS = 12  # of k-means
# Entries that are encoded at a time for the centroids.
_ENTRIES = 1 << 22


def shared_rows(
    matrix: InteractionMatrix,
    values_k: np.ndarray,
    settings: RatingSettings,
    callback: Callback,
    checkpointer: Checkpointer | None = None,
    valid: RatedPairs | None = None,
) -> dict[SideName, SharedRows]:
    """The rows that users or items share, of the sides where some do.

    `valid` shows how good the factorisation is; nothing depends on it."""

    def stop() -> None:
        if checkpointer is not None and checkpointer.is_stopping():
            raise TrainingInterrupted("Training was stopped before its first step")

    wanted = {"users": settings.user_clusters, "items": settings.item_clusters}
    floor = settings.min_row_interactions
    shared: dict[SideName, SharedRows] = {}
    for name in SIDES:
        sizes, clusters = matrix.by(name).sizes, wanted[name]
        if not clusters and not floor:
            continue
        is_sharing = sizes < floor if floor else np.ones(len(sizes), np.bool_)
        members = np.flatnonzero(is_sharing)
        if not len(members):
            continue
        cluster_of = None
        if clusters:
            found = _clusters(matrix, values_k, settings, name, clusters, callback, stop, valid)
            _, cluster_of = np.unique(found[members], return_inverse=True)
        shared[name] = rows_with(len(sizes), members, cluster_of)
        own = len(sizes) - len(members)
        if cluster_of is not None:
            callback.note(
                f"{own:,} of {len(sizes):,} {name} have their own row; the others share those of "
                f"{shared[name].n_clusters:,} clusters."
            )
        else:
            callback.note(
                f"{own:,} of {len(sizes):,} {name} have their own row; the others, with fewer than "
                f"{floor:,} interactions, share one."
            )
    return shared


def rows_with(n: int, members: np.ndarray, cluster_of: np.ndarray | None) -> SharedRows:
    """Rows of n users or items, of whom `members` (A,) share: the row of their cluster (A,), or
    the last one."""
    n_own, n_clusters = n - len(members), 0
    if cluster_of is not None:
        n_clusters = int(cluster_of.max()) + 1
    row_of = np.empty(n + n_clusters + 1, np.int32)
    is_own = np.ones(n, np.bool_)
    is_own[members] = False
    row_of[:n][is_own] = np.arange(n_own)
    row_of[members] = n_own + (0 if cluster_of is None else cluster_of)
    row_of[n:] = n_own + np.arange(n_clusters + 1)
    return SharedRows(row_of, n_clusters)


def _clusters(
    matrix: InteractionMatrix,
    values_k: np.ndarray,
    settings: RatingSettings,
    side: SideName,
    clusters: int,
    callback: Callback,
    stop: Callable[[], None],
    valid: RatedPairs | None,
) -> np.ndarray:
    """(n,) the cluster of each user or item, from the cache where it has them."""
    key = hashlib.sha256(
        f"{matrix.sha256()} {values_k.tolist()} {side} {clusters} {settings.cluster_factors} "
        f"{settings.seed} {_L2} {_BIAS_L2} {_SWEEPS} {_STEPS} {_ITERATIONS}".encode()
    ).hexdigest()
    path = cache_folder() / "clusters" / f"{key}.i32"
    n = matrix.by(side).n_rows
    try:
        cached = np.fromfile(path, np.int32)
        if len(cached) == n and cached.min() >= 0 and cached.max() < clusters:
            callback.note(f"The clusters of the {side} are those of an earlier training.")
            return cached
    except OSError:
        pass

    def progress(share: float) -> None:
        callback.preparing(f"factorising for clusters of {side}", share)
        stop()

    factors = factorise(
        matrix.by_user,
        matrix.by_item,
        (values_k, values_k),
        factors=settings.cluster_factors,
        l2=_L2,
        bias_l2=_BIAS_L2,
        sweeps=_SWEEPS,
        steps=_STEPS,
        seed=settings.seed,
        progress=progress,
    )
    rmse, where = factors.rmse, "training"
    if valid is not None:
        low, high = values_k.min(), values_k.max()
        predicted_p = np.clip(factors.predict(valid.users_p, valid.items_p), low, high)
        rmse, where = float(np.sqrt(np.square(predicted_p - valid.ratings_p).mean())), "validation"
    callback.note(
        f"A factorisation of rank {settings.cluster_factors} for the clusters of {side}: RMSE "
        f"{rmse:.4f} on the {where} ratings."
    )
    vectors = (factors.users_nf if side == "users" else factors.items_nf)[:, 1:]
    found = _k_means(
        np.ascontiguousarray(vectors),
        clusters,
        settings.seed,
        lambda share: callback.preparing(f"clustering {side}", share),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomically(path, found.tobytes())
    except OSError:
        callback.note(f"The clusters were not cached: nothing can be written to {path.parent}.")
    return found


def require_faiss() -> Any:
    """The library faiss, or an error that says how to get it."""
    try:
        import faiss
    except ImportError:
        raise SettingsError(
            "Clusters are found by faiss, which is not installed; install it with  pip install "
            "'cfuica[clusters]'  or set user_clusters=0 and item_clusters=0."
        ) from None
    return faiss


def _k_means(
    vectors_nf: np.ndarray, clusters: int, seed: int, progress: Callable[[float], None]
) -> np.ndarray:
    """(n,) int32 the cluster of each vector."""
    if len(vectors_nf) <= clusters:
        return np.arange(len(vectors_nf), dtype=np.int32)
    faiss = require_faiss()
    k_means = faiss.Clustering(vectors_nf.shape[1], clusters)
    k_means.seed, k_means.niter = seed % 2**31, 1
    k_means.min_points_per_centroid, k_means.max_points_per_centroid = 1, 2**31 - 1
    index = faiss.IndexFlatL2(vectors_nf.shape[1])
    for iteration in range(_ITERATIONS):
        # The centroids of the last iteration are those that the next one starts from.
        k_means.train(vectors_nf, index)
        progress((iteration + 1) / (_ITERATIONS + 1))
    _, nearest_n1 = index.search(vectors_nf, 1)
    progress(1.0)
    nearest_n: np.ndarray = nearest_n1[:, 0].astype(np.int32)
    return nearest_n


@torch.no_grad()
def centroids(network: Network, matrix: InteractionMatrix) -> dict[SideName, Centroids]:
    """Of the sides with clusters: the mean hidden vector of each cluster's members."""
    found: dict[SideName, Centroids] = {}
    for name, side in network.sides.items():
        other = OTHER[name]
        if side.shared is None or not side.shared.n_clusters or other not in network.sides:
            continue
        rows, theirs = matrix.by(name), network.sides[other].shared
        first = side.shared.n_table_rows - 1 - side.shared.n_clusters
        cluster_n = side.shared.row_of[: rows.n_rows] - first
        members = np.flatnonzero((cluster_n >= 0) & (rows.sizes > 0)).astype(np.int32)
        sums_ch = np.zeros((side.shared.n_clusters, network.sides[other].n_hidden))
        edges = np.searchsorted(
            np.cumsum(rows.sizes[members]),
            np.arange(_ENTRIES, int(rows.sizes[members].sum()), _ENTRIES),
        )
        for part in np.split(members, edges):
            if not len(part):
                continue
            without = np.full(len(part), -1, np.int32)
            offsets, entries = sampling.whole_contexts(
                rows.offsets, rows.indices, rows.labels, part, without, matrix.n_labels
            )
            if theirs is not None:
                entries = theirs.entries(entries, matrix.n_labels)
            hidden_qh = network.encode_side(other, Bags(offsets, entries)).cpu().numpy()
            np.add.at(sums_ch, cluster_n[part], hidden_qh)
        counts_c = np.bincount(cluster_n[members], minlength=len(sums_ch))
        with np.errstate(invalid="ignore"):
            found[name] = Centroids.of(sums_ch / np.where(counts_c, counts_c, np.nan)[:, None])
    return found
