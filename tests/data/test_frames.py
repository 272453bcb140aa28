from __future__ import annotations

import subprocess
import sys
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfuica.data.frames import like
from cfuica.data.table import Interactions

RESULT = pl.DataFrame({"user": [1, 2], "item": ["a", "b"], "score": [4.5, 3.25]})
COLUMNS: dict[str, Any] = {"user": [1, 2], "item": ["a", "b"]}


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (pl.DataFrame(COLUMNS), pl.DataFrame),
        (pl.LazyFrame(COLUMNS), pl.DataFrame),
        (pl.Series("user", [1, 2]), pl.DataFrame),
        (pd.DataFrame(COLUMNS), pd.DataFrame),
        (pd.Series([1, 2], name="user"), pd.DataFrame),
        (pd.Index([1, 2]), pd.DataFrame),
        (pa.table(COLUMNS), pa.Table),
        (pa.RecordBatch.from_pydict(COLUMNS), pa.Table),
        (pa.array([1, 2]), pa.Table),
        (COLUMNS, pl.DataFrame),
        ([(1, "a")], pl.DataFrame),
        ("alice", pl.DataFrame),
        (None, pl.DataFrame),
        (Interactions.from_frame(COLUMNS), pl.DataFrame),
    ],
)
def test_a_frame_comes_back_in_the_library_it_came_from(source: Any, kind: type) -> None:
    result = like(source, RESULT)
    assert type(result) is kind
    assert pl.DataFrame(result).equals(RESULT)


class Foreign:
    """A frame of a library that we know nothing of, except that it speaks Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class Makeable(Foreign):
    @classmethod
    def from_arrow(cls, table: pa.Table) -> Makeable:
        return cls(table)


def test_a_frame_that_speaks_arrow_comes_back_as_its_kind_where_that_can_be_made() -> None:
    made = like(Makeable(pa.table(COLUMNS)), RESULT)
    assert type(made) is Makeable
    assert pl.DataFrame(made).equals(RESULT)
    assert like(Foreign(pa.table(COLUMNS)), RESULT) is RESULT


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(), st.floats(1, 5)), max_size=5)
)
def test_pandas_gets_integers_as_integers_and_text_as_text(
    rows: list[tuple[int, str, float]],
) -> None:
    schema = {"user": pl.Int64, "title": pl.String, "score": pl.Float64}
    frame = like(pd.DataFrame(), pl.DataFrame(rows, schema=schema, orient="row"))
    assert frame["user"].dtype == "int64"
    assert frame["user"].tolist() == [row[0] for row in rows]
    assert frame["title"].tolist() == [row[1] for row in rows]


def test_rows_that_are_the_given_ones_keep_their_pandas_index() -> None:
    """Else `pairs["prediction"] = model.predict(pairs)["prediction"]` would mix the rows up."""
    pairs = pd.DataFrame(COLUMNS, index=[20, 10])
    pairs["score"] = like(pairs, RESULT, same_rows=True)["score"]
    assert pairs["score"].tolist() == [4.5, 3.25]
    assert like(pairs, RESULT).index.tolist() == [0, 1]


def test_pandas_is_not_imported_for_others() -> None:
    program = (
        "import sys, polars as pl; from cfuica.data.frames import like; "
        "f = pl.DataFrame({'a': [1]}); "
        "like(f, f); like([1], f); sys.exit('pandas' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
