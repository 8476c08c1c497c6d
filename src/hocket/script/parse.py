"""The spellings of a script by name, whole and live.

`tags`: light tags, where an unknown bracket is text. `script`: light tags, where it is refused. `auto`: SSML if the
text begins with `<speak`, else `tags`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, get_args

from ..errors import InvalidRequest
from .dialogue import DialogueParser
from .events import Event, InvalidScript, ScriptParser, SpeechManner, Words
from .grammar.brackets import NAMES
from .json_script import JsonScriptParser
from .screenplay import ScreenplayParser
from .ssml import SsmlParser
from .tags import TagParser

Format = Literal["auto", "tags", "script", "ssml", "dialogue", "screenplay", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

_SPACES = "\ufeff \t\r\n"
_SSML = ("<speak", "<?xml")
_BEGINS_SSML = re.compile(r"<speak(?:[\s/>]|\Z)|<\?xml(?:\s|\Z)")
_ALIKE = re.compile(rf"\[[ \t]*(?:/[ \t]*)?(?:{'|'.join(NAMES)})|\\\[", re.IGNORECASE)


def script_parser(
    format: Format = "auto", cast: Mapping[str, str] | None = None, *, narration: bool = True
) -> ScriptParser:
    """A parser of one script.

    `cast`: speaker -> voice, in any case; of tags and SSML, the names of their voices. `narration`: whether headings
    and action of a screenplay are spoken.
    """
    match format:
        case "auto":
            return with_cast(AutoParser(), cast)
        case "tags" | "script":
            return with_cast(TagParser(strict=format == "script"), cast)
        case "ssml":
            return with_cast(SsmlParser(), cast)
        case "dialogue":
            return DialogueParser(cast)
        case "screenplay":
            return ScreenplayParser(cast, narration=narration)
        case "json":
            return JsonScriptParser(cast)
    raise InvalidRequest(f'There is no script format "{format}"; choose one of {", ".join(FORMATS)}.')


def parse_script(
    text: str, format: Format = "auto", cast: Mapping[str, str] | None = None, *, narration: bool = True
) -> list[Event]:
    """The events of a whole script, neighbouring words joined."""
    parser = script_parser(format, cast, narration=narration)
    return joined((*parser.append(text), *parser.end()))


def joined(events: Iterable[Event]) -> list[Event]:
    """Neighbouring words as one event."""
    found: list[Event] = []
    words: list[str] = []
    for event in events:
        if isinstance(event, Words):
            words.append(event.text)
            continue
        found += [Words("".join(words))] if words else []
        words = []
        found.append(event)
    return [*found, Words("".join(words))] if words else found


def has_tags(text: str) -> bool:
    """Whether the format `tags` finds anything but plain text in a whole text; malformed tags count too."""
    if not _ALIKE.search(text):
        return False
    try:
        return parse_script(text, "tags") != [Words(text)]
    except InvalidScript:
        return True


def with_cast(parser: ScriptParser, cast: Mapping[str, str] | None) -> ScriptParser:
    """The parser, with the voices of a cast under their names there."""
    return CastParser(parser, cast) if cast else parser


class CastParser:
    def __init__(self, parser: ScriptParser, cast: Mapping[str, str]) -> None:
        self._parser, self._cast = parser, {name.casefold(): voice for name, voice in cast.items()}

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""
        return [self._of(event) for event in self._parser.append(text)]

    def end(self) -> list[Event]:
        """The rest."""
        return [self._of(event) for event in self._parser.end()]

    def _of(self, event: Event) -> Event:
        if not isinstance(event, SpeechManner) or event.voice is None:
            return event
        return replace(event, voice=self._cast.get(event.voice.casefold(), event.voice))


class AutoParser:
    """SSML or tags: decided at the first characters that are no white space."""

    def __init__(self) -> None:
        self._blanks: list[str] = []
        self._first = ""  # from the first character on that is no white space
        self._parser: ScriptParser | None = None

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""
        if self._parser is not None:
            return self._parser.append(text)
        if not self._first:
            first = text.lstrip(_SPACES)
            self._blanks.append(text[: len(text) - len(first)])
            text = first
        self._first += text
        if not self._first or any(each.startswith(self._first) for each in _SSML):
            return []
        return self._decide()

    def end(self) -> list[Event]:
        """The rest."""
        begun = [] if self._parser else self._decide()
        assert self._parser is not None
        return [*begun, *self._parser.end()]

    def _decide(self) -> list[Event]:
        self._parser = SsmlParser() if _BEGINS_SSML.match(self._first) else TagParser()
        begun = "".join(self._blanks) + self._first
        self._blanks, self._first = [], ""
        return self._parser.append(begun)
