"""cfuica demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write the run to.")] = Path("demo-run"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the world and the training.")] = 0,
) -> None:
    """Train, evaluate and recommend on an embedded little world of ratings (about a minute).

    Example:  cfuica demo --out demo-run
    """
    from rich.console import Console

    from cfuica.runs.demo import run_demo

    run_demo(out, seed=seed, console=Console())
