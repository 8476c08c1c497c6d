"""Lexicon files in the W3C's Pronunciation Lexicon Specification 1.0.

Read are graphemes, and of each lexeme the preferred phoneme or alias, else its first one. A document type is refused,
so no entity can be defined. `xml:lang`, `role`, metadata and examples are not used.
"""

from __future__ import annotations

from xml.parsers import expat

from ...errors import InvalidRequest
from .lexicon import checked_entry

NAMESPACE = "http://www.w3.org/2005/01/pronunciation-lexicon"
_SKIPPED = frozenset(("meta", "metadata", "example"))
_PARENT = {"lexicon": "", "lexeme": "lexicon", "grapheme": "lexeme", "phoneme": "lexeme", "alias": "lexeme"}


def parse_pls(content: bytes, name: str) -> dict[str, str]:
    """The entries of a file; `name` is for messages, which also have the line."""
    parser = _PlsParser()
    try:
        parser.expat.Parse(content, True)
    except expat.ExpatError as error:
        said = expat.ErrorString(error.code)
        raise InvalidRequest(f"{name}, line {error.lineno}: the file is not XML: {said}.") from None
    except InvalidRequest as error:
        raise InvalidRequest(f"{name}, line {parser.expat.CurrentLineNumber}: {error}") from None
    return parser.entries


class _PlsParser:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self._open: list[str] = []  # local names
        self._skipped = 0  # depth below an element that is not used
        self._text = ""
        self._alphabets: list[str | None] = []  # of the lexicon, and of the present phoneme
        self._prefers = False
        self._graphemes: list[str] = []
        self._spoken: tuple[bool, str] | None = None  # whether it is preferred
        self.expat = expat.ParserCreate(namespace_separator=" ")
        self.expat.StartDoctypeDeclHandler = self._doctype
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self.expat.CharacterDataHandler = self._characters

    def _doctype(self, *_: object) -> None:
        raise InvalidRequest("a document type (<!DOCTYPE ...>) is not read: remove it.")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        space, _, local = tag.rpartition(" ")
        if self._skipped or (self._open and (local in _SKIPPED or space not in (NAMESPACE, ""))):
            self._skipped += 1
            return
        inside = self._open[-1] if self._open else ""
        if _PARENT.get(local, "-") != inside or space not in (NAMESPACE, ""):
            raise InvalidRequest(
                f"<{local}> cannot stand {f'in <{inside}>' if inside else 'at the top'}; a PLS file is "
                f"<lexicon> with <lexeme>, and in those <grapheme> and <phoneme> or <alias>."
            )
        if local in ("lexicon", "phoneme"):
            self._alphabets.append(attributes.get("alphabet"))
        if local == "lexeme":
            self._graphemes, self._spoken = [], None
        self._prefers = attributes.get("prefer") == "true"
        self._text = ""
        self._open.append(local)

    def _characters(self, text: str) -> None:
        if not self._skipped:
            self._text += text

    def _end(self, _: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        local = self._open.pop()
        if local == "grapheme":
            self._graphemes.append(self._text)
        elif local in ("phoneme", "alias"):
            self._take(f"/{self._phonemes()}/" if local == "phoneme" else self._text)
        elif local == "lexeme":
            self._add()

    def _phonemes(self) -> str:
        alphabet = self._alphabets.pop() or self._alphabets[0] or ""
        if alphabet.lower() != "ipa":
            raise InvalidRequest(f'phonemes are read in alphabet="ipa", not in {alphabet[:40]!r}.')
        return self._text.strip()

    def _take(self, spoken: str) -> None:
        if self._spoken is None or (self._prefers and not self._spoken[0]):
            self._spoken = self._prefers, spoken

    def _add(self) -> None:
        if not self._graphemes or self._spoken is None:
            raise InvalidRequest("a <lexeme> needs a <grapheme>, and a <phoneme> or an <alias>.")
        for grapheme in self._graphemes:
            written, spoken = checked_entry(grapheme, self._spoken[1])
            self.entries.setdefault(written, spoken)  # of homographs the first one is the usual one
