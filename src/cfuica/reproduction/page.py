"""The report of a reproduction, report.md and report.html, from the finished cells alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from cfuica.data.movielens import where_ncf_is_looked_for
from cfuica.io import write_text_atomically
from cfuica.reporting.report import Table, write_markdown, write_report
from cfuica.reproduction.cells import FAILED, Cell
from cfuica.reproduction.experiments import EXPERIMENTS
from cfuica.reproduction.plan import Plan
from cfuica.reproduction.sections import DASH, Section, mean_resources, scores
from cfuica.reproduction.systems import FOLDS, ML_1M, VALID
from cfuica.run_folder import FINISHED

TITLE = "The paper's tables and figures, reproduced"


def write_page(plan: Plan, names: Iterable[str]) -> None:
    """Write both files; folds and seeds that were measured before are part of them."""
    plan, folder = plan.widened(), plan.folder
    shown = Section()
    cells: dict[str, Cell] = {}
    for name in names:
        experiment = EXPERIMENTS[name]
        rows = experiment.rows(plan)
        shown += experiment.show(plan, rows)
        cells |= {cell.name: cell for row in rows for cell in row.cells}
    ended = {name: record for name, cell in cells.items() if (record := folder.ended(cell))}
    finished = [record for record in ended.values() if record["status"] == FINISHED]
    pictures = {}
    (folder.path / "figures").mkdir(exist_ok=True)
    for title, svg in shown.charts.items():
        file = f"figures/{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}.svg"
        write_text_atomically(folder.path / file, svg)
        pictures[title] = file
    notes = [
        f"{record['title']} failed: {record['reason']} (logs/{name}.log)."
        for name, record in ended.items()
        if record["status"] == FAILED
    ]
    if plan.data == ML_1M and plan.ncf is None:
        notes.append(
            f"Table 2 has no protocol ncf, that of the paper's figures for most of its rows: there "
            f"is no {where_ncf_is_looked_for()}."
        )
    if 0 in plan.folds:
        notes.append("Settings were tuned on fold 0; its figures are not those of a test.")
    content: dict[str, set[str]] = {plan.label: set()}
    for name, record in ended.items():
        if cells[name].train and "data" in record:
            data, _ = cells[name].system.rsplit(maxsplit=1)
            content.setdefault(data, set()).add(f"{record['data']['sha256'][:12]}...")
    for data, hashes in content.items():
        notes.append(f"Data: {data}, SHA-256 {', '.join(sorted(hashes)) or 'not read yet'}")
    for name in ("machine", "versions"):
        every = {", ".join(f"{k} {v}" for k, v in record[name].items()) for record in finished}
        notes += [f"{name.capitalize()}: {each}." for each in sorted(every)]
    if dates := sorted(record["date"] for record in finished):
        notes.append(f"Measured from {dates[0]} to {dates[-1]}.")
    # Only figures of full length may stand beside the paper's.
    quick = "This is a quick reproduction, on little data with short trainings. " * plan.quick
    intro = (
        f"{quick}{len(finished)} cells are finished. Ratings: {FOLDS} folds of one "
        f"random permutation (split seed 0), {VALID:.0%} of the rest validates. Rankings: each "
        f"user's last interaction tests, by protocols whose figures are not to be compared. "
        f"The paper's figures are of MovieLens 1M and Netflix."
    )
    tables = [*shown.tables, _every_cell(finished)]
    page: Any = {"title": TITLE, "intro": intro, "tables": tables, "notes": notes}
    write_markdown(folder.path / "report.md", pictures=pictures, **page)
    write_report(folder.path / "report.html", charts=list(shown.charts.values()), **page)


def _every_cell(finished: list[dict[str, Any]]) -> Table:
    rows = [
        [record["title"], scores(record) or DASH, *mean_resources([record]), record["date"]]
        for record in finished
    ]
    columns = ("cell", "figures", "training", "CPU time", "peak memory", "date")
    return Table("Every cell", columns, rows)
