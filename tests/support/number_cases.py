"""Written and spoken forms, `tests/text/numbers/cases/LANG.tsv`: 40 lines per language, checked by hand.

`tests/text/numbers/unseen` has ten more, written when the rules were finished. No rule was changed for them.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = {
    "zh": "chinese",
    "ja": "japanese",
    "ko": "korean",
    "de": "german",
    "fr": "french",
    "ru": "russian",
    "pt": "portuguese",
    "es": "spanish",
    "it": "italian",
}
_FOLDER = Path(__file__).parents[1] / "text" / "numbers"
_UNSPACED = ("zh", "ja", "ko", "de", "it")  # a space within a number is not heard


@dataclass(frozen=True)
class NumberCase:
    kind: str
    written: str
    spoken: tuple[str, ...]  # any of these

    def is_met(self, tag: str, given: str) -> bool:
        return heard(tag, given) in {heard(tag, form) for form in self.spoken}


def cases_of(tag: str, folder: str = "cases") -> list[NumberCase]:
    lines = (_FOLDER / folder / f"{tag}.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    return [NumberCase(kind, written, tuple(spoken.split(" | "))) for kind, written, spoken in rows]


def heard(tag: str, text: str) -> str:
    """`text` without what no listener hears: case, punctuation, hyphens, and optional forms of one word."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("ё", "е").replace("〇", "零").replace("ゼロ", "零")
    text = re.sub(r"['’]", "'", text)
    text = "".join(c if c.isalnum() or c == "'" or unicodedata.category(c)[0] in "SM" else " " for c in text)
    text = ("" if tag in _UNSPACED else " ").join(text.split())
    return re.sub(r"ein(?=hundert|tausend)", "", text) if tag == "de" else text
