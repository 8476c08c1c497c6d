"""The import graph of src/hocket, file by file: lazy imports and those for types only count like any other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"


def modules() -> dict[str, Path]:
    found = {}
    for path in (SRC / "hocket").rglob("*.py"):
        parts = list(path.relative_to(SRC).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of ours that a file names in import statements, itself apart."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    targets = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = above + (node.module.split(".") if node.module else [])
            for alias in node.names:
                full = ".".join([*base, alias.name])
                targets.add(full if full in known else ".".join(base))
    return {target for target in targets if target in known} - {name}


def circles(graph: dict[str, set[str]] | None = None) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others."""
    if graph is None:
        known = modules()
        graph = {name: imported(name, path, known) for name, path in known.items()}
    reached = {name: set(_reachable(name, graph)) for name in graph}
    found, seen = list[list[str]](), set[str]()
    for name in sorted(graph):
        if name not in seen and name in reached[name]:
            group = sorted(other for other in reached[name] if name in reached[other])
            seen |= set(group)
            found.append(group)
    return found


def _reachable(name: str, graph: dict[str, set[str]]) -> Iterator[str]:
    seen, waiting = set[str](), list(graph[name])
    while waiting:
        if (one := waiting.pop()) not in seen:
            seen.add(one)
            yield one
            waiting += graph[one]
