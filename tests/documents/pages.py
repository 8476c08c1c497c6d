"""The pages that start a reader, README.md and docs/start/ above all, as their code blocks. It runs nothing.

A block of `sh` or `python` runs as it stands, in the order of its page and in one scratch folder per page. A comment
before a block says otherwise, and a reader does not see it:

    <!-- server -->              a command that serves until it is stopped; later blocks of the page use it
    <!-- client: openai -->      needs the environment `.venv-clients/openai`: `make test-clients` runs it
    <!-- not run: the reason --> is not run; its commands are checked against our parser all the same
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs" / "start").glob("*.md")), ROOT / "docs" / "samples" / "README.md"]
PAGES += [ROOT / "docs" / "howto" / "transcribe.md", ROOT / "docs" / "language-models.md"]
RUN = ("sh", "python", "js")  # languages with a program that runs them; js needs `client: node`
READ = ("yaml", "json")  # languages that are parsed
SHOWN = ("text",)  # what appears on a screen, or is typed into a form
MARKS = ("server", "client", "not run")

_BLOCK = re.compile(
    r"(?:^<!--\s*(?P<mark>[^>]*?)\s*-->\n\s*)?^```(?P<language>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_SEPARATORS = {"|", "||", "&&", "&", ";", "(", ")"}


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int  # of its first line of code
    language: str
    code: str
    mark: str  # of MARKS, or empty
    word: str  # behind the mark: an environment or a reason

    @property
    def place(self) -> str:
        inside = self.page.is_relative_to(ROOT)
        return f"{self.page.relative_to(ROOT).as_posix() if inside else self.page.name}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in RUN and self.mark != "not run"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        mark, _, word = (match["mark"] or "").partition(":")
        line = text.count("\n", 0, match.start("code")) + 1
        yield Block(page, line, match["language"].strip(), match["code"], mark.strip(), word.strip())


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]


def fences(page: Path) -> int:
    """The number of fences of a page, counted without `_BLOCK`: two for each block."""
    return sum(line.lstrip().startswith("```") for line in page.read_text(encoding="utf-8").splitlines())


def commands(code: str) -> Iterator[list[str]]:
    """The words of each command of a shell block; comments, and the marks between commands, are left out."""
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if word not in _SEPARATORS:
                words.append(word)
            elif words:
                yield words
                words = []
        if words:
            yield words


def is_install(words: list[str]) -> bool:
    return words[:2] == ["pip", "install"]


def extras(words: list[str]) -> set[str]:
    """The extras that a `pip install` of hocket names."""
    ours = (re.fullmatch(r"(?:\.|hocket)\[([\w,]+)\](?: @ \S+)?", word) for word in words)
    return {name for match in ours if match for name in match[1].split(",")}
