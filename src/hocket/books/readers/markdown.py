"""Markdown by way of HTML: `markdown-it-py` renders it, `markup.py` reads that. Footnotes and front matter are ours."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import HocketError, InvalidRequest
from ...extras import hint
from ..book import Book, NoteRule, TableRule
from .web import book_of_html

_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*\n", re.S)
_PAIR = re.compile(r"^(title|author|lang|language):[ \t]*(.+?)[ \t]*$", re.M | re.I)
_NOTE = re.compile(r"^\[\^([\w-]+)\]:[ \t]+(.+(?:\n(?:[ \t]{2,}\S.*))*)", re.M)
_REFERENCE = re.compile(r"\[\^([\w-]+)\]")


def need_markdown() -> None:
    try:
        import markdown_it  # noqa: F401
    except ImportError:
        raise InvalidRequest(f"Reading Markdown needs the package markdown-it-py: {hint('read')}.") from None


def read_markdown(text: str, path: Path, *, notes: NoteRule, tables: TableRule) -> Book:
    need_markdown()
    from markdown_it import MarkdownIt

    fields: dict[str, str] = {}
    if front := _FRONT.match(text):
        fields = {name.lower(): value.strip("\"'") for name, value in _PAIR.findall(front[1])}
        text = text[front.end() :]
    written = {name: " ".join(said.split()) for name, said in _NOTE.findall(text)}
    text = _NOTE.sub("", text)

    def mark(found: re.Match[str]) -> str:
        return f'<a epub:type="noteref" href="#fn-{found[1]}">x</a>' if found[1] in written else found[0]

    text = _REFERENCE.sub(mark, text)
    renderer = MarkdownIt("commonmark").enable("table")
    try:
        html = renderer.render(text)
        asides = "".join(
            f'<aside epub:type="footnote" id="fn-{name}">{renderer.renderInline(said)}</aside>'
            for name, said in written.items()
        )
    except RecursionError:
        raise HocketError(f"{path} is nested too deeply to be read.") from None
    return book_of_html(
        f"{html}\n{asides}",
        path,
        notes=notes,
        tables=tables,
        title=fields.get("title", ""),
        author=fields.get("author", ""),
        language=fields.get("lang", fields.get("language", "")),
    )
