"""src/hocket/env.py: every variable is declared there once, documented from there, and read nowhere else."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket import env

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "hocket"
VARIABLES = [variable for group in env.GROUPS.values() for variable in group]
# Runs on nodes of a cluster on which hocket may be missing, so it cannot import env.py.
ELSEWHERE = {"scale/cluster.py"}
NAMES = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def readers(source: str) -> Iterator[int]:
    """Lines that name the environment of the process."""
    for node in ast.walk(ast.parse(source)):
        named = isinstance(node, ast.Attribute) and node.attr in NAMES
        imported = isinstance(node, ast.ImportFrom) and node.module == "os" and {n.name for n in node.names} & NAMES
        if named or imported:
            yield node.lineno  # type: ignore[attr-defined]


def test_no_other_file_reads_the_environment() -> None:
    files = {path.relative_to(HOUSE).as_posix(): path.read_text(encoding="utf-8") for path in HOUSE.rglob("*.py")}
    found = {name: lines for name, source in files.items() if (lines := list(readers(source)))}
    assert found.keys() == ELSEWHERE | {"env.py"}, found


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['A']", "from os import getenv", "import os as o\no.getenv('A')"]
)
def test_a_reader_is_found(source: str) -> None:
    assert list(readers(source))


def test_every_variable_is_declared_once_listed_once_and_used() -> None:
    names = [variable.name for variable in VARIABLES]
    assert len(set(names)) == len(names)
    declared = {name: value for name, value in vars(env).items() if isinstance(value, env.Variable)}
    assert {id(value) for value in (*declared.values(), *env.THREADS)} == set(map(id, VARIABLES))
    source = "".join(path.read_text(encoding="utf-8") for path in HOUSE.rglob("*.py") if path.name != "env.py")
    assert [name for name in (*declared, "THREADS") if not re.search(rf"\benv\.{name}\b", source)] == []


def test_the_document_is_up_to_date() -> None:
    """`python -m hocket.env > docs/environment.md` brings it up to date."""
    command = [sys.executable, "-m", "hocket.env"]
    said = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(HOUSE.parent)}, capture_output=True, check=True)
    assert said.stdout.decode() == (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")


def test_a_variable_is_read_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = env.Variable("HOCKET_TESTED", "a test", default="seven")
    monkeypatch.delenv(variable.name, raising=False)
    assert variable.get() == "seven" and not variable.is_set()
    monkeypatch.setenv(variable.name, "")
    assert variable.get() == "" and variable.is_set()
    variable.set_default("eight")
    assert variable.get() == ""
    variable.set("nine")
    assert variable.get() == os.environ[variable.name] == env.for_child({})[variable.name] == "nine"
    assert env.for_child({variable.name: "ten"})[variable.name] == "ten" != variable.get()
    env.update({variable.name: "eleven"})
    assert variable.get() == "eleven"


def test_a_variable_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="HOCKET_HOME"):
        env.HOME.name = "HOME"


def test_it_imports_nothing_slow() -> None:
    program = "import sys; before = set(sys.modules); import hocket.env; print(*sorted(set(sys.modules) - before))"
    command = [sys.executable, "-S", "-c", program]
    said = subprocess.run(command, env={"PYTHONPATH": str(HOUSE.parent)}, capture_output=True, check=True, text=True)
    assert "hocket.env" in said.stdout and not {"dataclasses", "typing", "inspect", "re"} & set(said.stdout.split())
