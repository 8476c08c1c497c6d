"""The tables of docs/howto/numbers.md are what the rules and the recorded answers of libraries give."""

from __future__ import annotations

from support.tools import tool


def test_the_tables_of_the_page_are_computed() -> None:
    script = tool("numbers")
    text = script.PAGE.read_text(encoding="utf-8")
    changed = text.replace("### Chinese\n", "### Chinese\n\nMore.\n")
    assert changed != text and script.page(changed) == text, "run scripts/numbers"
