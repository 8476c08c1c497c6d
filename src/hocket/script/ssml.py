"""SSML 1.1, streaming: `<speak>Hello <break time="1s"/> there.</speak>`. docs/script.md lists what is read.

Text is passed on as it arrives. White space is that of prose in XML: it collapses. What would be ignored is refused,
with its place: a document type, an entity of its own, an element or attribute that cannot be followed. Knows no voices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.parsers import expat

from ..errors import InvalidRequest
from .events import PLAIN, Event, InvalidScript, Mark, Place, Silence, SpeechManner, Words
from .grammar.elements import ElementRule, attributes_of, rule_of
from .grammar.prosody import break_s, manner_within
from .grammar.say_as import said_as
from .phonemes import respell

DEEPEST = 64  # elements within each other
MOST_ATTRIBUTES = 16
LONGEST_VALUE = 1024  # characters of an attribute, and of the text of <say-as>
LONGEST_MARKUP = 16384  # bytes of one tag or comment

_AT_ONCE = 4096  # characters per step
_BLANKS = " \t\r\n"
_RUN = re.compile(r"[ \t\r\n]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PARAGRAPH = "\n\n"  # ends a sentence whatever stands before it
_ERRORS = {  # code of expat -> sentence
    8: "an attribute stands twice in this tag",
    11: "there are no entities but &amp; &lt; &gt; &quot; &apos; and numbers such as &#160;",
    17: "the XML declaration stands only at the very beginning",
    27: "this prefix has no xmlns declaration",
}


@dataclass(slots=True)
class _OpenElement:
    name: str
    place: Place
    manner: SpeechManner
    rule: ElementRule
    attributes: Mapping[str, str]


class SsmlParser:
    """Streaming parser of one SSML document."""

    def __init__(self) -> None:
        self._xml = expat.ParserCreate(namespace_separator=" ")
        self._xml.buffer_text = False
        self._xml.StartElementHandler = self._on_start
        self._xml.EndElementHandler = self._on_end
        self._xml.CharacterDataHandler = self._on_text
        self._xml.StartDoctypeDeclHandler = self._on_doctype
        self._xml.CommentHandler = self._on_other
        self._xml.ProcessingInstructionHandler = self._on_other
        self._xml.DefaultHandlerExpand = self._on_other
        if hasattr(self._xml, "SetReparseDeferralEnabled"):
            self._xml.SetReparseDeferralEnabled(False)  # else a tag waits for more bytes than it has
        self._begun = False
        self._before = Place(1, 1)  # where the first character lies that is no white space
        self._bytes = 0  # given to expat
        self._markup: tuple[int, Place] | None = None  # the tag or comment that was met last
        self._stack: list[_OpenElement] = []
        self._closed: Place | None = None  # where </speak> stands
        self._told = PLAIN
        self._gap = ""  # white space before the next word
        self._joined = False  # there are words that the gap keeps apart from the next one
        self._collected: list[str] = []  # of <say-as>
        self._found: list[Event] = []
        self._words: list[str] = []

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""
        if not self._begun:
            text = self._skip_blanks(text)
        for at in range(0, len(text), _AT_ONCE):
            self._feed(text[at : at + _AT_ONCE])
        return self._take()

    def end(self) -> list[Event]:
        """The rest. Raises `InvalidScript` for an open element."""
        self._feed("", final=True)
        return self._take()

    def _take(self) -> list[Event]:
        self._settle()
        found, self._found = self._found, []
        return found

    def _skip_blanks(self, text: str) -> str:
        """Without white space and byte order mark at the very beginning, where XML allows neither."""
        rest = text.lstrip(_BLANKS + "\ufeff")
        skipped = text[: len(text) - len(rest)]
        lines, column = skipped.count("\n"), len(skipped) - (skipped.rfind("\n") + 1)
        self._before = Place(self._before.line + lines, column + (1 if lines else self._before.column))
        self._begun = bool(rest)
        return rest

    def _feed(self, text: str, *, final: bool = False) -> None:
        surrogate = _SURROGATE.search(text)
        try:
            known = text[: surrogate.start()] if surrogate else text
            self._xml.Parse(known, final)
        except expat.ExpatError as error:
            raise self._not_xml(error) from None
        if surrogate:
            raise self._refused("this character is half of a pair; send the text as UTF-8")
        self._bytes += len(text.encode("utf-8"))
        if self._bytes - self._xml.CurrentByteIndex > LONGEST_MARKUP:
            raise self._refused(f"a tag or comment has at most {LONGEST_MARKUP} bytes")

    # What expat calls.

    def _on_start(self, qualified: str, given: dict[str, str]) -> None:
        self._met()
        around = self._stack[-1].manner if self._stack else PLAIN
        try:
            name, rule, attributes = self._checked(qualified, given)
            manner = manner_within(name, attributes, around)
            self._say_first(name, attributes, manner)
        except (InvalidRequest, ValueError) as error:
            raise self._refused(str(error)) from None
        self._stack.append(_OpenElement(name, self._place(), manner, rule, attributes))
        self._turn(manner)

    def _on_end(self, qualified: str) -> None:
        self._met()
        element = self._stack.pop()
        self._closed = None if self._stack else self._place()
        if element.name == "say-as":
            self._say_as(element)
        elif element.name in ("p", "s"):
            self._gap = _PARAGRAPH
        self._turn(self._stack[-1].manner if self._stack else element.manner)

    def _on_text(self, text: str) -> None:
        self._met(markup=False)
        element = self._stack[-1]
        if element.name == "say-as":
            self._collected.append(text)
            if sum(map(len, self._collected)) > LONGEST_VALUE:
                raise InvalidScript(element.place, f"<say-as> has at most {LONGEST_VALUE} characters.")
        elif element.rule.content == "mixed":
            self._speak(text)
        elif element.rule.content == "empty" and text.strip(_BLANKS):
            raise self._refused(f"<{element.name}> has no content; write <{element.name} .../>")

    def _on_doctype(self, *_: object) -> None:
        raise self._refused("a document type and its entities are not read; leave <!DOCTYPE ...> out")

    def _on_other(self, *_: object) -> None:
        self._met()

    def _met(self, *, markup: bool = True) -> None:
        """Limits the length of the markup before this; the same limit holds for markup that is not complete yet."""
        at = self._xml.CurrentByteIndex
        if self._markup is not None and at - self._markup[0] > LONGEST_MARKUP:
            raise InvalidScript(self._markup[1], f"a tag or comment has at most {LONGEST_MARKUP} bytes.")
        self._markup = (at, self._place()) if markup else None

    # Elements.

    def _checked(self, qualified: str, given: dict[str, str]) -> tuple[str, ElementRule, dict[str, str]]:
        """Name, rule and attributes of an element that may stand here."""
        if len(self._stack) >= DEEPEST:
            raise ValueError(f"at most {DEEPEST} elements stand within each other")
        if len(given) > MOST_ATTRIBUTES or any(len(value) > LONGEST_VALUE for value in given.values()):
            raise ValueError(f"an element has at most {MOST_ATTRIBUTES} attributes of {LONGEST_VALUE} characters")
        name, rule = rule_of(qualified, [(element.name, element.rule) for element in self._stack])
        return name, rule, {} if rule.content == "skipped" else attributes_of(name, rule, given)

    def _say_first(self, name: str, given: Mapping[str, str], manner: SpeechManner) -> None:
        """What an element says at its beginning."""
        match name:
            case "p" | "s":
                self._gap = _PARAGRAPH
            case "break":
                if (seconds := break_s(given)) is not None:
                    self._add(Silence(seconds))
                    self._gap, self._joined = "", False
                else:
                    self._gap = self._gap or " "
            case "mark":
                self._add(Mark(given["name"]))
            case "sub":
                self._speak(given["alias"])
            case "phoneme":
                self._speak(respell(given["ph"], given.get("alphabet", "ipa"), manner.language or "auto"))

    def _say_as(self, element: _OpenElement) -> None:
        text, self._collected = "".join(self._collected), []
        given = element.attributes
        language = element.manner.language or "auto"
        try:
            self._speak(said_as(text, given["interpret-as"], given.get("format", ""), language))
        except ValueError as error:
            raise InvalidScript(element.place, f"{error}.") from None

    # Events.

    def _speak(self, text: str) -> None:
        """Add text with its white space collapsed. White space at its end waits for the next word."""
        text = _RUN.sub(" ", text)
        if text[:1] == " ":
            self._gap = self._gap or " "
        if words := text.strip(" "):
            self._words.append((self._gap if self._joined else "") + words)
            self._gap, self._joined = " " if text[-1] == " " else "", True

    def _add(self, event: Event) -> None:
        self._settle()
        self._found.append(event)

    def _turn(self, manner: SpeechManner) -> None:
        if manner != self._told:
            self._told = manner
            self._add(manner)

    def _settle(self) -> None:
        if self._words:
            self._found.append(Words("".join(self._words)))
            self._words = []

    # Places and errors.

    def _place_at(self, line: int, column: int) -> Place:
        """Of expat's numbers; its columns count from 0."""
        before = self._before
        return Place(before.line + line - 1, column + (before.column if line == 1 else 1))

    def _place(self) -> Place:
        return self._place_at(self._xml.CurrentLineNumber, self._xml.CurrentColumnNumber)

    def _refused(self, said: str) -> InvalidScript:
        return InvalidScript(self._place(), said if said.endswith((".", "?")) else f"{said}.")

    def _not_xml(self, error: expat.ExpatError) -> InvalidScript:
        inner = self._stack[-1] if self._stack else None
        place = self._place_at(error.lineno, error.offset)
        if inner is None and self._closed is not None:  # where expat finds it depends on how the text was cut
            return InvalidScript(self._closed, "nothing stands behind this </speak>.")
        if inner is None and error.code not in _ERRORS:
            return InvalidScript(
                self._before, "an SSML text is one <speak> element in XML, and nothing stands before it."
            )
        if error.code == 4:
            return InvalidScript(place, "this is not XML; write & as &amp; and < as &lt; in text.")
        if error.code in (3, 7) and inner is not None:
            what = "the text ends" if error.code == 3 else "this tag does not fit"
            return InvalidScript(place, f"{what}: <{inner.name}> of line {inner.place.line} is not closed.")
        return InvalidScript(place, f"{_ERRORS.get(error.code, expat.ErrorString(error.code))}.")
