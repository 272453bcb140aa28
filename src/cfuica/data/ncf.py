"""NCF's published test set of MovieLens 1M: a test item and 99 negatives for each of 6,040 users.

He et al., Neural Collaborative Filtering (WWW 2017). The files have ids of their own: a user is
MovieLens's less 1, and items are numbered by their first appearance in ratings.dat, as listed in
`item_map.csv`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.datasets import find_folder, homes
from cfuica.data.table import Interactions
from cfuica.errors import DataError

FOLDER = "ml-1m-ncf"
RATINGS, NEGATIVES, ITEMS = "ml-1m.test.rating", "ml-1m.test.negative", "item_map.csv"


@dataclass(frozen=True, eq=False)
class NcfTest:
    """The test set in MovieLens's ids, one row per user."""

    users_u: NDArray[np.int64]
    items_u: NDArray[np.int64]
    times_u: NDArray[np.int64]  # (U,) the timestamp of the test interaction, in seconds
    folder: Path  # The folder of the files.

    def negatives(self) -> NDArray[np.int64]:
        """(U, 99) the negatives as published; 156 of them are their user's own test item.

        They are read on demand, because a split needs the test items alone.
        """
        movie_of_item = _movies(self.folder)
        pairs, negatives_uc = _negatives(self.folder / NEGATIVES)
        users_items = np.column_stack([self.users_u, self.items_u])
        ours = np.column_stack(
            [pairs[:, 0] + 1, _looked_up(movie_of_item, pairs[:, 1], self.folder)]
        )
        if not np.array_equal(ours, users_items):
            raise DataError(
                f"{self.folder / NEGATIVES} does not have the users and test items of "
                f"{self.folder / RATINGS} in their order; fetch both again."
            )
        return _looked_up(movie_of_item, negatives_uc, self.folder)

    def rows_in(self, table: Interactions) -> NDArray[np.int64] | None:
        """(U,) the row of each test interaction; None where the table is not MovieLens 1M.

        The table is MovieLens 1M if it has every test interaction with its timestamp.
        """
        frame = table.frame
        if not table.has_times or table.users.size < self.users_u.size:
            return None
        wanted = {
            "user": table.users.encode(pl.Series(self.users_u)),
            "item": table.item_ids.encode(pl.Series(self.items_u)),
            "timestamp": self.times_u,
        }
        there = {
            "user": table.users.encode(frame["user"]),
            "item": table.item_ids.encode(frame["item"]),
            "timestamp": frame["timestamp"],
        }
        found = pl.DataFrame(wanted).join(
            pl.DataFrame(there).with_row_index("row"), on=list(wanted), how="left"
        )
        if found.height != self.users_u.size or found["row"].null_count():
            return None
        return found["row"].cast(pl.Int64).to_numpy()


def find_ncf() -> NcfTest | None:
    """NCF's test set, if its files are in a folder of data sets."""
    folder = find_folder(FOLDER, RATINGS, NEGATIVES, ITEMS)
    return None if folder is None else read_ncf(folder)


def where_ncf_is_looked_for() -> str:
    """For messages: which files are looked for in which folders."""
    places = " or ".join(str(home / FOLDER) for home in homes())
    return f"{RATINGS}, {NEGATIVES} and {ITEMS} in {places}"


def read_ncf(folder: Path) -> NcfTest:
    """Read the test items from the folder of the files."""
    ratings = _integers(folder / RATINGS, "\t", 4, header=False)
    return NcfTest(
        users_u=ratings[:, 0] + 1,
        items_u=_looked_up(_movies(folder), ratings[:, 1], folder),
        times_u=ratings[:, 3],
        folder=folder,
    )


def _movies(folder: Path) -> NDArray[np.int64]:
    """MovieLens's id of each of NCF's items."""
    item_map = _integers(folder / ITEMS, ",", 2, header=True)
    if not np.array_equal(item_map[:, 0], np.arange(len(item_map))):
        raise DataError(
            f"{folder / ITEMS}: the first column is not 0, 1, 2, ...; fetch the file again."
        )
    return item_map[:, 1]


def _looked_up(
    movie_of_item: NDArray[np.int64], items: NDArray[np.int64], folder: Path
) -> NDArray[np.int64]:
    if items.min() < 0 or items.max() >= movie_of_item.size:
        raise DataError(
            f"{folder}: there is an item that {ITEMS} does not list, which goes from 0 to "
            f"{movie_of_item.size - 1}; fetch the files again."
        )
    return movie_of_item[items]


def _negatives(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """((U, 2) user and test item, (U, C) negatives) of lines such as `(0,25)<tab>1064<tab>174`."""
    try:
        # The brackets and the comma of the pair are the only other characters.
        plain = path.read_text("ascii").translate(str.maketrans(",", "\t", "()"))
        rows = [line.split("\t") for line in plain.splitlines()]
        numbers = np.array(rows, dtype=np.int64)
    except (OSError, ValueError) as error:
        raise DataError(_damaged(path, error)) from None
    if numbers.ndim != 2 or numbers.shape[1] < 3:
        raise DataError(_damaged(path, "its lines do not hold a pair and its negatives"))
    return numbers[:, :2], numbers[:, 2:]


def _integers(path: Path, separator: str, width: int, *, header: bool) -> NDArray[np.int64]:
    try:
        frame = pl.read_csv(path, separator=separator, has_header=header)
        numbers = frame.cast(pl.Int64).to_numpy()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(_damaged(path, error)) from None
    if numbers.shape[1] != width or np.isnan(numbers.astype(np.float64)).any():
        raise DataError(_damaged(path, f"{width} whole numbers in a line were expected"))
    return numbers


def _damaged(path: Path, why: object) -> str:
    reason = next(iter(str(why).splitlines()), type(why).__name__).rstrip(".:")
    return f"{path} is not as NCF published it ({reason}); fetch it again."
