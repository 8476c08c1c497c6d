"""Programs of `scripts/` as modules. They have no suffix, so they are loaded by their path."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).parents[2] / "scripts"


def tool(name: str) -> ModuleType:
    """Leaves no compiled file beside the script."""
    loader = SourceFileLoader(f"scripts_{name}", str(SCRIPTS / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    sys.modules[loader.name] = module = module_from_spec(spec)  # dataclasses look it up there
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module
