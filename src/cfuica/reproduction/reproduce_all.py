"""Measure every cell of some tables and figures, and write the report after each."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence

from cfuica.errors import CfuicaError, Interrupted, SettingsError
from cfuica.reproduction.cells import Cell, Watch, measure_all
from cfuica.reproduction.embedding import require_tsne
from cfuica.reproduction.experiments import EXPERIMENTS, Plan
from cfuica.reproduction.page import write_page
from cfuica.reproduction.systems import SYSTEMS

ALL = "all"


def experiments_named(names: Sequence[str]) -> list[str]:
    """Each once; `all` is every one. What they need is looked for at once, and not after hours."""
    for name in names:
        if name not in (*EXPERIMENTS, ALL):
            raise SettingsError(
                f"There is no '{name}' to reproduce; choose from {', '.join(EXPERIMENTS)}, {ALL}."
            )
    wanted = list(EXPERIMENTS) if ALL in names else list(dict.fromkeys(names))
    if "figure-tsne" in wanted:
        require_tsne()
    return wanted


def cells_of(plan: Plan, names: Sequence[str], systems: Collection[str] = ()) -> list[Cell]:
    """Each cell once, in the order to measure them; of these systems only, if any are given."""
    for name in systems:
        if name not in SYSTEMS:
            raise SettingsError(
                f"--systems {name} is not known; the systems are {', '.join(SYSTEMS)}."
            )
    cells: dict[str, Cell] = {}
    wanted: set[str] = set()
    for experiment in (EXPERIMENTS[name] for name in names):
        cells |= {cell.name: cell for cell in experiment.cells(plan)}
        for row in experiment.rows(plan):
            if not systems or {row.name, row.base} & set(systems) or row.base not in SYSTEMS:
                wanted |= {cell.name for cell in row.cells}
                wanted |= {cell.run_of for cell in row.cells}
    return [cell for name, cell in cells.items() if name in wanted]


def reproduce(plan: Plan, names: Sequence[str], systems: Collection[str], watch: Watch) -> None:
    """Measure what is not finished; an error at the end if some of it failed."""
    cells = cells_of(plan, names, systems)
    with plan.folder.held():
        try:
            write_page(plan, names)
            failed = measure_all(plan.folder, cells, watch, lambda: write_page(plan, names))
        except KeyboardInterrupt:
            raise Interrupted(
                "The reproduction was stopped; go on with the same command.", signal.SIGINT
            ) from None
    if failed:
        raise CfuicaError(
            f"{len(failed)} of {len(cells)} cells failed, {failed[0].title} the first; "
            f"{plan.folder.path}/report.md says why, and the same command tries them again."
        )
