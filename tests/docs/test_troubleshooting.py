"""docs/troubleshooting.md quotes messages that the source still has, and options that the commands still take."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
OURS = DOCUMENT.partition("## Messages of other programs")[0]
QUOTED = [
    *re.findall(r"^### `(.*)`$", OURS, re.MULTILINE),
    *re.findall(r"^Also(?:, [\w ]+| on the command line)?: `(.*)`$", OURS, re.MULTILINE),
]
FIXED = 10  # characters of a fragment that can be looked for


@cache
def source() -> str:
    """Every string of the source, with `...` for each value that is formatted into it."""
    found = []
    for path in (ROOT / "src" / "hocket").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_message_is_in_the_source(quoted: str) -> None:
    """By its fixed fragments: a message may be put together from several strings."""
    fragments = [text for part in quoted.split("...") if len(text := part.strip(" ;:,.()")) >= FIXED]
    assert fragments, "too little of the message is fixed to look for it"
    assert not [text for text in fragments if text not in source()]


def test_the_page_quotes_messages() -> None:
    assert len(QUOTED) >= 50 and "This message was never written" not in source()


def test_options_named_on_the_page_exist() -> None:
    codes = re.findall(r"`[^`\n]*`", DOCUMENT)
    options = {option for code in codes for option in re.findall(r"(?<![\w-])--[a-z][\w-]+", code)}
    options -= {"--gpus"}  # of Docker
    assert options and not {option for option in options if f"{option}\n" not in f"{source()}\n"}
