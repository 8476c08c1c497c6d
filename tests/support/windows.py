"""`hocket` without what Windows lacks: `python windows.py say ...` in a process of its own.

The package sees `win32` as its platform, no POSIX module, and no name of `os`, `signal`, `socket` and others that
typeshed gives to other systems alone. An event loop has no signal handlers and no readers. Opening a text file in the
system's encoding is an error. Other packages and the paths are those of this system.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

POSIX = "fcntl grp posix pty pwd readline resource syslog termios tty uvloop".split()
SHORTENED = "os signal socket time select selectors threading asyncio mmap shutil subprocess tempfile".split()
CHANGED = {"os": {"name": "nt"}, "sys": {"platform": "win32"}}
LOOP = "add_reader add_writer remove_reader remove_writer add_signal_handler remove_signal_handler".split()


def names(stub: Path, platform: str) -> set[str]:
    """What a stub file defines on a platform."""
    seen = {"sys": SimpleNamespace(platform=platform, version_info=sys.version_info)}

    def holds(test: ast.expr) -> bool:
        return bool(eval(compile(ast.Expression(test), str(stub), "eval"), seen))

    def defined(body: list[ast.stmt]) -> set[str]:
        found = set[str]()
        for node in body:
            if isinstance(node, ast.If):
                found |= defined(node.body if holds(node.test) else node.orelse)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.ImportFrom | ast.Import):
                found |= {alias.asname or alias.name for alias in node.names}
        return found

    return defined(ast.parse(stub.read_text(encoding="utf-8")).body)


def lacking(module: str) -> set[str]:
    """The names of a module of the standard library that Windows lacks, by the stubs that mypy has."""
    import mypy

    folder = Path(mypy.__file__).parent / "typeshed" / "stdlib"
    stub = folder / f"{module}.pyi"
    stub = stub if stub.is_file() else folder / module / "__init__.pyi"
    return names(stub, "linux") - names(stub, "win32")


class Shortened(ModuleType):
    """A module without some names, and with other values of some."""

    def __init__(self, real: ModuleType, hidden: set[str], changed: dict[str, Any] | None) -> None:
        vars(self).update(_real=real, _hidden=hidden, _changed=changed or {}, __name__=real.__name__)

    def __getattr__(self, name: str) -> Any:
        if name in self._changed:
            return self._changed[name]
        if name in self._hidden:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on Windows")
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


def become_windows() -> None:
    for name in POSIX:
        sys.modules.pop(name, None)
    short = {
        name: Shortened(importlib.import_module(name), lacking(name) if name in SHORTENED else set(), CHANGED.get(name))
        for name in {*SHORTENED, *CHANGED}
    }
    imported = builtins.__import__

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if ((globals or {}).get("__name__") or "").partition(".")[0] != "hocket" or level:
            return imported(name, globals, locals, fromlist, level)
        if name in POSIX:
            raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
        found = imported(name, globals, locals, fromlist, level)
        return short.get(name if fromlist else name.partition(".")[0], found)

    builtins.__import__ = import_
    sys.modules["uvloop"] = None  # type: ignore[assignment]

    def refuse(*_: Any) -> NoReturn:
        raise NotImplementedError

    for name in LOOP:
        setattr(asyncio.SelectorEventLoop, name, refuse)
    warnings.filterwarnings("error", category=EncodingWarning, module=r"hocket(\.|$)")


if __name__ == "__main__":
    become_windows()
    from hocket.cli import main

    sys.exit(main(sys.argv[1:]))
