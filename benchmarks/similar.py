"""Which vectors say best what is alike: neighbours by each, judged by ratings that were held out.

    .venv/bin/python benchmarks/similar.py RUN [--neighbours 10]

RUN is the folder of a training on a random split with validation. Everyone is encoded from the
training set; the 10 nearest neighbours by each kind of vector are then judged by

    explained   the share of the variance of the validation ratings, less user and item biases, that
                the neighbours' own such residuals in the training set explain;
    covered     the share of validation ratings for which there is a neighbour to ask;
    common      the mean Jaccard index of the users (or items) that two neighbours share;
    support     the median number of ratings of a neighbour over that of all (1: popularity does not
                matter), and `most`, the share of lists that the most frequent neighbour is in;
    genre       the share of neighbouring items that have a genre in common.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import cfuica
from cfuica.baselines.means import UserItemBias
from cfuica.data.datasets import resolve
from cfuica.data.splits import Split
from cfuica.live.live_state import LiveState
from cfuica.ops.tables import SIDES

MIN_SUPPORT = 5


def main() -> None:
    """A line for each axis and kind of vector."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--neighbours", type=int, default=10)
    given = parser.parse_args()
    warm = cfuica.load(given.run).artifact
    card = json.loads((given.run / "run.json").read_text(encoding="utf-8"))
    table = resolve(card["data"]["source"])
    asked = {key: card["split"][key] for key in ("folds", "fold", "valid", "seed")}
    split = Split.random(table.n, **asked)
    if split.sha256() != card["split"]["sha256"]:
        raise SystemExit(f"The data of {given.run} are not those it was trained on.")
    maps = {"users": warm.users, "items": warm.items, "scale": warm.scale}
    train = table.take(split.train).matrix(**maps)
    valid = table.take(split.valid).rated_pairs(**maps)
    state = LiveState.of(warm.networks["warm"], train, warm.rows)

    users, items, labels = train.triplets()
    ratings = warm.scale.values_array()[labels]
    bias = UserItemBias().fit({"user": users, "item": items, "rating": ratings})

    def biases(users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        return bias.predict({"user": users_p, "item": items_p})["prediction"].to_numpy()

    residual_ui = np.zeros((train.n_users, train.n_items), np.float32)
    residual_ui[users, items] = ratings - biases(users, items)
    rated_ui = np.zeros(residual_ui.shape, np.bool_)
    rated_ui[users, items] = True
    held_out_p = valid.ratings_p - biases(valid.users_p, valid.items_p)
    genres = None
    if warm.item_metadata is not None and "genres" in warm.item_metadata.columns:
        genres = [set(own or ()) for own in warm.item_metadata["genres"].to_list()]

    for axis in SIDES:
        turned = (lambda array: array) if axis == "users" else np.transpose
        own_p, other_p = valid.users_p, valid.items_p
        if axis == "items":
            own_p, other_p = other_p, own_p
        support = state.support(axis)
        for name, vectors in kinds(state, axis).items():
            nearest = neighbours(vectors, support, given.neighbours)
            asked_pn = nearest[own_p]
            is_rated_pn = turned(rated_ui)[asked_pn, other_p[:, None]] & (asked_pn >= 0)
            residual_pn = turned(residual_ui)[asked_pn, other_p[:, None]] * is_rated_pn
            # Shrunk towards 0 where few neighbours have a rating.
            says_p = residual_pn.sum(1) / (is_rated_pn.sum(1) + 2)
            grad = (says_p @ held_out_p) / (says_p @ says_p)
            left = ((held_out_p - grad * says_p) ** 2).sum() / (held_out_p**2).sum()
            listed = nearest[nearest[:, 0] >= 0]
            typical = np.median(support[support >= MIN_SUPPORT])
            line = (
                f"{axis} {name:24} explained {1 - left:6.2%}"
                f"  covered {is_rated_pn.any(1).mean():.0%}"
                f"  common {common(turned(rated_ui), nearest):.3f}"
                f"  support {np.median(support[listed]) / typical:.2f}"
                f"  most {np.bincount(listed.ravel()).max() / len(listed):.1%}"
            )
            if axis == "items" and genres is not None:
                shared = [
                    bool(genres[item] & genres[other])
                    for item in np.flatnonzero(nearest[:, 0] >= 0)
                    for other in nearest[item]
                ]
                line += f"  genre {np.mean(shared):.1%}"
            print(line, flush=True)


def kinds(state: LiveState, axis: str) -> dict[str, np.ndarray]:
    """Vectors of everyone on an axis, by name; those of `hidden` are the ones in use."""
    encoder = "items" if axis == "users" else "users"
    own = state.network.sides[axis]
    table_nkh, decoder_nkh = (table.array[state.rows(axis)] for table in (own.W, own.V))
    size, labels = table_nkh.shape[:2]
    hidden = state.hidden(encoder)
    grad_k = np.arange(labels, dtype=np.float32) - (labels - 1) / 2

    def by_label(table_nkh: np.ndarray) -> np.ndarray:
        return (table_nkh - table_nkh.mean(1, keepdims=True)).reshape(size, -1)

    def centred(vectors: np.ndarray) -> np.ndarray:
        return vectors - vectors[state.support(axis) > 0].mean(0)

    return {
        "random": np.random.default_rng(0).normal(size=(size, 64)).astype(np.float32),
        "hidden, not centred": hidden,
        "hidden": centred(hidden),
        "W, all labels": centred(table_nkh.reshape(size, -1)),
        "W, mean over labels": centred(table_nkh.mean(1)),
        "W, differences of labels": centred(by_label(table_nkh)),
        "W, gradient over labels": centred(np.tensordot(table_nkh, grad_k, (1, 0))),
        "V, differences of labels": centred(by_label(decoder_nkh)),
    }


def neighbours(vectors: np.ndarray, support: np.ndarray, n: int) -> np.ndarray:
    """(m, n) those of highest cosine among the ones with enough ratings; -1 for the others."""
    indices = np.flatnonzero(support >= MIN_SUPPORT)
    unit = vectors[indices] / np.linalg.norm(vectors[indices], axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.full((len(support), n), -1)
    nearest[indices] = indices[np.argpartition(-cosines, n, axis=1)[:, :n]]
    return nearest


def common(rated: np.ndarray, nearest: np.ndarray) -> float:
    """The mean Jaccard index of a sample of members and their neighbours."""
    indices = np.flatnonzero(nearest[:, 0] >= 0)
    sample = np.random.default_rng(0).permutation(indices)[:500]
    both = [(rated[member] & rated[nearest[member]]).sum(1) for member in sample]
    either = [(rated[member] | rated[nearest[member]]).sum(1) for member in sample]
    return float(np.mean(np.concatenate(both) / np.concatenate(either)))


if __name__ == "__main__":
    main()
