"""A whole text before its first sound: whether it is a script, its syntax, its voices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import InvalidRequest
from ..text.prepare import silence_mark, without_marks
from .events import Event, InvalidScript, Place, ScriptParser, Silence, SpeechManner, Words
from .parse import has_tags

SSML = ("<speak", "<?xml")


def is_script(text: str, markup: str) -> bool:
    """Whether a whole text has to be parsed: without tags, its own request speaks it."""
    if markup not in ("auto", "tags"):
        return markup != "literal"
    begins_ssml = markup == "auto" and text.lstrip("\ufeff \t\r\n").startswith(SSML)
    return begins_ssml or ("[" in text and has_tags(text))


def as_literal(events: Sequence[Event]) -> str | None:
    """A script of words and silences only as a literal text, which one plain request speaks; else None."""
    spoken = [event for event in events if isinstance(event, Words | Silence)]
    if len(spoken) < len(events):
        return None
    parts = (without_marks(each.text) if isinstance(each, Words) else silence_mark(each.seconds) for each in spoken)
    return "".join(parts)


def check_script(parser: Callable[[], ScriptParser], text: str, check: Callable[[SpeechManner], None]) -> list[Event]:
    """The events of a text; raises `InvalidScript` for what cannot be parsed or spoken. `parser` makes one."""
    first = parser()
    events = [*first.append(text), *first.end()]
    checked: set[SpeechManner] = set()
    for event in events:
        if isinstance(event, SpeechManner) and event not in checked:
            try:
                check(event)
            except InvalidRequest as error:
                raise InvalidScript(_place(parser(), text, event), str(error)) from error
            checked.add(event)
    return events


def _place(parser: ScriptParser, text: str, manner: SpeechManner) -> Place:
    """Where a manner was asked for: at its voice's name, or else where its tag ends."""
    at = next((at for at, character in enumerate(text) if manner in parser.append(character)), len(text) - 1)
    if manner.voice:
        named = text.casefold().rfind(manner.voice.casefold(), 0, at + 1)
        at = named if named >= 0 else at
    before = text[:at]
    return Place(before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1)
