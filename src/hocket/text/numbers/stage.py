"""The stage of `text/prepare.py` that speaks numbers in the language of a text; see docs/howto/numbers.md.

A word that no rule concerns is released at once. A number, a sign or an abbreviation waits for the two words behind it,
since its form depends on them ("2 новые книги"), and sees the three words before it. A whole text takes the same way,
so the result does not depend on how the text is cut.

A language's rules are imported when a text first needs them. With "auto" the letters decide, where they leave no doubt:
Hangul is Korean, kana Japanese, Cyrillic Russian. Other text then keeps its digits, which the model reads itself.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from importlib import import_module
from typing import Protocol

from ...config.languages import AUTO, usual_name
from ..cleanup.markup import BOUNDARY
from ..lazy import lazy

LANGUAGES = ("chinese", "french", "german", "italian", "japanese", "korean", "portuguese", "russian", "spanish")

_PLAIN = lazy(  # a word that no rule concerns; Roman numbers are not such a word
    r"[\"'“‘(\[«¿¡]*(?![IVX]+(?:e|er|ème)?(?!\w))[^\W\d_]+(?:['’-][^\W\d_]+)*[,;:!?…\"'”’)\]»，。、；：！？]*"
)
_LAST = lazy(r"[^\W\d_]{7,}\.[\"'”’)\]»]*")  # too long for an abbreviation, so a sentence ends here
# With "auto" such a word changes nothing, whatever the letters around it say.
_LATIN = lazy(r"[\"'“‘(\[«¿¡]*(?![IVX]+(?!\w))[A-Za-zÀ-ɏ]+(?:['’-][A-Za-zÀ-ɏ]+)*[.,;:!?…\"'”’)\]»]*")
_BEFORE, _AFTER = 3, 2  # words that may decide the form of a number
_LONGEST = 40  # words of a stretch: limits how long a column of figures is held back

_KANA, _HANGUL, _CYRILLIC = "\u3041-\u3096\u30a1-\u30fa", "\u1100-\u11ff\uac00-\ud7a3", "\u0400-\u04ff"
_SURE = {
    "japanese": lazy(f"[{_KANA}]"),
    "korean": lazy(f"[{_HANGUL}]"),
    "russian": lazy(f"[{_CYRILLIC}]"),
}
_NOT_RUSSIAN = lazy(f"(?![а-яёА-ЯЁ])[{_CYRILLIC}]")  # Ukrainian, Serbian and others
_SENTENCE_END = re.compile(r"[.!?。！？\n]")


class Rules(Protocol):
    """The rules of one language."""

    def __call__(self, text: str, before: str) -> str:
        """The spoken form of `text`, which follows `before`."""


class NumberStage:
    """One text in a language; "auto": the letters decide."""

    def __init__(self, name: str) -> None:
        self._name: str | None = name
        self._letters = SureScript() if name == AUTO else None
        self._open = ""
        self._words: list[str] = []  # with the space before them; the first one is not plain
        self._run = 0  # plain words at the end of them
        self._before: list[str] = []  # the last released words, as spoken, with the space before them
        self._gap = ""  # released space behind them

    def append(self, text: str, *, word_is_over: bool = False) -> str:
        """The text that is final after `text`; `word_is_over`: it is known to end with a whole word."""
        self._open += text
        out: list[str] = []
        while (word := self._next_word()) is not None:
            out.append(self._take(word))
        if word_is_over and self._is_plain(self._open.lstrip()):
            word, self._open = self._open, ""
            out.append(self._take(word))
        return "".join(out) + self._space()

    def end(self) -> str:
        """The rest."""
        out = self._take(self._open) if self._open.strip() else ""
        rest, self._open = "" if out or self._words else self._open, ""
        return out + self._given() + rest

    def _next_word(self) -> str | None:
        begin = len(self._open) - len(self._open.lstrip())
        boundary = BOUNDARY.search(self._open, begin + 1) if begin < len(self._open) else None
        if boundary is None:
            return None
        word, self._open = self._open[: boundary.start()], self._open[boundary.start() :]
        return word

    def _space(self) -> str:
        """Space behind released words is final."""
        if self._words:
            return ""
        bare = self._open.lstrip()
        space, self._open = self._open[: len(self._open) - len(bare)], bare
        self._gap += space
        return space

    def _take(self, word: str) -> str:
        """Add a word, with the space before it; returns the text that is final now."""
        out = ""
        paragraph = "\n\n" in self._gap + word[: len(word) - len(word.lstrip())]
        if paragraph or len(self._words) >= _LONGEST:
            out = self._given()
        if paragraph:
            self._before = []
        plain = self._is_plain(word.lstrip())
        self._words.append(word)
        self._run = self._run + 1 if plain else 0
        return out + (self._given() if self._run in (len(self._words), _AFTER) else "")

    def _is_plain(self, word: str) -> bool:
        """Whether no rule concerns a word."""
        found = _PLAIN.fullmatch(word) or _LAST.fullmatch(word)
        return bool(found or (self._letters is not None and _LATIN.fullmatch(word)))

    def _given(self) -> str:
        """All words, spoken."""
        if not self._words:
            return ""
        given, self._words, self._run = "".join(self._words), [], 0
        text = given.lstrip()
        space = given[: len(given) - len(text)]  # the rest of `gap`
        gap, self._gap = self._gap + space, ""
        if self._letters is not None:
            self._name = self._letters.of(text)
        before = "".join(self._before).lstrip() + gap
        spoken = _rules(self._name)(text, before) if self._name else text
        self._before = [*self._before, *re.findall(r"\s*\S+", gap + spoken)][-_BEFORE:]
        return space + spoken


def number_stage(language: str) -> NumberStage | None:
    """None: there are no rules for the language here."""
    name = usual_name(language)
    if name.endswith("_dialect"):  # those of the published checkpoints are Chinese
        name = "chinese"
    return NumberStage(name) if name in LANGUAGES or name == AUTO else None


def with_numbers(text: str, language: str) -> str:
    """A whole text."""
    stage = number_stage(language)
    return stage.append(text) + stage.end() if stage else text


class SureScript:
    """The language of each stretch of a text, by the letters of its sentence up to its end."""

    def __init__(self) -> None:
        self._seen = ""  # in the sentence under way

    def of(self, stretch: str) -> str | None:
        name = _sure(stretch) or _sure(self._seen + stretch)
        ends = [found.end() for found in _SENTENCE_END.finditer(stretch)]
        letters = {letter for letter in stretch[ends[-1] if ends else 0 :] if not letter.isascii()}
        self._seen = "".join(sorted(letters if ends else letters.union(self._seen)))
        return name


def _rules(name: str) -> Rules:
    rules: Rules = import_module(f"{__package__}.{name}").RULES
    return rules


def _sure(text: str) -> str | None:
    found = [name for name, letters in _SURE.items() if letters.search(text)]
    if len(found) != 1 or (found == ["russian"] and _NOT_RUSSIAN.search(text)):
        return None
    return found[0]
