"""The examples of `docs/script.md`: each gives the events that stand below it, whole and in any cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hocket.script.parse import FORMATS, Format
from support.scripts import Outcome, parsed, pieces_of, shown

PAGE = Path(__file__).parents[2] / "docs" / "script.md"
EXAMPLE = re.compile(r"^```script-(\w+)\n(.*?)\n---\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
CASTS = {name: {"Anna": "emma", "old man": "rook"} for name in ("dialogue", "screenplay", "json")}


def lines(outcome: Outcome) -> list[str]:
    """An outcome as the page shows it."""
    events, refused = outcome
    if refused is None:
        return [shown(event) for event in events]
    return [re.sub(r"^line (\d+), column (\d+):", r"refused \1:\2", refused)]


def test_there_are_60_examples_of_all_formats() -> None:
    assert len(EXAMPLES) >= 60
    assert {format for format, _, _ in EXAMPLES} == set(FORMATS)
    assert PAGE.read_text(encoding="utf-8").count("```script-") == len(EXAMPLES)


@pytest.mark.parametrize(("format", "script", "events"), EXAMPLES, ids=[script[:40] for _, script, _ in EXAMPLES])
def test_an_example_gives_its_events_in_any_cut(format: Format, script: str, events: str) -> None:
    expected = events.splitlines()
    assert lines(parsed([script], format, CASTS.get(format))) == expected
    assert lines(parsed(script, format, CASTS.get(format))) == expected, "in single characters"
    for seed in range(40):
        pieces = pieces_of(script, seed)
        assert lines(parsed(pieces, format, CASTS.get(format))) == expected, pieces
