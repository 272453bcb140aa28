"""cfuica train"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = (
    "Example:  cfuica train ml-1m --out runs/ml-1m --preset default --fold 1\n\n"
    "DATA is a registered name (demo, ml-100k, ml-1m), a CSV/TSV file with columns user, item, "
    "rating (and timestamp), or a MovieLens folder or zip. Presets: default, paper, "
    "paper-as-written."
)


def train(
    out: Annotated[Path, typer.Option(help="Folder to create for the run.")],
    data: Annotated[
        str | None, typer.Argument(help="Name, file or folder of the ratings.", metavar="DATA")
    ] = None,
    train_file: Annotated[
        Path | None,
        typer.Option("--train", help="Ratings to train on, with --test."),
    ] = None,
    test_file: Annotated[
        Path | None, typer.Option("--test", help="Ratings to test on, with --train.")
    ] = None,
    preset: Annotated[str, typer.Option(help="Settings by name.")] = "default",
    split: Annotated[
        str,
        typer.Option(
            help="'random' folds; 'leave-one-out': each user's last behaviour tests; 'date': the "
            "latest behaviours test; 'users': some users are held out whole; 'none': all trains."
        ),
    ] = "random",
    folds: Annotated[
        int | None, typer.Option(help="Folds of the random split.", show_default="10")
    ] = None,
    fold: Annotated[
        int | None, typer.Option(help="The random fold to test on, from 0.", show_default="0")
    ] = None,
    test_from: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="Split 'date': test from this day on, or from these seconds on."
        ),
    ] = None,
    test_share: Annotated[
        float | None,
        typer.Option(
            help="Split 'date' or 'users': share of the behaviours or users to test on.",
            show_default="0.1",
        ),
    ] = None,
    valid: Annotated[
        float | None,
        typer.Option(
            help="Share of the rest to validate on (the latest, where the split is by date).",
            show_default="0.05",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the initial values and minibatches.", show_default="0"),
    ] = None,
    split_seed: Annotated[
        int | None, typer.Option(help="Seed of the split.", show_default="0")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier run in --out.")] = False,
) -> None:
    """Train a model and write a run folder."""
    import shlex

    from cfuica.cli.settings import changed
    from cfuica.presets import preset as preset_named

    settings = changed(preset_named(preset), set_ or [], seed)

    from rich.console import Console

    from cfuica.cli.parts import parts_of
    from cfuica.runs.folder import RunFolder
    from cfuica.runs.job import run_training
    from cfuica.runs.listeners import progress_listener
    from cfuica.runs.split_request import SplitRequest

    request = SplitRequest(
        kind=split,
        folds=folds,
        fold=fold,
        valid=valid,
        seed=split_seed,
        test_from=test_from,
        test_share=test_share,
    )
    parts = parts_of(data, train_file, test_file, request)
    # Asked before the folder is made: ratings without a scale must not cost an earlier run.
    labels = parts.whole.scale.size
    folder = RunFolder.create(out, overwrite=overwrite)
    console = Console(stderr=True)
    for note in (*parts.whole.source_notes, *parts.notes):
        console.out(note, highlight=False)
    console.out(
        f"Training on {parts.train.n:,} ratings ({parts.whole.users.size:,} users, "
        f"{parts.whole.item_ids.size:,} items, {labels} labels), preset {preset}.",
        highlight=False,
    )
    with progress_listener(console) as listener:
        run_training(folder, parts, settings, preset_name=preset, listener=listener)
    run = shlex.quote(str(out))
    if parts.test is not None:
        console.out(f"Done. Test it:  cfuica evaluate {run}", highlight=False)
    else:
        console.out(f"Done. Use it:  cfuica recommend {run} --user ID", highlight=False)


train.__doc__ = f"{train.__doc__}\n\n{EXAMPLE}"
