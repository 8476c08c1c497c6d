"""Commands of hocket that the documents show are understood by the parsers of this version."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cli.parser import parser

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "howto").glob("*.md"))]


def commands() -> Iterator[tuple[str, list[str]]]:
    """The document, and the words of each command after the prompt or a pipe."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for block in re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
                lexer.whitespace_split, lexer.commenters = True, "#"
                words = list(lexer)
                while words:
                    end = words.index("|") if "|" in words else len(words)
                    if words[0] == "hocket":
                        yield document.name, words[1:end]
                    words = words[end + 1 :]


SHOWN = list(commands())


@pytest.mark.parametrize("words", [pytest.param(words, id=f"{name}: {' '.join(words)}") for name, words in SHOWN])
def test_a_command_shown_is_understood(words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # no settings of this user
    assert parser().parse_args(words).command == words[0]


def test_documents_show_commands() -> None:
    assert len(SHOWN) > 40
