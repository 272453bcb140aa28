"""Frames come back in the library they came from."""

from __future__ import annotations

from typing import Any

import polars as pl


def like(given: Any, result: pl.DataFrame, *, same_rows: bool = False) -> Any:
    """The result as a frame of the library that `given`, a frame or a column, is of.

    polars, pandas and pyarrow give their own kind (a pyarrow batch gives a table), and so does a
    class that is made by `from_arrow`; everything else gives polars. With `same_rows` the rows of
    the result are those of `given`, and a pandas index is kept: a column of the result that is put
    beside the given ones must find its rows.
    """
    library = type(given).__module__.partition(".")[0]
    if library == "polars":
        return result
    if library == "pandas":
        frame = result.to_pandas()
        return frame.set_axis(given.index) if same_rows else frame
    if library == "pyarrow":
        return result.to_arrow()
    if hasattr(given, "__arrow_c_stream__") and hasattr(type(given), "from_arrow"):
        return type(given).from_arrow(result.to_arrow())
    return result
