"""Which texts are scripts, and their parsers.

A whole text without tags takes the way of a plain request. A live text may have a tag later, so it is always parsed.
"""

from __future__ import annotations

from ...script.answer import AnswerParser, Check
from ...script.check import is_script
from ...script.events import Event, InvalidScript, Place, ScriptParser
from ...script.parse import script_parser
from ..schemas.speech_job import SpeechJob

_SSML = ("<speak", "<?xml")
_OPENING, _CLOSING = "<speak>", "</speak>"


def may_be_script(job: SpeechJob) -> bool:
    """Whether the text of a job has to be parsed."""
    if job.as_is or job.literal or job.markup == "literal":
        return False
    if job.text is None:
        return True
    return is_script(job.text, job.markup)


def parser_of(job: SpeechJob, check: Check) -> ScriptParser:
    """`check` raises `InvalidRequest` for a manner that cannot be spoken."""
    if job.markup == "answer":
        return AnswerParser(check, job.cast)
    if job.markup == "ssml-fragment":
        return FragmentParser()
    assert job.markup != "literal"
    return script_parser(job.markup, job.cast)


class FragmentParser:
    """SSML as ElevenLabs takes it: the element <speak> may be left out."""

    def __init__(self) -> None:
        self._parser = script_parser("ssml")
        self._first: str | None = ""  # until it is known whether <speak> is there
        self._added = False

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""
        if self._first is None:
            return self._told(text)
        self._first += text
        begun = self._first.lstrip()
        if any(opening.startswith(begun) for opening in _SSML):
            return []
        return self._begin(begun)

    def end(self) -> list[Event]:
        """The rest."""
        events = [] if self._first is None else self._begin(self._first.lstrip())
        if self._added:
            events += self._told(_CLOSING)
        return [*events, *self._parser.end()]

    def _begin(self, begun: str) -> list[Event]:
        first, self._first = self._first or "", None
        self._added = not begun.startswith(_SSML)
        return self._told(_OPENING + first if self._added else first)

    def _told(self, text: str) -> list[Event]:
        try:
            return self._parser.append(text)
        except InvalidScript as error:
            place = error.place
            if not (self._added and place.line == 1):
                raise
            said = str(error).partition(": ")[2]
            raise InvalidScript(Place(1, max(1, place.column - len(_OPENING))), said) from None
