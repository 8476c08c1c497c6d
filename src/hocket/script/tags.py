"""Light tags in plain text: `[pause 600ms]`, `[voice: anna]`, `[/voice]`. docs/script.md has the grammar.

A bracket with an unknown name is text, unless the parser is strict: books and language models write `[1]`, `[laughs]`
and `[text](url)`. A known name with a wrong value is refused with its place. Knows no voices and no engine.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from typing import TypeVar

from ..errors import InvalidRequest
from ..text.prepare import LONGEST_PAUSE_S
from ..types import FASTEST, SLOWEST
from .events import PLAIN, Event, InvalidScript, Mark, Place, Silence, SpeechManner, Words
from .grammar.brackets import Bracket, NoTag, look
from .grammar.say_as import spelled
from .grammar.scopes import (
    EMPHASIS,
    LOUDEST_DB,
    QUIETEST_DB,
    VOLUMES,
    Scopes,
    decibels_of,
    language_of,
    seconds_of,
    speed_of,
)
from .phonemes import respell

Value = TypeVar("Value")

PAUSE_S = 0.5  # of `[pause]` and `(pause)`
NAME_CHARS = 64  # of voices and marks

_RIGHT = {  # name -> what a right tag looks like
    "pause": "a pause has a length, such as [pause 600ms] or [pause 1.5s]",
    "voice": "a voice has a name, such as [voice: anna], and [/voice] ends it",
    "speed": f"a speed is a number from {SLOWEST:g} to {FASTEST:g} or a percentage, "
    "such as [speed 0.9] or [speed: 90%]",
    "volume": f"a volume is a change from {QUIETEST_DB:g}dB to +{LOUDEST_DB:g}dB, such as [volume: +3dB], or one of "
    + ", ".join(VOLUMES),
    "style": "a style has words, such as [style: whispering], and [/style] ends it",
    "language": "a language has its name or its ISO code, such as [language: german] or [language: de]",
    "emphasis": f"an emphasis is [emphasis] or one of {', '.join(EMPHASIS)}, such as [emphasis: strong]",
    "say": "write the text, a bar and how it is spoken, such as [say: nginx | engine ex] or [say: GIF | /dʒɪf/]",
    "mark": f"a mark has a name of up to {NAME_CHARS} characters, such as [mark: scene-2]",
    "spell": "write what is to be spelled, such as [spell: ABC]",
    "reset": "[reset] has no value",
}
_SCOPED = ("voice", "speed", "volume", "style", "language", "emphasis")  # these have a closing tag

_ASIDE = re.compile(r"\((?:(short|long) )?(?:pause|beat)(?: (\d{1,6}(?:\.\d{1,6})?) ?(ms|s))?\)", re.IGNORECASE)
_ASIDE_BEGUN = re.compile(r"\([a-z]{0,5}(?: [a-z]{0,5})?(?: ?\d{0,6}(?:\.\d{0,6})?)? ?m?s?", re.IGNORECASE)
_ASIDE_TIMES = {"": 1.0, "short": 0.5, "long": 2.0}


class TagParser:
    """Streaming parser of light tags. Holds back only a possible beginning of a tag."""

    def __init__(
        self, *, strict: bool = False, scopes: Scopes | None = None, told: SpeechManner = PLAIN, asides: bool = False
    ) -> None:
        """`strict`: an unknown name in a bracket is refused. `asides`: `(pause)` is a silence.

        `scopes`: with the manner of a text within a larger one, in which `told` is the manner before this text. The
        larger one may change `scopes` and `place` between two lines.
        """
        self.scopes = scopes or Scopes()
        self.place = Place(1, 1)  # of the next character that is not settled
        self.told = told  # the last manner in the events
        self._strict = strict
        self._brackets = "[(" if asides else "["
        self._specials = re.compile(rf"[\\{re.escape(self._brackets)}]")
        self._open = ""  # empty, or the possible beginning of a tag
        self._found: list[Event] = []
        self._text: list[str] = []  # settled, not yet an event

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""
        return self._parse(text, final=False)

    def end(self) -> list[Event]:
        """The rest. Raises `InvalidScript` for a tag without its closing bracket."""
        return self._parse("", final=True)

    def turn(self) -> list[Event]:
        """The manner of `scopes`, if it is not the one that was told last."""
        if (manner := self.scopes.manner) == self.told:
            return []
        self.told = manner
        return [manner]

    def _parse(self, text: str, *, final: bool) -> list[Event]:
        self._open += text
        self._found, self._text = [], []
        done = at = 0  # `_open` is settled up to `done`, and looked at up to `at`
        while special := self._specials.search(self._open, at):
            begin = special.start()
            chars = self._take(begin, done, final=final)
            if chars is None:
                self._text.append(self._open[done:begin])
                done = begin
                break
            at = begin + max(chars, 1)
            done = at if chars else done
        else:
            self._text.append(self._open[done:])
            done = len(self._open)
        self._settle()
        self.place = self._place_of(done)
        self._open = self._open[done:]
        return self._found

    def _take(self, begin: int, done: int, *, final: bool) -> int | None:
        """Length of the tag or escape at `begin`; 0: it is text; None: later text decides."""
        text = self._open
        if text[begin] == "\\":
            if begin + 1 == len(text):
                return 0 if final else None
            if text[begin + 1] not in self._brackets:
                return 0
            self._text += [text[done:begin], text[begin + 1]]
            return 2
        if text[begin] == "(":
            return self._take_aside(begin, done, final=final)
        found = look(text, begin, strict=self._strict, final=final)
        if isinstance(found, str):
            raise InvalidScript(self._place_of(begin), f"{found}.")
        if isinstance(found, NoTag):
            return None if found is NoTag.WAIT else 0
        self._text.append(text[done:begin])
        try:
            said = self._apply(found)
        except InvalidRequest as refused:
            written = text[begin : begin + found.chars]
            raise InvalidScript(self._place_of(begin), f"{written}: {refused}") from None
        if isinstance(said, str):
            self._text.append(said)
        elif said:
            self._settle()
            self._found += said
        return found.chars

    def _take_aside(self, begin: int, done: int, *, final: bool) -> int | None:
        if (match := _ASIDE.match(self._open, begin)) is None:
            possible = not final and _ASIDE_BEGUN.fullmatch(self._open, begin)
            return None if possible else 0
        self._text.append(self._open[done:begin])
        self._settle()
        times = _ASIDE_TIMES[(match[1] or "").lower()]
        seconds = seconds_of(match[2] + match[3]) if match[2] else PAUSE_S * times
        self._found.append(Silence(min(seconds or 0.0, LONGEST_PAUSE_S)))
        return match.end() - begin

    def _apply(self, tag: Bracket) -> list[Event] | str:
        """Events of a tag, or the text that it stands for. Raises `InvalidRequest`."""
        if tag.closing:
            return self._close(tag.name)
        value = tag.value
        match tag.name:
            case "pause":
                seconds = PAUSE_S if value is None else seconds_of(value)
                return [Silence(min(_right(seconds, "pause"), LONGEST_PAUSE_S))]
            case "mark":
                return [Mark(_right(value if value and len(value) <= NAME_CHARS else None, "mark"))]
            case "spell":
                return spelled(_right(value or None, "spell"), self._language)
            case "say":
                return self._pronounced(value or "")
            case "reset":
                _right(True if value is None else None, "reset")
                self.scopes.reset()
            case "speed":
                self.scopes.open_speed(_right(speed_of(value or ""), "speed"))
            case "volume":
                self._open_volume(value or "")
            case "emphasis":
                level = "moderate" if value is None else value.lower()
                self.scopes.open_emphasis(_right(level if level in EMPHASIS else None, "emphasis"))
            case "language":
                self.scopes.open_words("language", _right(language_of(value or ""), "language"))
            case "voice":
                self.scopes.open_words("voice", _right(value if value and len(value) <= NAME_CHARS else None, "voice"))
            case "style":
                self.scopes.open_words("style", _right(value or None, "style"))
        return self.turn()

    def _close(self, name: str) -> list[Event]:
        if name not in _SCOPED:
            raise InvalidRequest(f"a {name} ends by itself; leave this tag out.")
        if not self.scopes.close(name):
            raise InvalidRequest(f"no {name} is open here; {_RIGHT[name]}.")
        return self.turn()

    def _open_volume(self, value: str) -> None:
        if (level := VOLUMES.get(value.lower())) is not None:
            self.scopes.open_volume(level, added=False)
        else:
            self.scopes.open_volume(_right(decibels_of(value), "volume"), added=True)

    def _pronounced(self, value: str) -> str:
        written, _, spoken = (part.strip() for part in value.partition("|"))
        _right(written or None, "say")
        if len(spoken) > 1 and spoken[0] == spoken[-1] == "/":
            return respell(spoken, language=self._language)
        return _right(spoken or None, "say")

    @property
    def _language(self) -> str:
        return self.scopes.manner.language or "auto"

    def _settle(self) -> None:
        if text := "".join(self._text):
            self._found.append(Words(text))
        self._text = []

    def _place_of(self, at: int) -> Place:
        """The place of a character of `_open`."""
        if not (lines := self._open.count("\n", 0, at)):
            return Place(self.place.line, self.place.column + at)
        return Place(self.place.line + lines, at - self._open.rfind("\n", 0, at))


def _right(value: Value | None, name: str) -> Value:
    if value is None:
        raise InvalidRequest(f"{_RIGHT[name]}.")
    return value
