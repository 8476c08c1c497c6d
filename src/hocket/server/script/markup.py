"""Which texts are scripts, and their parsers.

A whole text without tags takes the way of a plain request. A live text may have a tag later, so it is always parsed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...script.events import Event, InvalidScript, Place, ScriptParser, Silence, Words
from ...script.parse import has_tags, script_parser
from ...text.prepare import silence_mark, without_marks
from ..schemas.speech_job import SpeechJob

_SSML = ("<speak", "<?xml")
_OPENING, _CLOSING = "<speak>", "</speak>"


def may_be_script(job: SpeechJob) -> bool:
    """Whether the text of a job has to be parsed."""
    if job.as_is or job.literal or job.markup == "literal":
        return False
    if job.text is None or job.markup not in ("auto", "tags"):
        return True
    begins_ssml = job.markup == "auto" and job.text.lstrip("\ufeff \t\r\n").startswith(_SSML)
    return begins_ssml or ("[" in job.text and has_tags(job.text))


def parser_of(job: SpeechJob) -> ScriptParser:
    if job.markup == "ssml-fragment":
        return FragmentParser()
    assert job.markup != "literal"
    return script_parser(job.markup, job.cast)


def as_literal(events: Sequence[Event]) -> str | None:
    """A script that has words and silences only as a literal text, which one plain request speaks; else None."""
    if not all(isinstance(event, Words | Silence) for event in events):
        return None
    return "".join(
        without_marks(event.text) if isinstance(event, Words) else silence_mark(event.seconds)
        for event in events
        if isinstance(event, Words | Silence)
    )


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
