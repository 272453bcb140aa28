"""`cfuica bench`: measure speed on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from cfuica.cli.options import EXIT_CODES, JsonOnly, print_result

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Measure speed on this machine.

    Example:  cfuica bench step --data ml-1m
    """


@app.command(epilog=EXIT_CODES)
def step(
    data: Annotated[str, typer.Option(help="Name, file or folder of the ratings.")] = "ml-1m",
    hidden: Annotated[int, typer.Option(min=1, help="Hidden units of each side.")] = 500,
    repeats: Annotated[int, typer.Option(min=3, help="Minibatches to time.")] = 30,
    dense_repeats: Annotated[int, typer.Option(min=1, help="Dense minibatches to time.")] = 5,
    json_: JsonOnly = False,
) -> None:
    """Time one minibatch, step by step, and two dense torch implementations of it.

    Example:  cfuica bench step --data ml-1m --json
    """
    from cfuica.bench import bench_step
    from cfuica.cli.tables import step_bench
    from cfuica.data.datasets import resolve
    from cfuica.data.split_tables import DataSplit
    from cfuica.settings import rating_preset

    table = resolve(data)
    train = DataSplit.random(table, folds=10, fold=0, valid=0.05, seed=0).train
    matrix = train.matrix(users=table.users, items=table.item_ids, scale=table.scale)
    settings = rating_preset("paper").replaced(hidden_users=hidden, hidden_items=hidden)
    result = bench_step(
        matrix,
        settings,
        repeats=repeats,
        dense_repeats=dense_repeats,
        log=lambda line: typer.echo(line, err=True),
    )
    print_result(json_, result.as_json, lambda: step_bench(result.as_json()))
