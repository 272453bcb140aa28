"""Chain rules are written in `ops/` and nowhere else, and `ops/` stands on nothing of ours."""

from __future__ import annotations

import ast
from pathlib import Path

import cfuica

SOURCE = Path(cfuica.__file__).parent
OPS = SOURCE / "ops"


def backward_passes(path: Path) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "backward"
    ]


def imported(path: Path) -> set[str]:
    """Every module of ours that a file imports, at its head or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "cfuica"}


def test_backward_passes_are_written_in_ops_alone():
    files = sorted(SOURCE.rglob("*.py"))
    with_backward = {path for path in files if backward_passes(path)}
    assert with_backward == {OPS / name for name in ("encode.py", "decode.py", "loss.py")}


def test_ops_import_ops_alone():
    names = {name for path in OPS.glob("*.py") for name in imported(path)}
    assert names
    assert {name for name in names if not name.startswith("cfuica.ops.")} == set()
