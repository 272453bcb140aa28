"""Reports as one HTML file of tables and charts, without scripts or external resources."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from cfuica.io import write_text_atomically


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns; columns of numbers are aligned to the right.

    ``highlight`` is the row to emphasise, e.g. ours.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    highlight: int | None = None


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    intro: str,
    tables: Sequence[Table],
    charts: Sequence[str],
    notes: Sequence[str] = (),
) -> None:
    """Write the page to ``path``, whole or not at all.

    Args:
        intro: plain text; an empty line starts a new paragraph.
        charts: SVG documents of :mod:`cfuica.reporting.charts`, put in as they are. All other text
            is escaped.
        notes: plain text, one remark each, listed at the end.
    """
    body = [f"<h1>{escape(title)}</h1>"]
    paragraphs = (part.strip() for part in re.split(r"\n\s*\n", intro))
    body += [f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs if paragraph]
    body += [_table(table) for table in tables]
    for chart in charts:
        if not chart.startswith("<svg"):
            # Charts are not escaped, so nothing else may come this way by mistake.
            raise ValueError(f"a chart must be an SVG document, not {chart[:40]!r}")
        body.append(f"<figure>\n{chart}\n</figure>")
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        body.append(f"<h2>Notes</h2>\n<ul>{items}</ul>")
    page = (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # Promised by construction, and enforced by the browser.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )
    write_text_atomically(path, page)


def _table(table: Table) -> str:
    for row in table.rows:
        if len(row) != len(table.columns):
            raise ValueError(
                f"table {table.title!r} has {len(table.columns)} columns and a row of {len(row)}"
            )
    right = [_is_numeric([row[c] for row in table.rows]) for c in range(len(table.columns))]

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if numeric else ''}>{escape(text)}</{tag}>"
            for text, numeric in zip(texts, right, strict=True)
        )

    rows = "\n".join(
        f"<tr{' class=highlight' if place == table.highlight else ''}>{cells('td', row)}</tr>"
        for place, row in enumerate(table.rows)
    )
    return (
        f"<h2>{escape(table.title)}</h2>\n"
        f'<div class="scroll"><table>\n<thead><tr>{cells("th", table.columns)}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _is_numeric(texts: Sequence[str]) -> bool:
    """Whether every filled cell starts like a number ("0.86", "-3 %", "12 s"); dashes are gaps."""
    filled = [text for text in texts if text.strip() not in ("", "-", "–", "—")]
    return bool(filled) and all(re.match(r"\s*[-+−±]?[\d.]*\d", text) for text in filled)


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #586374; --paper: #f5f7fa;
  --card: #ffffff; --rim: #d9dee5; --mark: #e6f1f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8edf4; --soft: #a3afbf; --paper: #0b0f14;
  --card: #12171f; --rim: #2c3542; --mark: #16293a; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
  sans-serif; }
main { max-width: 800px; margin: 0 auto; padding: 40px 20px 64px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .6em; }
h2 { font-size: 1.1rem; margin: 2.2em 0 .6em; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--rim);
  border-radius: 10px; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .5em 1em; text-align: left; border-top: 1px solid var(--rim); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; font-size: .88em; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.highlight { background: var(--mark); font-weight: 600; }
figure { margin: 2.2em 0 0; }
figure svg { display: block; width: 100%; height: auto; }
ul { padding-left: 1.2em; color: var(--soft); }
"""
