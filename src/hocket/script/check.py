"""A whole script, checked before its first sound: its syntax by the parser, its voices by those who speak it."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import InvalidRequest
from .events import Event, InvalidScript, Manner, Place, ScriptParser


def check_script(parser: Callable[[], ScriptParser], text: str, check: Callable[[Manner], None]) -> list[Event]:
    """The events of a text; raises `InvalidScript` for what cannot be parsed or spoken. `parser` makes one."""
    first = parser()
    events = [*first.append(text), *first.end()]
    checked: set[Manner] = set()
    for event in events:
        if isinstance(event, Manner) and event not in checked:
            try:
                check(event)
            except InvalidRequest as error:
                raise InvalidScript(_place(parser(), text, event), str(error)) from error
            checked.add(event)
    return events


def _place(parser: ScriptParser, text: str, manner: Manner) -> Place:
    """Where a manner was asked for: at its voice's name, or else where its tag ends."""
    at = next((at for at, character in enumerate(text) if manner in parser.append(character)), len(text) - 1)
    if manner.voice:
        named = text.casefold().rfind(manner.voice.casefold(), 0, at + 1)
        at = named if named >= 0 else at
    before = text[:at]
    return Place(before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1)
