"""Paths as people give them and as messages show them."""

from __future__ import annotations

from pathlib import Path


def expanded(path: str | Path) -> Path:
    """The path with ~ as the home folder; as it is where there is no such user."""
    path = Path(path)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def shown(path: str | Path) -> str:
    r"""The path as text that can be written anywhere: a byte that is not UTF-8 as \udce9."""
    return str(path).encode(errors="backslashreplace").decode()
