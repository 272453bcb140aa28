"""`cfuica demo`: train, evaluate and recommend on synthetic data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write the run to.")] = Path("demo-run"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and the training.")] = 0,
    picture: Annotated[
        Path | None, typer.Option(help="Also write the output of the terminal as an SVG file.")
    ] = None,
) -> None:
    """Train, evaluate and recommend on synthetic ratings (about a minute).

    Example:  cfuica demo --out demo-run
    """
    from rich.console import Console

    from cfuica.cli.demo_run import run_demo

    width = None if picture is None else 84
    console = Console(record=picture is not None, width=width, emoji=False)
    run_demo(out, seed=seed, console=console)
    if picture is not None:
        import re

        from cfuica.io import write_text_atomically

        # Without the web fonts that rich would have browsers fetch.
        svg = re.sub(r"@font-face\s*{[^}]*}", "", console.export_svg(title="make demo"))
        write_text_atomically(picture, svg)
