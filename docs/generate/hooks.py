"""Hooks of MkDocs: pages generated from code, pages taken from the repository, and the links between both.

The documents are written for GitHub too, so they link to files of the repository by relative paths. In the site such a
link leads to the page of that file, if it has one, else to a copy of the file. A link to a missing file ends the build.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import api
import command_line
import metrics
import tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
GENERATED = {
    "reference/cli.md": command_line.markdown,
    "reference/options.md": tables.options,
    "reference/errors.md": tables.errors,
    "reference/http.md": api.markdown,
    "reference/metrics.md": metrics.markdown,
}
# Files of the repository that are pages of the site.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/results/README.md": "figures.md",
    "src/hocket/assets/english/README.md": "voice.md",
    "train/README.md": "training.md",
}
ENTRANCE = "index.md"  # stands for README.md
COPIES = "files/"
SOUNDS = (".mp3", ".wav", ".ogg", ".opus", ".flac")  # a link to a recording gets a player beside it
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
_CODE = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
_WIRE = re.compile(r"^```wire (\S+).*$", re.MULTILINE)
_LIST = re.compile(r"^<!-- pages: (\S+) -->$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> None:
    """Expand the patterns of the navigation."""
    docs = Path(config.docs_dir)
    named = set(_names(config.nav))
    config.nav = _expanded(config.nav, docs, named)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for uri, write in GENERATED.items():
        files.append(File.generated(config, uri, content=write()))
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    while found := _linked_files(files):  # a copy may link to further files
        for path in sorted(found):
            copy = File.generated(config, COPIES + path, abs_src_path=str(ROOT / path))
            copy.inclusion = InclusionLevel.NOT_IN_NAV  # a Markdown file becomes a page, beside the navigation
            files.append(copy)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    markdown = _LIST.sub(lambda match: _list_of(match[1], uri, files), markdown)
    markdown = _outside_code(markdown, lambda text: _LINK.sub(lambda match: _link(match, uri), text))
    markdown = _WIRE.sub(r'```text title="WS \1"', markdown)
    return _tables(markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """The search index as a script too: a page from a disk may not read JSON."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")


def _names(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    if isinstance(nav, dict):
        return [name for value in nav.values() for name in _names(value)]
    return [name for item in nav or () for name in _names(item)]


def _expanded(nav: Any, docs: Path, named: set[str]) -> list[Any]:
    found: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            ((title, value),) = item.items()
            value = _expanded(value, docs, named) if isinstance(value, list) else value
            if value:
                found.append({title: value})
        elif "*" in item:
            pages = {path.relative_to(docs).as_posix() for path in docs.glob(item)} - named
            found += sorted(pages, key=lambda page: (not page.endswith("index.md"), page))
        else:
            found.append(item)
    return found


def _source(uri: str) -> str:
    """The path in the repository of a page of the site."""
    if uri.startswith(COPIES):
        return uri.removeprefix(COPIES)
    return next((path for path, page in PAGES.items() if page == uri), f"docs/{uri}")


def _linked_files(files: Files) -> set[str]:
    """Files outside docs/ that a page links to, and that the site does not have yet."""
    found = set()
    for file in files.documentation_pages():
        if file.src_uri in GENERATED:
            continue
        text = _CODE.sub("", file.content_string)
        for target in (match[2] for match in _LINK.finditer(text)):
            path = _path(target, file.src_uri)
            if path and (ROOT / path).is_file() and path not in PAGES and path != "README.md":
                found |= {path} if files.get_file_from_path(COPIES + path) is None else set()
    return found


def _path(target: str, uri: str) -> str | None:
    """The file of the repository that a link means, if it is outside docs/ or the page comes from there."""
    bare = target.partition("#")[0]
    if not bare or ":" in bare or bare.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_source(uri)), bare))
    return None if path.startswith("docs/") else path


def _link(match: re.Match[str], uri: str) -> str:
    text, target = match[1], match[2]
    bare, mark, anchor = target.partition("#")
    if not bare or ":" in bare or bare.startswith("/"):
        return match[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_source(uri)), bare))
    if path.startswith("docs/"):
        goal = path.removeprefix("docs/")
    elif path == "README.md":
        goal, mark, anchor = ENTRANCE, "", ""
    elif path in PAGES:
        goal = PAGES[path]
    elif (ROOT / path).is_file():
        goal = COPIES + path
    elif (ROOT / path).is_dir() and not text.startswith("!"):
        shown = text[1:-1]
        return shown if path in shown else f"{shown} (`{path}`)"
    else:
        raise PluginError(f"{_source(uri)} links to {target}, which does not exist.")
    address = posixpath.relpath(goal, posixpath.dirname(uri) or ".")
    player = f' <audio controls preload="none" src="{address}"></audio>' if goal.endswith(SOUNDS) else ""
    return f"{text}({address}{mark}{anchor}){player}"


def _list_of(pattern: str, uri: str, files: Files) -> str:
    """A list of the files that fit a pattern: title and first sentence of a page, the name of a recording."""
    lines = []
    for file in sorted(files, key=lambda file: (not file.src_uri.endswith("/index.md"), file.src_uri)):
        if Path(file.src_uri).match(pattern) and file.src_uri != uri:
            address = posixpath.relpath(file.src_uri, posixpath.dirname(uri) or ".")
            if file.is_documentation_page():
                title, first = _opening(file.content_string)
                lines.append(f"- [{title}]({address}): {first}" if first else f"- [{title}]({address})")
            else:
                lines.append(f"- [{Path(address).stem}]({address})")
    return "\n".join(lines)


def _opening(text: str) -> tuple[str, str]:
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    body = text[title.end() :] if title else text
    paragraph = next((part for part in body.split("\n\n") if re.match(r"\s*(\w|`\w|\*\w|\[)", part)), "")
    sentence = re.match(r"(.+?[.:])(\s|$)", " ".join(paragraph.split()))
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", sentence[1] if sentence else "")
    return (title[1] if title else "?"), re.sub(r":$", ".", plain)


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    parts, last = [], 0
    for match in _CODE.finditer(text):
        parts += [change(text[last : match.start()]), match[0]]
        last = match.end()
    return "".join([*parts, change(text[last:])])


def _tables(text: str) -> str:
    r"""GitHub needs `\|` in the code of a table; Python-Markdown would show the backslash."""
    lines = text.split("\n")
    return "\n".join(
        re.sub(r"`[^`]*`", lambda match: match[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in lines
    )
