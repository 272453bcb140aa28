"""An explanation as people read it in a terminal."""

from __future__ import annotations

from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cfuica.runs.tables import plain, titled

_BAR = 20  # characters of a probability of 1


def in_terminal(explanation: Any, n: int) -> Group:
    """What is expected, what of the history changed it most (n rows), and what the parts did.

    Of a rating, or of a score that ranks, which has no distribution and no raters by rating.
    """
    history = explanation.history
    shown: list[RenderableType] = [_headline(explanation)]
    if hasattr(explanation, "distribution"):
        shown.append(_distribution(explanation.distribution))
    if history.height:
        of_all = f"{n:,} of {history.height:,}" if n < history.height else f"{history.height:,}"
        shown.append(_changes(history.head(n), f"History: the largest changes ({of_all})"))
    else:
        shown.append(Text("There is no history to go by."))
    withheld = pl.col("behaviours").is_null()
    parts = explanation.parts.filter(~withheld)
    if parts.height:
        shown.append(_changes(parts, "Each part taken out whole"))
    untold = explanation.parts.filter(withheld)["part"]
    shown += [Text(f"Nothing is told of {part}: {explanation.too_few}.") for part in untold]
    if hasattr(explanation, "raters") and explanation.raters.height:
        shown.append(_changes(explanation.raters, "Others on this item, by their rating"))
    return Group(*shown)


def _headline(explanation: Any) -> Text:
    item = f"item {explanation.item}"
    if explanation.title:
        item += f" ({explanation.title})"
    whom = "this history" if explanation.user is None else f"user {explanation.user}"
    is_rating = hasattr(explanation, "expected")
    value = explanation.expected if is_rating else explanation.score
    return Text.assemble(
        "Expected rating " if is_rating else "Score ",
        (f"{value:.2f}", "bold"),
        " of ",
        plain(item),
        " for ",
        plain(whom),
        ".",
    )


def _distribution(distribution: pl.DataFrame) -> Table:
    table = Table(title="Predicted distribution", title_justify="left")
    table.add_column("rating", justify="right")
    table.add_column("")
    table.add_column("probability", justify="right")
    for rating, probability in distribution.select("rating", "probability").iter_rows():
        table.add_row(plain(rating, "g"), "█" * round(_BAR * probability), f"{probability:.1%}")
    return table


def _changes(frame: pl.DataFrame, title: str) -> Group:
    """Without titles where there are none."""
    if "title" in frame.columns and frame["title"].null_count() == frame.height:
        frame = frame.drop("title")
    return titled(title, frame)
