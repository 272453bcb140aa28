"""The compiled functions that the house calls, read from its source."""

from __future__ import annotations

import ast
from pathlib import Path

import cfuica

SOURCE = Path(cfuica.__file__).parent
KERNELS = SOURCE / "ops"


def called_kernels() -> set[str]:
    """`module.function` of every njit function of `ops/` that is named outside of it."""
    compiled = {module.stem: _compiled(module) for module in KERNELS.glob("*.py")}
    called = set()
    for path in SOURCE.rglob("*.py"):
        if path.parent != KERNELS:
            called |= {
                f"{module}.{name}"
                for module, name in _named(ast.parse(path.read_text("utf-8")))
                if name in compiled.get(module, ())
            }
    return called


def _compiled(module: Path) -> set[str]:
    return {
        each.name
        for each in ast.parse(module.read_text("utf-8")).body
        if isinstance(each, ast.FunctionDef)
        and any("njit" in ast.unparse(decorator) for decorator in each.decorator_list)
    }


def _named(tree: ast.Module) -> set[tuple[str, str]]:
    """(module, name) of what is imported from modules of kernels, and of their attributes."""
    named, modules = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "cfuica.ops":
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            room, _, module = node.module.rpartition(".")
            if room == "cfuica.ops":
                named |= {(module, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            named.add((modules.get(node.value.id, ""), node.attr))
    return named
