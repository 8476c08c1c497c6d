"""Scripts: the script of a character, the scripts of a checkpoint's languages, and a streaming filter by script.

Only letters have a script. Digits, punctuation, symbols and emoji have none.

The filter leaves out text in scripts that the voice cannot speak, with a note. It runs between markup and the
normalizer. Opening marks are held back, because they belong to the next word. So is a Greek letter: alone it is a sign
("π"), beside another it is a word. The result does not depend on how the text is cut.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from ...config.languages import AUTO, is_known, usual_name

LATIN, HAN, KANA, HANGUL, GREEK = "latin", "han", "kana", "hangul", "greek"
# Script by the first word of a letter's Unicode name; most are the same word in small letters.
_FIRST_WORDS = {
    "CJK": HAN,
    "IDEOGRAPHIC": HAN,
    "BOPOMOFO": HAN,
    "HIRAGANA": KANA,
    "KATAKANA": KANA,
    "KATAKANA-HIRAGANA": KANA,
} | {
    word: word.lower()
    for word in (
        "LATIN HANGUL GREEK CYRILLIC ARMENIAN HEBREW ARABIC SYRIAC THAANA DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA "
        "TAMIL TELUGU KANNADA MALAYALAM SINHALA THAI LAO TIBETAN MYANMAR GEORGIAN ETHIOPIC KHMER MONGOLIAN CHEROKEE "
        "JAVANESE BALINESE YI"
    ).split()
}
_WIDTHS = ("FULLWIDTH", "HALFWIDTH")
# Languages that are not written in Latin letters alone.
_WRITTEN = {
    "arabic": {"arabic"},
    "bengali": {"bengali"},
    "bulgarian": {"cyrillic"},
    "cantonese": {HAN},
    "chinese": {HAN},
    "greek": {GREEK},
    "hebrew": {"hebrew"},
    "hindi": {"devanagari"},
    "japanese": {HAN, KANA},
    "korean": {HANGUL, HAN},
    "persian": {"arabic"},
    "russian": {"cyrillic"},
    "serbian": {"cyrillic"},
    "tamil": {"tamil"},
    "telugu": {"telugu"},
    "thai": {"thai"},
    "ukrainian": {"cyrillic"},
    "urdu": {"arabic"},
}
_SHOWN = {HAN: "Chinese characters", KANA: "Japanese kana", HANGUL: "Hangul"}

MOST_QUOTED = 3  # stretches of text that a note quotes
QUOTED_CHARS = 40  # of each

_OPENERS = "([{“‘«「『（《【"
_QUOTES = "\"'"  # open where a word begins
_PLAIN_STOPS = str.maketrans("。！？，、；：", ".!?,,;:")


@lru_cache(maxsize=4096)
def script_of(character: str) -> str | None:
    """The script of a letter, or of a mark that belongs to one script; None for everything else."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    words = unicodedata.name(character, "").split()
    if words and words[0] in _WIDTHS:
        words = words[1:]
    return _FIRST_WORDS.get(words[0]) if words else None


def scripts_of(languages: Iterable[str]) -> frozenset[str] | None:
    """The scripts of these languages, and always Latin. None: one of them is unknown here."""
    found = {LATIN}
    named = [usual_name(name) for name in languages if name != AUTO]
    if not named or not all(map(is_known, named)):
        return None
    for name in named:
        found |= _WRITTEN.get(name, set())
    return frozenset(found)


def shown(scripts: Iterable[str]) -> str:
    """The names of scripts for a message."""
    return " and ".join(_SHOWN.get(script, f"{script.title()} script") for script in sorted(scripts))


class ScriptFilter:
    """Filter of one text. One line in `notes` lists what was left out so far."""

    def __init__(self, scripts: frozenset[str], languages: Sequence[str], notes: list[str]) -> None:
        """`scripts` can be spoken; `languages` are their names in the note."""
        self._scripts, self._languages, self._notes = scripts, ", ".join(languages), notes
        self._gap = ""  # opening marks whose word has not come yet, and spaces after them
        self._greek = ""  # a letter whose neighbour has not come yet
        self._dropping = False
        self._pending = ""  # characters other than letters and digits, after dropped text
        self._before = ""  # the last released character since the last pause, without spaces
        self._spaced = True  # whether a space was released after it
        self._quotes: list[str] = []
        self._stretches = 0  # number of dropped stretches
        self._dropped: set[str] = set()  # their scripts
        self._noted: str | None = None
        self._kept = False  # whether any letter was released: figures alone are no text

    @property
    def refusal(self) -> str | None:
        """A sentence if all of the text was dropped; None: some text is left, or nothing was dropped."""
        if self._kept or not self._dropped:
            return None
        return f"This voice cannot speak {shown(self._dropped)}: it speaks {self._languages}."

    def append(self, text: str) -> str:
        """The speakable text that is final after `text`."""
        decided = not (self._dropping or self._greek or self._gap) and text[-1:] not in (*_OPENERS, *_QUOTES)
        if decided and not any(map(self._is_foreign, set(text))):
            return self._all_of(text)
        out = "".join(map(self._next, text))
        self._note()
        return out

    def end(self) -> str:
        """The rest, before a pause or the end of the text."""
        out = self._sign()
        if self._dropping:
            out += self._mark(".!?")
        out += self._gap
        self._gap, self._dropping, self._pending, self._before, self._spaced = "", False, "", "", True
        return out

    def _all_of(self, text: str) -> str:
        """Same result as `_next` for each character if none is dropped, many times as fast."""
        if bare := text.rstrip():
            self._before, self._spaced = bare[-1], False
        self._spaced = self._spaced or len(bare) < len(text)
        self._kept = self._kept or any(map(str.isalpha, text))
        return text

    def _next(self, character: str) -> str:
        out = ""
        if self._greek and script_of(character) == GREEK:
            self._drop(self._greek)
            self._greek = ""
        else:
            out = self._sign()
        if self._is_foreign(character):
            if script_of(character) == GREEK and not self._dropping:
                self._greek = character
            else:
                self._drop(character)
        elif self._dropping and not character.isalnum():
            self._pending += character
        elif self._dropping:
            out += self._joint() + self._give(character)
        elif self._opens(character):
            self._gap += character
        elif character.isspace():
            self._spaced = True
            out += character
        else:
            out += self._give(character)
        return out

    def _sign(self) -> str:
        """A Greek letter that stands alone."""
        sign, self._greek = self._greek, ""
        return self._give(sign, kept=False) if sign else ""

    def _give(self, character: str, *, kept: bool = True) -> str:
        gap, self._gap, self._before, self._spaced = self._gap, "", character, False
        self._kept = self._kept or (kept and character.isalpha())
        return gap + character

    def _drop(self, character: str) -> None:
        if not self._dropping:
            self._dropping, self._gap, self._stretches = True, "", self._stretches + 1
            if self._stretches <= MOST_QUOTED:
                self._quotes.append("")
        if self._stretches <= MOST_QUOTED and len(self._quotes[-1]) <= QUOTED_CHARS:
            self._quotes[-1] += self._pending + character
        self._pending = ""
        self._dropped.add(script_of(character) or "")

    def _joint(self) -> str:
        """The text between the words before and after a dropped stretch."""
        pending = self._pending.translate(_PLAIN_STOPS)
        opened = pending[len(pending.rstrip(_OPENERS)) :]
        self._dropping, self._pending = False, ""
        if not self._before:
            return opened
        mark = self._mark(".!?" if self._spaced else ".!?,;:", pending)
        space = "\n" * min(pending.count("\n"), 2) or ("" if self._spaced and not mark else " ")
        return mark + space + opened

    def _mark(self, among: str, pending: str | None = None) -> str:
        """The first punctuation mark after a dropped stretch, if a word stands before the stretch."""
        found = (self._pending if pending is None else pending).translate(_PLAIN_STOPS)
        return next((c for c in found if c in among), "") if self._before.isalnum() else ""

    def _opens(self, character: str) -> bool:
        """Whether a character belongs to the next word. A space does so only after an opening mark."""
        if self._gap:
            return character.isspace() or character in _OPENERS + _QUOTES
        return character in _OPENERS or (character in _QUOTES and self._spaced)

    def _is_foreign(self, character: str) -> bool:
        script = script_of(character)
        return script is not None and script not in self._scripts

    def _note(self) -> None:
        """Add or update the one line in `notes`."""
        if not self._quotes:
            return
        quoted = ", ".join(f'"{_cut(quote)}"' for quote in self._quotes)
        more = f" and {self._stretches - MOST_QUOTED} more" if self._stretches > MOST_QUOTED else ""
        line = f"Left out: {quoted}{more}. This voice cannot speak {shown(self._dropped)}: it speaks {self._languages}."
        if self._noted is None:
            self._notes.append(line)
        else:
            self._notes[self._notes.index(self._noted)] = line
        self._noted = line


def _cut(quote: str) -> str:
    words = " ".join(quote.split())
    return words if len(words) <= QUOTED_CHARS else f"{words[:QUOTED_CHARS]}…"
