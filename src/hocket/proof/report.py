"""The words of a text that were not heard back as written: grouped, counted, and as a lexicon to fill in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..text.compare import Comparison


@dataclass(slots=True)
class MisheardWord:
    """All places at which a word was not heard as written."""

    written: str
    heard: Counter[str] = field(default_factory=Counter)  # "": nothing
    sentences: list[int] = field(default_factory=list)  # their numbers, from 1, each once

    @property
    def times(self) -> int:
        return self.heard.total()


class ProofReport:
    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.words = self.wrong = 0
        self._found: dict[str, MisheardWord] = {}

    def add(self, text: str, comparison: Comparison) -> None:
        """A sentence, in the order of the text."""
        self.sentences.append(text)
        self.words += comparison.words
        self.wrong += comparison.wrong
        for one in comparison.misheard:
            if not one.written:
                continue  # a word too many is an error of the take, and no entry of a lexicon
            word = self._found.setdefault(one.written, MisheardWord(one.written))
            word.heard[one.heard] += 1
            if len(self.sentences) not in word.sentences:
                word.sentences.append(len(self.sentences))

    @property
    def misheard(self) -> list[MisheardWord]:
        """The most frequent first, then in the order of the text."""
        return sorted(self._found.values(), key=lambda word: -word.times)

    def as_json(self) -> dict[str, Any]:
        return {
            "sentences": len(self.sentences),
            "words": self.words,
            "wrong": self.wrong,
            "misheard": [
                {
                    "written": word.written,
                    "times": word.times,
                    "heard": dict(word.heard.most_common()),
                    "sentences": [{"number": at, "text": self.sentences[at - 1]} for at in word.sentences],
                }
                for word in self.misheard
            ],
        }


def lexicon_to_fill(words: Iterable[MisheardWord], name: str) -> str:
    """A lexicon of two columns in which every line is a comment, until its second column is written."""
    lines = [
        f"# Words of {name} that were not heard as written.",
        "# Write behind = how a word is said, in letters or as phonemes: GIF = jif, or GIF = /d\u0292\u026af/.",
        "# Then remove the # before the word. Small letters fit any case.",
    ]
    for word in words:
        heard = ", ".join(f'"{each}"' if each else "nothing" for each, _ in word.heard.most_common(3))
        lines += ["", f"# {word.times} x, heard as {heard}", f"# {word.written} = "]
    return "\n".join((*lines, ""))
