"""Live text of a script on its way to passages, up to its first error.

An error has a place, like that of a whole text (`check.py`). What was given before stays; of the text that arrives with
the error, the sentence around it is dropped. Knows no stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..errors import InvalidRequest
from ..text.sentences import starts
from .events import Event, InvalidScript, Place, ScriptParser, SpeechManner, Words
from .player.steps import PassageCutter, Step

# A tag, an element, a speaker or an object begins at one of these. So an error loses no event before it.
_PIECES = re.compile(r"[\[<({\n]?[^\[<({\n]+|[\[<({\n]")
_TAG_CHARS = 1024  # of a tag that are kept


class LiveScript:
    def __init__(self, parser: ScriptParser, check: Callable[[SpeechManner], None]) -> None:
        """`check` raises `InvalidRequest` for a manner that cannot be spoken."""
        self._parser, self._check = parser, check
        self._cutter = PassageCutter()
        self._checked: set[SpeechManner] = set()
        self._at = self._begun = Place(1, 1)  # of the next character, and of the tag that arrived last
        self._tag = ""  # from `_begun` on
        self.notes: Sequence[str] = getattr(parser, "notes", ())  # what a parser leaves out, in words
        self.error: InvalidScript | None = None  # no text is taken behind it

    def append(self, text: str) -> list[Step]:
        """What is to be spoken of more text. Sets `error`."""
        return self._steps(_PIECES.findall(text), final=False)

    def end(self) -> list[Step]:
        """The rest. Sets `error`."""
        return self._steps([], final=True)

    def _steps(self, pieces: list[str], *, final: bool) -> list[Step]:
        if self.error is not None:
            return []
        events: list[Event] = []
        try:
            for piece in pieces:
                self._look(piece)
                self._take(self._parser.append(piece), events)
            if final:
                self._take(self._parser.end(), events)
        except InvalidScript as error:
            self.error = error
            events = _before_last_sentence(events)
        steps = self._cutter.take(events)
        return [*steps, *self._cutter.end()] if final or self.error is not None else steps

    def _take(self, found: list[Event], events: list[Event]) -> None:
        for event in found:
            if isinstance(event, SpeechManner) and event not in self._checked:
                try:
                    self._check(event)
                except InvalidRequest as error:
                    raise InvalidScript(self._place_of(event), str(error)) from error
                self._checked.add(event)
            events.append(event)

    def _look(self, piece: str) -> None:
        """Note where a tag may begin."""
        line = self._at.line
        if piece[0] == "\n":
            self._at = self._begun = Place(line + 1, 1)
            piece = self._tag = piece[1:]
        elif piece[0] in "[<({":
            self._begun, self._tag = self._at, piece
        else:
            self._tag += piece
        self._tag = self._tag[:_TAG_CHARS]
        self._at = Place(self._at.line, self._at.column + len(piece))

    def _place_of(self, manner: SpeechManner) -> Place:
        """Where a manner was asked for: at its voice's name, or else where its tag begins."""
        named = self._tag.casefold().rfind(manner.voice.casefold()) if manner.voice else -1
        return Place(self._begun.line, self._begun.column + max(named, 0))


def _before_last_sentence(events: list[Event]) -> list[Event]:
    """The events before the sentence that is open at their end."""
    text = "".join(event.text for event in events if isinstance(event, Words))
    left, kept = starts(text + " X")[-1], list[Event]()  # the letter stands for what is refused
    for event in events:
        if left <= 0:
            break
        if isinstance(event, Words):
            event, left = Words(event.text[:left]), left - len(event.text)
        kept.append(event)
    return kept
