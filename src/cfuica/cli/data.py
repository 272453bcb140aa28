"""cfuica data"""

from __future__ import annotations

import typer

from cfuica.cli import data_get, data_show

app = typer.Typer(
    help="Fetch data sets and look at data.",
    epilog="Example:  cfuica data show ml-1m",
    no_args_is_help=True,
)
app.command("get")(data_get.get)
app.command("show")(data_show.show)
