"""Options that several commands share, without their being written out in each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from cfuica.errors import SettingsError

Command = Callable[..., None]


def in_place_of(argument: str, make: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command the options of `make` in the place of one argument, which is what they make.

    Typer sees the options; the command gets `make(**options)`.
    """

    def decorate(command: Command) -> Command:
        told = inspect.signature(make, eval_str=True).parameters
        own = inspect.signature(command, eval_str=True).parameters
        parameters = {name: each for name, each in (own | told).items() if name != argument}

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            made = make(**{name: given.pop(name) for name in told})
            command(**given, **{argument: made})

        # What typer asks a function for.
        keyword_only = inspect.Parameter.KEYWORD_ONLY
        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=keyword_only) for each in parameters.values()]
        )
        wrapper.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        return wrapper

    return decorate


def check_known(option: str, value: str | None, *known: str) -> None:
    """Refuse a word that an option does not know; None is an option that was not given."""
    if value is not None and value not in known:
        raise SettingsError(f"{option} {value} is not known; it is either {' or '.join(known)}.")


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: what is left out has the default of whoever is asked."""
    return {name: value for name, value in options.items() if value is not None}
