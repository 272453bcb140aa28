"""Measure every cell of some tables and figures, and write the report after each."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence

from cfuica.errors import CfuicaError, Interrupted, SettingsError
from cfuica.reproduction.cells import Cell, Watch, measure_all
from cfuica.reproduction.embedding import require_tsne
from cfuica.reproduction.experiments import EXPERIMENTS
from cfuica.reproduction.page import write_page
from cfuica.reproduction.plan import Plan
from cfuica.reproduction.systems import SYSTEMS
from cfuica.training.clusters import require_faiss

ALL = "all"
# Settings whose trainings make clusters.
_CLUSTERS = ("user_clusters", "item_clusters")


def experiments_named(names: Sequence[str]) -> list[str]:
    """Each once; `all` is every one."""
    for name in names:
        if name not in (*EXPERIMENTS, ALL):
            raise SettingsError(
                f"There is no '{name}' to reproduce; choose from {', '.join(EXPERIMENTS)}, {ALL}."
            )
    return list(EXPERIMENTS) if ALL in names else list(dict.fromkeys(names))


def cells_of(plan: Plan, names: Sequence[str], systems: Collection[str] = ()) -> list[Cell]:
    """Each cell once, in the order to measure them; of these systems only, if any are given."""
    rows = [row for name in names for row in EXPERIMENTS[name].rows(plan)]
    # What is no system trains nothing itself, and is measured in any case; but a peer has a name.
    others = [row for row in rows if row.base not in SYSTEMS]
    own = [name for row in rows if row.base in SYSTEMS for name in (row.base, row.name)]
    choices = dict.fromkeys([*own, *(row.name for row in others if row.origin != "ours")])
    for name in systems:
        if name not in choices:
            raise SettingsError(
                f"--systems {name} is no system of {', '.join(names)}; those are "
                f"{', '.join(choices)}."
            )
    wanted: set[str] = set()
    for row in rows:
        asked_for = {row.name, row.base} & set(systems) or row.base not in choices
        if not systems or asked_for:
            wanted |= {each.name for cell in row.cells for each in (cell, cell.run_of) if each}
    cells = (cell for name in names for cell in EXPERIMENTS[name].cells(plan))
    return list({cell.name: cell for cell in cells if cell.name in wanted}.values())


def reproduce(plan: Plan, names: Sequence[str], systems: Collection[str], watch: Watch) -> None:
    """Measure what is not finished; an error at the end if some of it failed. The report has what
    earlier commands asked for in this folder, too."""
    cells = cells_of(plan, names, systems)
    # What they need is looked for at once, and not after hours.
    if any(cell.settings.get(name) for cell in cells for name in _CLUSTERS):
        require_faiss()
    if "figure-tsne" in names:
        require_tsne()
    with plan.folder.held():
        shown, asked_for = plan.shown(names)
        tables = [name for name in EXPERIMENTS if name in asked_for]
        try:
            write_page(shown, tables)
            failed = measure_all(plan.folder, cells, watch, lambda: write_page(shown, tables))
        except KeyboardInterrupt:
            raise Interrupted(
                "The reproduction was stopped; go on with the same command.", signal.SIGINT
            ) from None
    if failed:
        raise CfuicaError(
            f"{len(failed)} of {len(cells)} cells failed, {failed[0].title} the first; "
            f"{plan.folder.path}/report.md says why, and the same command tries them again."
        )
