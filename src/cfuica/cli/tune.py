"""`cfuica tune` searches settings for own data, judged on the validation set."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.options import (
    CF_UICA,
    ModelName,
    SettingsFile,
    TaskName,
    assignments,
    changed,
    reads_files,
    written,
)
from cfuica.cli.output import JsonOnly, print_result, say_notes, table_of, titled
from cfuica.cli.splitting import DEFAULT_SPLIT, SplitOptions, splits_data
from cfuica.data.layout import FIND_OUT, ReadOptions


@reads_files
@splits_data
def tune(
    data: Annotated[str, typer.Argument(help="Name, file or folder, as in train.", metavar="DATA")],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the trials and of best.toml.")
    ],
    model: ModelName = CF_UICA,
    task: TaskName = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Trials in all, those of earlier calls included.")
    ] = 30,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so many minutes.", show_default=False)
    ] = None,
    preset: Annotated[str, typer.Option(help="Named settings to start from.")] = "default",
    settings_file: SettingsFile = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Fix a setting, which is then not searched; may be repeated.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the trials and trainings.", show_default="0")
    ] = None,
    json_: JsonOnly = False,
    splitting: SplitOptions = DEFAULT_SPLIT,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Search settings for your data, by trials that are judged on the validation set.

    Example:  cfuica tune ratings.csv --trials 30 --minutes 60 --out tuned

    Then:  cfuica train ratings.csv --settings tuned/best.toml --out run

    The test set of the split is left out. A trial trains one network; the ensemble
    and the cold-start network of the preset come with the training. The same command
    again goes on where it was stopped. Needs the extra tune (Optuna).
    """
    from cfuica.models.recommender import kind_named
    from cfuica.runs.inputs import prepared_split, settled_settings, training_notes
    from cfuica.runs.prepared import PreparedCache
    from cfuica.runs.tuning import Tuning, require_optuna

    require_optuna()
    kind = kind_named(model, task)
    start = changed(kind.preset(preset), set_ or [], seed, settings_file)
    request = splitting.request(kind.split)
    cache = PreparedCache(say=lambda line: typer.echo(line, err=True))
    data_split = prepared_split(
        cache, start, data, None, None, request, options, valid_file=splitting.valid_file
    )
    notes = training_notes(data_split, start, preset)[:-1]
    start, chosen = settled_settings(start, data_split)
    tuning = Tuning(out, data_split, start, fixed=assignments(set_ or []))
    say_notes([*notes, *filter(None, [chosen])])
    seconds = None if minutes is None else 60 * minutes
    tuned = tuning.run(trials, seconds, lambda line: typer.echo(line, err=True))
    before = "" if tuned.start is None else f" ({tuned.start:.4f} before tuning)"
    title = (
        f"Validation {tuned.measure} {tuned.value:.4f}{before}: trial {tuned.number}, "
        f"{tuned.finished} finished and {tuned.pruned} pruned"
    )
    rows = [(name, written(value)) for name, value in tuned.changed.items()]
    print_result(json_, tuned.as_json, lambda: titled(title, table_of(("setting", "value"), rows)))
    best = shlex.quote(str(out / "best.toml"))
    typer.echo(f"Train with it:  cfuica train DATA {start.option} --settings {best}", err=True)
