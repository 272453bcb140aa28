"""`cfuica train` writes a run folder or resumes a run; `cfuica settings` lists what it can be told.

`cfuica demo` does all of it on synthetic data.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from rich.console import Console

from cfuica.cli.options import (
    CF_UICA,
    Items,
    ModelName,
    SettingsFile,
    TaskName,
    assignments,
    changed,
    reads_files,
    seeds_of,
    written,
)
from cfuica.cli.output import FOR_PEOPLE, Output, gives_a_table, titled
from cfuica.cli.splitting import DEFAULT_SPLIT, SplitOptions, splits_data
from cfuica.data.layout import FIND_OUT, ReadOptions
from cfuica.errors import Interrupted, SettingsError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from cfuica.runs.run import Job
    from cfuica.training.display import TrainingCallback

# The options that --resume allows; the run has recorded all others.
WITH_RESUME = ("resume", "set_", "progress", "checkpoint_every", "tensorboard")


@reads_files
@splits_data
def train(
    context: typer.Context,
    data: Annotated[
        str | None, typer.Argument(help="Name, file or folder of the ratings.", metavar="DATA")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Folder to create for the run.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Resume a run that was interrupted; only --set may change it."
        ),
    ] = None,
    train_file: Annotated[
        Path | None,
        typer.Option("--train", help="Ratings or interactions to train on, with --test."),
    ] = None,
    test_file: Annotated[
        Path | None, typer.Option("--test", help="Those to test on, with --train.")
    ] = None,
    items: Items = None,
    model: ModelName = CF_UICA,
    task: Annotated[
        str | None,
        typer.Option(
            help="'rating': predict ratings; 'ranking': recommend the next item from the history, "
            "whatever its ratings. A baseline has one of them.",
            show_default="rating",
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help="Named settings to start from.")] = "default",
    settings_file: SettingsFile = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the initial values and minibatches.", show_default="0"),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="SEED,SEED,...",
            help="Train once for each seed, into folders seed-SEED of --out; the same command "
            "again goes on where it was stopped.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting; may be repeated. `cfuica settings` lists them.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier run in --out.")] = False,
    progress: Annotated[
        str,
        typer.Option(
            help="auto (live on a terminal, lines in a pipe), live, lines, json (lines of JSON on "
            "standard output) or quiet."
        ),
    ] = "auto",
    checkpoint_every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Seconds between checkpoints.", min=0, show_default="300"
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write for TensorBoard (extra viz).")
    ] = False,
    verify_data: Annotated[
        bool,
        typer.Option(
            "--verify-data",
            help="Hash the whole content of large data before it is taken from the cache, not its "
            "size, time and end alone.",
        ),
    ] = False,
    splitting: SplitOptions = DEFAULT_SPLIT,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Train a model and write a run folder.

    Example:  cfuica train ml-1m --out runs/ml-1m --preset default --fold 1

    DATA is a registered name (demo, ml-100k, ml-1m ...), a folder or zip of
    MovieLens, a folder of Parquet files, or a file: CSV, TSV or any delimiter,
    gzip, zstd, Parquet, Arrow, .inter, with user, item, rating (and timestamp).
    Presets: default, paper, paper-netflix, paper-as-written; for ranking
    default, paper, paper-uniform, paper-inverse.

    Ctrl-C or SIGTERM finish the minibatch, write a checkpoint and say how to
    resume. The same data, settings and seed give the same model, bit for bit,
    with any number of threads and however often resumed, on one machine.
    """
    if (out is None) == (resume is None):
        raise typer.BadParameter("give --out RUN for a new run, or --resume RUN to go on with one")
    console = Console(stderr=True, quiet=progress in ("quiet", "json"))
    if console.quiet:
        options = replace(options, progress=None)

    def say(sentence: str) -> None:
        console.out(sentence, highlight=False)

    from cfuica.run_folder import RunFolder
    from cfuica.runs.callbacks import progress_callback, require_tensorboard
    from cfuica.runs.run import Job
    from cfuica.training.trainer import describe_outcome

    if tensorboard:
        require_tensorboard()
    callback = progress_callback(console, progress)
    if resume is not None:
        _refuse_with_resume(context)
        job = Job.resumed(RunFolder.open(resume), assignments(set_ or []))
        say(f"Resuming {resume} {job.place}.")
    else:
        assert out is not None
        from cfuica.models.recommender import kind_named
        from cfuica.runs.inputs import prepared_split, settled_settings, training_notes
        from cfuica.runs.prepared import PreparedCache
        from cfuica.runs.seeds import job_of_seed
        from cfuica.training.trainer import usable_device

        all_seeds = [] if seeds is None else seeds_of(seeds, seed)
        kind = kind_named(model, task)
        settings = changed(kind.preset(preset), set_ or [], seed, settings_file)
        request = splitting.request(kind.split)
        data_split = prepared_split(
            PreparedCache(verify=verify_data, say=say),
            settings,
            data,
            train_file,
            test_file,
            request,
            options,
            valid_file=splitting.valid_file,
        )
        if items is not None:
            from cfuica.data.item_files import read_items

            whole = data_split.whole.with_items(read_items(items, options), source=str(items))
            data_split = replace(data_split, whole=whole)
        # Checked before the folder is created, so that an error does not delete an earlier run.
        notes = training_notes(data_split, settings, preset)
        settings, chosen = settled_settings(settings, data_split)
        notes += filter(None, [chosen])
        usable_device(getattr(settings, "device", "cpu"))
        if seeds is not None:
            for note in notes:
                say(note)
            for each in all_seeds:
                own = settings.replaced(seed=each)
                one = job_of_seed(out, data_split, own, preset=preset, overwrite=overwrite)
                say(f"Seed {each}{' is trained already' if one is None else ''}.")
                if one is not None:
                    callback = progress_callback(console, progress)
                    _train_seed(
                        one, callback, checkpoint_every=checkpoint_every, tensorboard=tensorboard
                    )
            if data_split.test is not None:
                say(f"Done. Test them:  cfuica evaluate {shlex.quote(str(out))}")
            return
        folder = RunFolder.create(out, overwrite=overwrite)
        for note in notes:
            say(note)
        job = Job.new(folder, data_split, settings, preset=preset)
    with callback:
        fitted = job.run(callback, checkpoint_every=checkpoint_every, tensorboard=tensorboard)
    for outcome in fitted.trained.outcomes if fitted.trained else ():
        say(describe_outcome(outcome))
    run = shlex.quote(str(job.folder.path))
    if job.data_split.test is not None:
        say(f"Done. Test it:  cfuica evaluate {run}")
    else:
        say(f"Done. Use it:  cfuica recommend {run} --user ID")


def _train_seed(job: Job, callback: TrainingCallback, **options: Any) -> None:
    try:
        with callback:
            job.run(callback, **options)
    except Interrupted as error:
        raise Interrupted(
            f"Training was stopped in {job.folder.path}; go on with the same command.", error.signal
        ) from None


def _refuse_with_resume(context: typer.Context) -> None:
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in WITH_RESUME and source is not None and source.name != "DEFAULT":
            raise SettingsError(
                f"A resumed run has its data, split and settings already: {parameter.opts[0]} "
                f"cannot be given with --resume; change a setting with --set."
            )


@gives_a_table
def settings(
    model: ModelName = CF_UICA,
    task: TaskName = None,
    preset: Annotated[str, typer.Option(help="The preset whose values are shown.")] = "default",
    output: Output = FOR_PEOPLE,
) -> None:
    """List the settings of train --set: name, value in a preset, meaning.

    Example:  cfuica settings --task ranking --preset paper
    """
    import polars as pl

    from cfuica.models.recommender import kind_named

    of = kind_named(model, task).preset(preset)
    fields, values = type(of).model_fields, of.model_dump()
    title = f"Settings for {of.task if model == CF_UICA else model}, preset {preset}"
    frame = pl.DataFrame(
        {
            "setting": list(values),
            "value": [written(value) for value in values.values()],
            "meaning": [_meaning(fields[name]) for name in values],
        }
    )
    output.give(
        frame,
        what="settings",
        shown=lambda: titled(title, frame),
        as_json=lambda: [
            {**row, "value": values[row["setting"]]} for row in frame.iter_rows(named=True)
        ],
    )


def _meaning(field: FieldInfo) -> str:
    """The description, and the choices of a setting that has only these."""
    words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return f"{field.description} {' | '.join(words)}" if words else str(field.description)


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
    from cfuica.cli.demo import run_demo

    width = None if picture is None else 84
    console = Console(record=picture is not None, width=width, emoji=False, highlight=False)
    run_demo(out, seed=seed, console=console)
    if picture is not None:
        import re

        from cfuica.io import write_text_atomically

        # Without the web fonts that rich would have browsers fetch.
        svg = re.sub(r"@font-face\s*{[^}]*}", "", console.export_svg(title="make demo"))
        write_text_atomically(picture, svg)
