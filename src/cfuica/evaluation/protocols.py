"""The ranking protocols: the test items of each user, and the candidates they are ranked among.

`full`   the last interaction in time, of equal times the last in the file; all unseen items
`ncf`    NCF's own test items and 99 negatives (`data.ncf`); MovieLens 1M only
`paper`  the last by the argsort that the authors had (`ops.introsort`); 100 sampled negatives of
         all item ids, mean of 10 draws
`date`   all interactions after a day, each user's together; all unseen items
`random` all interactions of a random fold, `given` those of a test file; the same
`users`  the last fifth of the interactions of each held-out user; the same

Metrics of different protocols cannot be compared. The model is conditioned on everything but the
test items of the protocol: also on interactions that only other protocols test. `RunVocabulary` has
the ids of a run and its train and validation interactions, without the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.matrix import Csr
from cfuica.data.movielens import find_ncf, where_ncf_is_looked_for
from cfuica.data.splits import DATE, FULL, GIVEN, NCF, PAPER, RANDOM, SPLIT_OF, hashes
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError, ModelFileError, SettingsError
from cfuica.io import read_parquet
from cfuica.metrics.ranking_metrics import RankingTest
from cfuica.ops import sampling
from cfuica.ops.runtime import run_rows
from cfuica.run_folder import RunFolder

if TYPE_CHECKING:
    from cfuica.models.recommender import Recommender


@dataclass(frozen=True, eq=False)
class RunVocabulary:
    """The vocabularies of a run and the interactions of its train and validation sets."""

    users: Vocabulary
    items: Vocabulary
    seen: Csr  # A row per user: the items of the training and validation sets.

    @classmethod
    def of_model(cls, model: Recommender) -> RunVocabulary:
        """From a loaded model."""
        return cls(model.users, model.items, model.seen)

    @classmethod
    def of_run(cls, folder: RunFolder) -> RunVocabulary:
        """From the model folder of a run, without loading the parameters."""
        try:
            users, items = (
                Vocabulary.from_ids(read_parquet(folder.model / f"{role}s.parquet")[role])
                for role in ("user", "item")
            )
            interacted = read_parquet(folder.model / "interactions.parquet")
            rows, indices = interacted["user"].to_numpy(), interacted["item"].to_numpy()
            _check_indices(rows, users.size)
            _check_indices(indices, items.size)
        except FileNotFoundError as error:
            raise ModelFileError(
                f"{folder.path} has no finished model ({Path(str(error.filename)).name} is "
                f"missing), whose users, items and interactions say what is to be ranked; finish "
                f"the training first."
            ) from None
        except (OSError, ValueError, TypeError, pl.exceptions.PolarsError):
            raise ModelFileError(
                f"The users, items or interactions in {folder.model} are damaged; copy the folder "
                f"again or train anew."
            ) from None
        return cls(users, items, Csr.of_pairs(rows, indices, users.size))


def _check_indices(index: np.ndarray, size: int) -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        raise ValueError(f"there is an index outside of 0..{size - 1}")


PROTOCOLS = tuple(SPLIT_OF)
PAPER_DRAWS, PAPER_NEGATIVES = 10, 100
# The draws are part of the protocol, so their seed is no option.
_SEED, _PURPOSE = 0, 100


def protocol_of(folder: RunFolder, protocol: str | None) -> str:
    """The protocol to evaluate a run by: the given one, or the default of the run's split.

    `full` is the default too: the test set among all unseen items, whatever the split.
    """
    split = folder.read_record().get("split")
    kind = split.get("kind") if isinstance(split, dict) else None
    if protocol is None or protocol == FULL:
        for name, of_split in SPLIT_OF.items():
            if of_split == kind:
                return name
        raise SettingsError(
            f"The run {folder.path} was trained with --split {kind}, which has no test set; name "
            f"one with --test FILE, or train again with another split."
        )
    if protocol not in PROTOCOLS:
        raise SettingsError(
            f"--protocol {protocol} is not known; the protocols are {', '.join(PROTOCOLS[:-1])} "
            f"and {PROTOCOLS[-1]}."
        )
    if kind != SPLIT_OF[protocol]:
        fitting = [name for name, split in SPLIT_OF.items() if split == kind]
        remedy = f"evaluate by {' or '.join(fitting)}, or train" if fitting else "train"
        raise SettingsError(
            f"--protocol {protocol} tests runs with --split {SPLIT_OF[protocol]}, but "
            f"{folder.path} has --split {kind}; {remedy} again with the other split."
        )
    return protocol


def ranking_test_for(
    protocol: str, folder: RunFolder, run_vocabulary: RunVocabulary
) -> tuple[RankingTest, Interactions | None]:
    """(the test, interactions to condition on beside the train and validation sets)."""
    protocol = protocol_of(folder, protocol)
    if not folder.test.is_file():
        raise DataError(
            f"{folder.path} has no test set (no test.parquet), so there is nothing to rank; train "
            f"again with --split {SPLIT_OF[protocol]}."
        )
    test = folder.read_test()
    tested, others = _divided(protocol, folder, test)
    users, items = _indices(run_vocabulary, tested)
    users_u = np.unique(users)
    relevant = Csr.of_pairs(np.searchsorted(users_u, users), items, users_u.size)
    if protocol == NCF:
        ranking_test = _ncf_test(users_u, relevant, run_vocabulary)
    else:
        extra = Csr.of_pairs(*_indices(run_vocabulary, others), run_vocabulary.users.size)
        seen = run_vocabulary.seen.union(extra) if others.height else run_vocabulary.seen
        if protocol == PAPER:
            interacted = seen.take(users_u).union(relevant)
            drawn_duc = sampled_negatives(
                interacted, users_u, run_vocabulary.users.size, run_vocabulary.items.size
            )
            ranking_test = RankingTest.among(protocol, users_u, relevant, drawn_duc)
        else:
            catalogue_m = np.zeros(run_vocabulary.items.size, np.bool_)
            # An item without any interaction cannot be a test item.
            catalogue_m[seen.indices] = catalogue_m[relevant.indices] = True
            ranking_test = RankingTest.among_unseen(
                protocol, users_u, relevant, seen=seen.take(users_u), catalogue_m=catalogue_m
            )
    if others.is_empty():
        return ranking_test, None
    roles = [role for role in ("user", "item", "rating", "timestamp") if role in others.columns]
    return ranking_test, Interactions(others.select(roles), source=str(folder.test))


def sampled_negatives(
    interacted: Csr, users_u: NDArray[np.int32], n_users: int, n_items: int
) -> NDArray[np.int32]:
    """(D, U, C) negatives of each user: random items without an interaction (U rows).

    They depend on the user's index and interactions, not on the other users.
    """
    keys_nd = hashes(n_users * PAPER_DRAWS, _SEED, _PURPOSE).reshape(-1, PAPER_DRAWS)
    drawn_udc = np.empty((users_u.size, PAPER_DRAWS, PAPER_NEGATIVES), np.int32)
    run_rows(
        sampling.draw,
        users_u.size,
        interacted.offsets,
        interacted.indices,
        n_items,
        keys_nd[users_u],
        drawn_udc,
    )
    return np.ascontiguousarray(drawn_udc.transpose(1, 0, 2))


def _divided(
    protocol: str, folder: RunFolder, test: Interactions
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(the interactions that the protocol tests, the rest of the test set)."""
    frame = test.frame
    if protocol in (DATE, RANDOM, GIVEN) or (protocol == FULL and FULL not in frame.columns):
        return frame, frame.clear()
    if frame.schema.get(protocol) != pl.Boolean:
        raise DataError(_why_not(protocol, folder, frame))
    is_tested = frame[protocol].fill_null(False)
    if not is_tested.any():
        raise DataError(f"{folder.test} has no interaction that --protocol {protocol} tests.")
    return frame.filter(is_tested), frame.filter(~is_tested)


def _why_not(protocol: str, folder: RunFolder, frame: pl.DataFrame) -> str:
    able = f"evaluate by {' or '.join(name for name in PROTOCOLS if name in frame.columns)}"
    if FULL not in frame.columns:
        return (
            f"The test items of --protocol {protocol} were not set aside when {folder.path} was "
            f"split, so it may have been trained on them; train again."
        )
    if protocol == PAPER:
        return (
            f"The data of {folder.path} has no times, but the test items of --protocol {PAPER} are "
            f"the last in time; {able}."
        )
    return (
        f"NCF's test items were not set aside when {folder.path} was split: --protocol {NCF} needs "
        f"MovieLens 1M with its times, and {where_ncf_is_looked_for()}, before training; {able}, "
        f"or put the files there and train again."
    )


def _ncf_test(
    users_u: NDArray[np.int32], relevant: Csr, run_vocabulary: RunVocabulary
) -> RankingTest:
    ncf = find_ncf()
    if ncf is None:
        raise DataError(
            f"--protocol {NCF} needs NCF's files, which were not found; put "
            f"{where_ncf_is_looked_for()}."
        )
    # The row in NCF's files of each user of the run; one may have been forgotten since.
    row_of_user = np.full(run_vocabulary.users.size, -1, np.int64)
    index = run_vocabulary.users.encode(pl.Series(ncf.users_u))
    row_of_user[index[index >= 0]] = np.flatnonzero(index >= 0)
    row_of_user = row_of_user[users_u]
    own, theirs = relevant.indices, run_vocabulary.items.encode(pl.Series(ncf.items_u))[row_of_user]
    if not (relevant.sizes == 1).all() or not np.array_equal(own, theirs):
        raise DataError(
            "NCF's files do not test what was set aside when this run was split, so they have "
            "changed since; put the old ones back, or train again."
        )
    negatives_uc = ncf.negatives()[row_of_user]
    others_uc = run_vocabulary.items.encode(pl.Series(negatives_uc.ravel())).reshape(
        negatives_uc.shape
    )
    if others_uc.min() < 0:
        raise DataError(
            f"NCF's files have the item {negatives_uc[others_uc < 0][0]}, which this run does not "
            f"know; train again on the whole of MovieLens 1M."
        )
    return RankingTest.among(NCF, users_u, relevant, others_uc[None])


def _indices(
    run_vocabulary: RunVocabulary, frame: pl.DataFrame
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Users and items of the rows, which must be known."""
    users = run_vocabulary.users.encode(frame["user"])
    items = run_vocabulary.items.encode(frame["item"])
    for role, index in (("user", users), ("item", items)):
        unknown = np.flatnonzero(index < 0)
        if unknown.size:
            raise DataError(
                f"The test set has the {role} {frame[role][int(unknown[0])]!r}, which the run's "
                f"model does not know, though its vocabulary has all users and items of the data; "
                f"they do not belong together: train again."
            )
    return users, items
