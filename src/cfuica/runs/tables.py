"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

import polars as pl
from rich.markup import escape
from rich.table import Table


def recommendations(top: pl.DataFrame, title: str) -> Table:
    """Rank, title or id, expected rating."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("", justify="right")
    table.add_column("item")
    if "title" in top.columns:
        table.add_column("title")
    table.add_column("expected rating", justify="right")
    for row in top.iter_rows(named=True):
        cells = [str(row["rank"]), escape(str(row["item"]))]
        if "title" in top.columns:
            cells.append(escape(str(row["title"] or "")))
        table.add_row(*cells, f"{row['score']:.2f}")
    return table


def step_bench(result: dict[str, Any]) -> Table:
    """Parts of a minibatch, then the whole beside the dense forms."""
    table = Table(title="One minibatch, everything included", title_justify="left")
    table.add_column("part")
    table.add_column("ms", justify="right")
    table.add_column("share of memory bandwidth", justify="right")
    for part, seconds in result["parts"].items():
        share = result["bandwidth_share"].get(part)
        table.add_row(part, f"{seconds * 1e3:.1f}", "" if share is None else f"{share:.0%}")
    table.add_section()
    table.add_row("the whole minibatch (median)", f"{result['median_s'] * 1e3:.1f}", "")
    for name, key, ratio in (
        ("dense, as the authors wrote it", "dense_median_s", "speedup"),
        ("dense, at its best", "dense_best_median_s", "speedup_best"),
    ):
        table.add_row(name, f"{result[key] * 1e3:.1f}", f"ours is {result[ratio]:.1f} x faster")
    return table
