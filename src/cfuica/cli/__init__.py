"""The command line, without domain rules: a file for each kind of command.

This file registers the commands and turns every failure into one sentence and an exit code.
Commands import the library when they run, so that `cfuica --help` is fast.
"""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from types import FrameType
from typing import Annotated

import typer

from cfuica.cli import data, evaluate, export, inference, machine, observe, reproduce, train, tune
from cfuica.cli.options import BUG, EXIT_CODES, INTERRUPTED, TERMINATED, USER_ERROR
from cfuica.errors import CfuicaError, Interrupted
from cfuica.io import is_full

app = typer.Typer(
    name="cfuica",
    help="Co-autoregressive collaborative filtering (CF-UIcA): train, predict, recommend, explain.",
    epilog="Start with:  cfuica demo --out demo-run",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train", epilog=EXIT_CODES)(train.train)
app.command("settings", epilog=EXIT_CODES)(train.settings)
app.command("tune", epilog=EXIT_CODES)(tune.tune)
app.command("evaluate", epilog=EXIT_CODES)(evaluate.evaluate)
app.command("compare", epilog=EXIT_CODES)(evaluate.compare)
app.command("predict", epilog=EXIT_CODES)(inference.predict)
app.command("recommend", epilog=EXIT_CODES)(inference.recommend)
app.command("similar", epilog=EXIT_CODES)(inference.similar)
app.command("explain", epilog=EXIT_CODES)(inference.explain)
app.command("observe", epilog=EXIT_CODES)(observe.observe)
app.command("forget", epilog=EXIT_CODES)(observe.forget)
app.command("retire", epilog=EXIT_CODES)(observe.retire)
app.command("reproduce", epilog=EXIT_CODES)(reproduce.reproduce)
app.command("demo", epilog=EXIT_CODES)(train.demo)
app.command("doctor", epilog=EXIT_CODES)(machine.doctor)
app.add_typer(data.app, name="data")
app.add_typer(export.app, name="export")
app.add_typer(machine.app, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        import cfuica

        typer.echo(f"cfuica {cfuica.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


ENDED = {INTERRUPTED: "Interrupted.", TERMINATED: "Terminated."}


def main() -> None:
    """Run the command line; every failure is one sentence and a non-zero exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell's background jobs have it
            signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # ids and names may be anything
    sys.unraisablehook = _unraisable
    try:
        app(prog_name="cfuica")
    except Interrupted as error:
        _fail(str(error), 128 + error.signal)
    except CfuicaError as error:
        _fail(str(error), USER_ERROR)
    except SystemExit as ended:
        _ignore_signals()
        # Typer turns Ctrl-C into this without a word.
        if isinstance(ended.code, int) and ended.code in ENDED:
            _fail(ENDED[ended.code], ended.code)
        raise
    except BrokenPipeError:
        # The reader of the output has ended (`| head`).
        _let_go_of_output()
        sys.exit(0)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        remedy = "; make room and run the command again" if is_full(error) else ""
        _fail(f"The system refused: {error.strerror or error}{place}{remedy}.", USER_ERROR)
    except MemoryError:
        _fail("There is not enough memory; try fewer hidden units.", USER_ERROR)
    except Exception as error:
        if os.environ.get("CFUICA_DEBUG"):
            raise
        _fail(
            f"An unexpected {type(error).__name__}: {error}. This is a bug in cfuica; run again "
            f"with CFUICA_DEBUG=1 to see where, and please report it.",
            BUG,
        )


def _end(number: int, frame: FrameType | None) -> None:
    """Raise an exception, so that temporary files are removed, unless one is on its way already:
    then the command is about to say what was kept."""
    if isinstance(sys.exc_info()[1], Interrupted):
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _ignore_signals() -> None:
    """Ignore further signals while the command ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Print no traceback for a signal that came during a callback from C."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(unraisable)


def _fail(message: str, code: int) -> None:
    _ignore_signals()
    try:
        sys.stdout.flush()
    except OSError:
        _let_go_of_output()
    print(f"cfuica: {message}", file=sys.stderr)
    sys.exit(code)


def _let_go_of_output() -> None:
    """Discard further output, which would fail when Python ends (exit code 120)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
