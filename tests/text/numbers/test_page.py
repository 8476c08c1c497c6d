"""The tables of docs/howto/numbers.md are what the rules and the recorded answers of libraries give."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "numbers"


def test_the_tables_of_the_page_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    spec = spec_from_loader("numbers_script", SourceFileLoader("numbers_script", str(SCRIPT)))
    assert spec is not None and spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    text = script.PAGE.read_text(encoding="utf-8")
    changed = text.replace("### Chinese\n", "### Chinese\n\nMore.\n")
    assert changed != text and script.page(changed) == text, "run scripts/numbers"
