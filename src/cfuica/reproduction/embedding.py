"""The paper's last figure: do the vectors V^I of a trained model know the genres of the movies?

    python -m cfuica.reproduction.embedding RUN [--genres Children's,Documentary]

answers in JSON: a t-SNE map of the items that have exactly one of the two genres, and how often the
nearest neighbours of an item have its genre, beside what chance gives. The neighbours are those of
the full vectors, for a map in two dimensions may show what is not there.

Shape suffixes: n items, d dimensions of a vector (K labels times H^I hidden units), k neighbours,
r resamples or permutations.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.metrics.intervals import intervals

if TYPE_CHECKING:
    from cfuica.artifact import Artifact
    from cfuica.data.matrix import InteractionMatrix

GENRES = ("Children's", "Documentary")
NEIGHBOURS, PERMUTATIONS = 10, 1000


def require_tsne() -> type[Any]:
    """scikit-learn's t-SNE, or an error that says how to get it."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise SettingsError(
            f"The t-SNE figure needs the extra reproduce ({error}): pip install "
            f"'cfuica[reproduce]'."
        ) from None
    tsne: type[Any] = TSNE
    return tsne


def item_vectors(artifact: Artifact) -> NDArray[np.float32]:
    """(n, K * H^I) the rows V^I_{:,j,:} of all items, as the decoder uses them."""
    sides = artifact.networks["warm"].sides
    if "items" not in sides:
        raise DataError("The run has no items side, so it has no V^I; give one with both sides.")
    side = sides["items"]
    rows_n = side.table_rows(artifact.rows["items"])
    vectors_nd: NDArray[np.float32] = side.V.array[rows_n].reshape(len(rows_n), -1)
    return vectors_nd


def one_genre_each(artifact: Artifact, genres: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(n,) items, by index, with exactly one of the two genres and some training ratings; (n,)
    whether it is the second."""
    table = artifact.item_metadata
    if table is None or not isinstance(table.schema.get("genres"), pl.List):
        raise DataError("The run knows no genres of its items; train on MovieLens.")
    first_m, second_m = (
        table["genres"].list.contains(genre).fill_null(False).to_numpy() for genre in genres
    )
    matrix = cast("InteractionMatrix", artifact.interactions)
    index_n = np.flatnonzero((first_m ^ second_m) & (matrix.by_item.sizes > 0))
    is_second_n = second_m[index_n]
    if min(is_second_n.sum(), (~is_second_n).sum()) < 2:
        raise DataError(
            f"The run has hardly any items of the genres {' and '.join(genres)}; give two of "
            f"{', '.join(sorted(set(table['genres'].explode().drop_nulls())))}."
        )
    return index_n, is_second_n


def agreement(vectors_nd: np.ndarray, is_second_n: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """The mean share of an item's nearest neighbours with its genre, with a 95% interval over
    items; and the same of permuted genres."""
    squares_n = np.einsum("nd,nd->n", vectors_nd, vectors_nd)
    distance_nn = squares_n[:, None] + squares_n - 2 * vectors_nd @ vectors_nd.T
    np.fill_diagonal(distance_nn, np.inf)
    k = min(NEIGHBOURS, len(vectors_nd) - 1)
    neighbours_nk = np.argsort(distance_nn, axis=1, kind="stable")[:, :k]

    def shares(genre_n: np.ndarray) -> NDArray[np.float64]:
        return np.asarray((genre_n[neighbours_nk] == genre_n[:, None]).mean(1))

    rng = np.random.Generator(np.random.PCG64(seed))
    chance_r = [shares(rng.permutation(is_second_n)).mean() for _ in range(PERMUTATIONS)]
    found = intervals({"agreement": shares(is_second_n)})["agreement"]
    low, high = np.quantile(chance_r, [0.025, 0.975])
    as_high = 1 + sum(each >= found.value for each in chance_r)
    return {
        "neighbours": k,
        "agreement": found.value,
        "low": found.low,
        "high": found.high,
        "chance": float(np.mean(chance_r)),
        "chance_low": float(low),
        "chance_high": float(high),
        "p": float(as_high / (1 + PERMUTATIONS)),
    }


def embed(run: Path, genres: Sequence[str] = GENRES, seed: int = 0) -> dict[str, Any]:
    """The agreement, and the map: a list of [x, y] for each genre."""
    tsne = require_tsne()
    from cfuica.models.recommender import load

    model: Any = load(run)
    index_n, is_second_n = one_genre_each(model.artifact, genres)
    vectors_nd = item_vectors(model.artifact)[index_n].astype(np.float64)
    perplexity = min(30.0, (len(index_n) - 1) / 3)
    map_n2 = tsne(perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors_nd)
    points = {
        genre: np.round(map_n2[is_second_n == second].astype(float), 3).tolist()
        for genre, second in zip(genres, (False, True), strict=True)
    }
    return {**agreement(vectors_nd, is_second_n, seed), "points": points}


def main() -> None:
    """Answer on standard output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("--genres", default=",".join(GENRES))
    given = parser.parse_args()
    try:
        found = embed(given.run, given.genres.split(","))
    except CfuicaError as error:
        sys.exit(f"cfuica: {error}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
