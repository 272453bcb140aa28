"""cfuica data"""

from __future__ import annotations

import typer

from cfuica.cli import data_get, data_show
from cfuica.cli.exits import EXIT_CODES

app = typer.Typer(
    help="Fetch data sets and look at data.",
    epilog="Example:  cfuica data show ml-1m",
    no_args_is_help=True,
)
app.command("get", epilog=EXIT_CODES)(data_get.get)
app.command("show", epilog=EXIT_CODES)(data_show.show)
