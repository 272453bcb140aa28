"""NCF's files, real and made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.movielens import FOLDER, find_ncf, read_ncf, where_ncf_is_looked_for
from cfuica.data.table import Interactions
from cfuica.errors import DataError
from tests.conftest import find_data


def write(folder: Path, **changes: str) -> Path:
    """Two users; NCF's items 0 to 4 are the movies 10, 30, 20, 50, 40."""
    files = {
        "ml-1m.test.rating": "0\t1\t5\t900\n1\t4\t3\t800\n",
        "ml-1m.test.negative": "(0,1)\t2\t3\n(1,4)\t0\t4\n",
        "item_map.csv": "ncf_item,ml1m_movieId\n0,10\n1,30\n2,20\n3,50\n4,40\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**files, **changes}.items():
        (folder / name).write_text(content)
    return folder


def test_ids_are_movielens_own(tmp_path):
    ncf = read_ncf(write(tmp_path))
    assert ncf.users_u.tolist() == [1, 2]
    assert ncf.items_u.tolist() == [30, 40]
    assert ncf.times_u.tolist() == [900, 800]
    assert ncf.negatives().tolist() == [[20, 50], [10, 40]]


TABLE = {"user": [1, 1, 2, 2], "item": [30, 10, 20, 40], "timestamp": [900, 1, 2, 800]}


def test_the_data_is_known_by_having_every_test_interaction_at_its_time(tmp_path):
    ncf = read_ncf(write(tmp_path))
    table = Interactions(pl.DataFrame(TABLE))
    rows = ncf.rows_in(table)
    assert rows is not None
    assert rows.tolist() == [0, 3]
    text = table.frame.with_columns(pl.col("user", "item").cast(pl.String))
    assert np.array_equal(ncf.rows_in(Interactions(text)), rows)
    for other in (
        {**TABLE, "timestamp": [900, 1, 2, 801]},
        {**TABLE, "item": [30, 10, 20, 41]},
        {**TABLE, "user": [1, 1, 1, 1]},
        {"user": TABLE["user"], "item": TABLE["item"]},
    ):
        assert ncf.rows_in(Interactions(pl.DataFrame(other))) is None


def test_the_files_are_found_where_other_data_is(tmp_path, monkeypatch):
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path))
    monkeypatch.setenv("CFUICA_CACHE", str(tmp_path / "cache"))
    assert find_ncf() is None
    assert str(tmp_path / FOLDER) in where_ncf_is_looked_for()
    write(tmp_path / "cache" / FOLDER)
    assert find_ncf() is not None
    (tmp_path / "cache" / FOLDER / "item_map.csv").unlink()
    assert find_ncf() is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ml-1m.test.rating": "0\t1\t5\n"}, "ml-1m.test.rating is not as NCF published it"),
        ({"ml-1m.test.rating": "0\tx\t5\t9\n"}, "ml-1m.test.rating is not as NCF published it"),
        ({"ml-1m.test.rating": ""}, "ml-1m.test.rating is not as NCF published it"),
        ({"ml-1m.test.negative": "(0,1)\t2\n(1,4)\n"}, "ml-1m.test.negative is not as NCF"),
        ({"ml-1m.test.negative": "(0,1)\n(1,4)\n"}, "do not hold a pair"),
        ({"ml-1m.test.negative": "(0,1)\t2\n(1,3)\t2\n"}, "does not have the users and test items"),
        ({"ml-1m.test.negative": "(0,1)\t9\n(1,4)\t2\n"}, "there is an item that item_map.csv"),
        ({"item_map.csv": "a,b\n1,10\n"}, "is not 0, 1, 2"),
    ],
)
def test_what_is_not_as_it_was_published_is_named(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        read_ncf(write(tmp_path, **changes)).negatives()


def test_the_published_files():
    ncf = read_ncf(find_data(FOLDER))
    negatives = ncf.negatives()
    assert negatives.shape == (6040, 99)
    assert ncf.users_u.tolist() == list(range(1, 6041))
    # Known of these files: negatives that are the test item itself.
    assert (negatives == ncf.items_u[:, None]).sum() == 156
