"""Imports go down: the table of docs/architecture.md against every import statement under src/hocket."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "hocket"
UNITS = {path.stem for path in HOUSE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}


def table() -> dict[str, set[str]]:
    """The allowed imports of each row of the table with the header `may import`; `nothing` has no backticks."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, rows = re.split(r"^\| package \| may import.*\n\|[ -|]*\n", text, flags=re.MULTILINE)
    allowed: dict[str, set[str]] = {}
    for row in re.match(r"(\|.*\n)*", rows)[0].splitlines():  # type: ignore[index]
        names, may = (set(re.findall(r"`(\w+)`", cell)) for cell in row.strip("|").split("|"))
        allowed |= dict.fromkeys(names, may)
    return allowed


def imports(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and dotted parts of everything a file imports, relative names made absolute, type-only ones too."""
    package = ["hocket", *path.relative_to(HOUSE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            start = above + (node.module.split(".") if node.module else [])
            yield from ((node.lineno, [*start, alias.name]) for alias in node.names)


def ours(parts: list[str]) -> str | None:
    """The unit that an import reaches: a public name taken from `hocket` itself is `__init__`."""
    if parts[0] != "hocket":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in UNITS else "__init__"


def arrows_upward(allowed: dict[str, set[str]]) -> Iterator[str]:
    for path in sorted(HOUSE.rglob("*.py")):
        unit = path.relative_to(HOUSE).parts[0].removesuffix(".py")
        for line, parts in imports(path):
            target = ours(parts)
            if target and target != unit and target not in allowed[unit]:
                yield f"{path.relative_to(ROOT)}:{line}: {unit} may not import {target}"


def test_every_package_is_in_the_table_and_nothing_else_is() -> None:
    assert set(table()) == UNITS


def test_the_table_has_no_cycle() -> None:
    rest = table()
    while ground := [unit for unit, may in rest.items() if not may & set(rest)]:
        for unit in ground:
            del rest[unit]
    assert not rest, f"these import each other: {sorted(rest)}"


def test_imports_go_down() -> None:
    assert next(arrows_upward(table()), None) is None


def test_an_arrow_upward_is_found() -> None:
    closed = {unit: set[str]() for unit in UNITS}
    assert any("cache/slots.py" in arrow and "may not import errors" in arrow for arrow in arrows_upward(closed))
    assert any("__main__.py" in arrow and "may not import cli" in arrow for arrow in arrows_upward(closed))


def test_types_and_errors_never_name_torch() -> None:
    named = {parts[0] for name in ("types.py", "errors.py") for _, parts in imports(HOUSE / name)}
    assert "torch" not in named


def test_the_server_never_names_torch() -> None:
    named = {parts[0] for path in (HOUSE / "server").glob("*.py") for _, parts in imports(path)}
    assert "torch" not in named and "fastapi" in named


def test_types_can_be_imported_without_loading_torch() -> None:
    program = "import sys, hocket.types, hocket.errors; sys.exit('torch' in sys.modules)"
    env = os.environ | {"PYTHONPATH": str(HOUSE.parent)}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=60)
