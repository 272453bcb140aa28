"""Which behaviours the protocols of leave-one-out test, that differ where times are equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfuica.data.table import BehaviourTable

FULL, PAPER, NCF, DATE = "full", "paper", "ncf", "date"
LEAVE_ONE_OUT = (FULL, PAPER, NCF)
"""The protocols of leave-one-out: `test.parquet` has a column of each that a run can answer."""

SPLIT_OF = {**dict.fromkeys(LEAVE_ONE_OUT, "leave-one-out"), DATE: "date"}
"""Protocol to the split whose test part it asks about."""

Rows = NDArray[np.int64]


def other_test_rows(table: BehaviourTable) -> dict[str, Rows]:
    """Protocol to the rows that it tests, for those beside `full` that the table allows.

    `paper` needs times, and `ncf` NCF's files and the data that they are of.
    """
    if "timestamp" not in table.frame.columns:
        return {}
    # Imported here: a run for ratings compiles no kernel to be split.
    from cfuica.data.ncf import find_ncf

    rows = {PAPER: paper_rows(table)}
    ncf = find_ncf()
    ncf_rows = None if ncf is None else ncf.rows_in(table)
    return rows if ncf_rows is None else {**rows, NCF: ncf_rows}


def paper_rows(table: BehaviourTable) -> Rows:
    """The last behaviour of each user by the argsort that the paper's authors had, ascending.

    See `kernels.introsort`: among equal times it is not the last in file order.
    """
    from cfuica.kernels.introsort import last_of_each
    from cfuica.kernels.threads import run_rows

    users = table.users.encode(table.frame["user"])
    in_file_order = np.argsort(users, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(users))]).astype(np.int64)
    times = table.frame["timestamp"].to_numpy()[in_file_order]
    last = np.empty(offsets.size - 1, np.int64)
    run_rows(last_of_each, last.size, offsets, times, last, work=offsets)
    return np.sort(in_file_order[last])
