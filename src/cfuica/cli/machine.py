"""`cfuica bench` measures the speed of this machine; `cfuica doctor` checks what it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cfuica.cli.options import EXIT_CODES
from cfuica.cli.output import JsonOnly, plain, print_result, table_of, titled

if TYPE_CHECKING:
    from cfuica.data.matrix import InteractionMatrix, RatedPairs
    from cfuica.doctor import Diagnosis
    from cfuica.settings import RatingSettings

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

    matrix, _, settings = _paper_on(data, hidden)
    result = bench_step(
        matrix,
        settings,
        repeats=repeats,
        dense_repeats=dense_repeats,
        log=lambda line: typer.echo(line, err=True),
    )
    print_result(json_, lambda: result, lambda: step_bench(result))


@app.command("test", epilog=EXIT_CODES)
def predicting(
    data: Annotated[str, typer.Option(help="Name, file or folder of the ratings.")] = "ml-1m",
    hidden: Annotated[int, typer.Option(min=1, help="Hidden units of each side.")] = 500,
    json_: JsonOnly = False,
) -> None:
    """Time the prediction of a test set, and of the same by two dense torch implementations.

    Example:  cfuica bench test --data ml-1m --json
    """
    from cfuica.bench import bench_test

    result = bench_test(*_paper_on(data, hidden))
    forms = ("ours", "median_s"), *_DENSE
    rows = [(name, _ms(result[key])) for name, key in forms]
    title = f"Predicting {result['pairs']:,} ratings"
    print_result(json_, lambda: result, lambda: titled(title, table_of(("form", "ms"), rows)))


def _paper_on(data: str, hidden: int) -> tuple[InteractionMatrix, RatedPairs, RatingSettings]:
    """The train set of fold 0 as a matrix, its test set, and the preset `paper`."""
    from cfuica.data.datasets import resolve
    from cfuica.data.split_tables import DataSplit
    from cfuica.settings import rating_preset

    table = resolve(data)
    split = DataSplit.random(table, folds=10, fold=0, valid=0.05, seed=0)
    assert split.test is not None
    reading: dict[str, Any] = {"users": table.users, "items": table.item_ids, "scale": table.scale}
    settings = rating_preset("paper").replaced(hidden_users=hidden, hidden_items=hidden)
    return split.train.matrix(**reading), split.test.rated_pairs(**reading), settings


_DENSE = (
    ("dense, as the authors wrote it", "dense_median_s"),
    ("dense, at its best", "dense_best_median_s"),
)


def step_bench(result: dict[str, Any]) -> Group:
    """The steps of a minibatch, then the whole beside the dense implementations."""
    parts = [(name, _ms(seconds), "") for name, seconds in result["parts"].items()]
    table = table_of(("part", "ms", ""), parts)
    table.add_section()
    table.add_row("the whole minibatch (median)", _ms(result["median_s"]), "")
    for (name, key), ratio in zip(_DENSE, ("speedup", "speedup_best"), strict=True):
        table.add_row(name, _ms(result[key]), f"ours is {result[ratio]:.1f} x faster")
    return titled("One minibatch, everything included", table)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def doctor(
    compile_: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Also compile everything, so that no later start has to: for container images.",
        ),
    ] = False,
    json_: JsonOnly = False,
) -> None:
    """Check the installation, the machine and the data, and that this machine computes correctly.

    Exits with 1 where something is wrong, and says what to do. Add the output to bug reports.

    Example:  cfuica doctor --json
    """
    from cfuica.doctor import examine

    diagnosis = examine(compile_all=compile_)
    print_result(json_, diagnosis.as_json, lambda: diagnosis_in_terminal(diagnosis))
    if not diagnosis.healthy:
        raise typer.Exit(1)


def diagnosis_in_terminal(diagnosis: Diagnosis) -> Group:
    """Facts by topic, checks, and advice where something is wrong."""
    facts = Table(show_header=False)
    for topic, values in diagnosis.facts.items():
        facts.add_section()
        names = [topic.replace("_", " "), *[""] * len(values)]
        for shown, (name, value) in zip(names, values.items(), strict=False):
            text = ", ".join(value) if isinstance(value, list) else str(value)
            facts.add_row(shown, plain(name), plain("not there" if value is None else text))
    checks = Table(title="Checks", title_justify="left")
    for column in ("", "check", "found"):
        checks.add_column(column, overflow="fold")
    for check in diagnosis.checks:
        verdict = "[green]ok[/green]" if check.ok else "[bold red]WRONG[/bold red]"
        checks.add_row(verdict, plain(check.name), plain(check.found))
    # Several checks may have the same advice.
    advice = dict.fromkeys(check.advice for check in diagnosis.checks if not check.ok)
    last = [f"To do: {sentence}" for sentence in advice] or ["All is well."]
    return Group(facts, checks, *map(Text, last))
