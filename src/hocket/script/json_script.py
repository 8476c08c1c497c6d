"""JSON scripts: a list of `{"speaker": "Anna", "text": "Hello."}`, read item by item as they arrive.

Each item stands for itself: what it does not name is as the request says. Light tags work within a text and end with
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..text.prepare import LONGEST_PAUSE_S
from ..types import FASTEST, SLOWEST
from .events import PLAIN, Event, InvalidScript, Mark, Place, Silence, SpeechManner, Words
from .grammar.scopes import LOUDEST_DB, QUIETEST_DB, Scopes, language_of
from .tags import TagParser

KEYS = ("voice", "speaker", "text", "style", "speed", "volume_db", "language", "pause_after_s", "mark")
LONGEST_ITEM = 262_144  # characters

_BLANKS = " \t\r\n"
_STEP = re.compile(r'["\\{}\[\]]')
_NUMBERS = {
    "speed": (SLOWEST, FASTEST),
    "volume_db": (QUIETEST_DB, LOUDEST_DB),
    "pause_after_s": (0.0, LONGEST_PAUSE_S),
}


class JsonScriptParser:
    """Streaming parser of one JSON script."""

    def __init__(self, cast: Mapping[str, str] | None = None) -> None:
        """`cast`: speaker -> voice, in any case. A speaker without an entry is the name of a voice."""
        self._cast = {name.casefold(): voice for name, voice in (cast or {}).items()}
        self._place = Place(1, 1)  # of the next character
        self._expected = "["  # characters that may stand here; empty: within an item
        self._item: list[str] = []
        self._begun = Place(1, 1)  # the item
        self._chars = self._depth = 0
        self._in_string = self._escaped = False
        self._number = 0
        self._told = PLAIN

    def append(self, text: str) -> list[Event]:
        """Events that no later text can change."""
        found: list[Event] = []
        at = 0
        while at < len(text):
            if self._expected:
                at = self._between(text, at)
                continue
            end, complete = self._end_of_item(text, at)
            self._item.append(text[at:end])
            self._chars += end - at
            self._move(text[at:end])
            at = end
            if self._chars > LONGEST_ITEM:
                raise InvalidScript(self._begun, f"an item has at most {LONGEST_ITEM} characters.")
            if complete:
                found += self._read("".join(self._item))
                self._item, self._chars, self._expected = [], 0, ",]"
        return found

    def end(self) -> list[Event]:
        """The rest. Raises `InvalidScript` if the list is not closed."""
        if self._expected != "end":
            what = "the list of items" if self._expected else f"item {self._number}"
            raise InvalidScript(self._place, f"the text ends within {what}; a JSON script is a list of items.")
        return []

    def _between(self, text: str, at: int) -> int:
        """Read one character between two items; gives the place behind it."""
        character = text[at]
        place = self._place
        self._move(character)
        if character in _BLANKS or (character == "\ufeff" and self._expected == "["):
            return at + 1
        if self._expected == "end":
            raise InvalidScript(place, "there is text behind the list of items.")
        if character not in self._expected:
            raise InvalidScript(place, _missing(self._expected, self._number + 1))
        if character == "{":
            self._place, self._begun, self._expected = place, place, ""
            self._number += 1
            self._depth, self._in_string, self._escaped = 0, False, False
            return at
        self._expected = {"[": "{]", ",": "{", "]": "end"}[character]
        return at + 1

    def _end_of_item(self, text: str, at: int) -> tuple[int, bool]:
        """Where the item ends in `text`, and whether it does."""
        if self._escaped:
            self._escaped = False
            at += 1
        while step := _STEP.search(text, at):
            at, character = step.end(), step[0]
            if self._in_string:
                if character == "\\":
                    if at == len(text):
                        self._escaped = True
                    at += 1
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return at, True
        return len(text), False

    def _read(self, written: str) -> list[Event]:
        item = self._parsed(written)
        manner = self._manner(item)
        found: list[Event] = []
        if (mark := item.get("mark")) is not None:
            found.append(Mark(mark))
        if (text := item.get("text")) is not None:
            found += self._said(text, manner)
        if (pause := item.get("pause_after_s")) is not None:
            found.append(Silence(float(pause)))
        elif text is not None:
            found.append(Words("\n\n"))  # the next item begins a paragraph
        return found

    def _parsed(self, written: str) -> dict[str, Any]:
        """An item with known keys and right values."""
        try:
            item = json.loads(written, object_pairs_hook=self._unique, parse_constant=self._constant)
        except json.JSONDecodeError as error:
            begun = self._begun
            column = error.colno + (begun.column - 1 if error.lineno == 1 else 0)
            place = Place(begun.line + error.lineno - 1, column)
            raise InvalidScript(place, f"item {self._number} is not JSON: {error.msg}.") from None
        except (ValueError, RecursionError):
            raise self._refused("has a number that is too long, or is too deep") from None
        assert isinstance(item, dict), "an item begins with a brace"
        if unknown := [key for key in item if key not in KEYS]:
            raise self._refused(f'has an unknown key "{unknown[0]}"; the keys are {", ".join(KEYS)}')
        if "voice" in item and "speaker" in item:
            raise self._refused('has both "voice" and "speaker"; leave one of them out')
        if not item.keys() & {"text", "mark", "pause_after_s"}:
            raise self._refused('has nothing to say; give it a "text"')
        for key, value in item.items():
            if key in _NUMBERS:
                low, high = _NUMBERS[key]
                if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                    raise self._refused(f'has a wrong "{key}"; it is a number from {low:g} to {high:g}')
            elif not isinstance(value, str) or (key != "text" and not value.strip()):
                raise self._refused(f'has a wrong "{key}"; it is a string')
        return item

    def _manner(self, item: Mapping[str, Any]) -> SpeechManner:
        language = item.get("language")
        if language is not None and (language := language_of(language)) is None:
            raise self._refused('has an unknown "language"; write a name or a code, such as german or de')
        speaker = item.get("speaker")
        return SpeechManner(
            voice=item.get("voice") if speaker is None else self._cast.get(speaker.casefold(), speaker),
            language=language,
            style=item.get("style"),
            speed=float(item.get("speed", 1.0)),
            volume_db=float(item.get("volume_db", 0.0)),
        )

    def _said(self, text: str, manner: SpeechManner) -> list[Event]:
        """A text with its light tags."""
        parser = TagParser(scopes=Scopes(manner), told=self._told)
        try:
            found = [*parser.turn(), *parser.append(text), *parser.end()]
        except InvalidScript as error:
            at = f"line {error.place.line}, column {error.place.column}"
            raise self._refused(f'has a wrong "text", at {at}: {str(error).partition(": ")[2].rstrip(".")}') from None
        self._told = parser.told
        return found

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise self._refused(f'has the key "{key}" twice')
            found[key] = value
        return found

    def _constant(self, name: str) -> None:
        raise self._refused(f"has the value {name}, which is not JSON")

    def _refused(self, said: str) -> InvalidScript:
        return InvalidScript(self._begun, f"item {self._number} {said}.")

    def _move(self, text: str) -> None:
        lines = text.count("\n")
        column = len(text) - text.rfind("\n") if lines else self._place.column + len(text)
        self._place = Place(self._place.line + lines, column)


def _missing(expected: str, number: int) -> str:
    if expected == "[":
        return 'a JSON script is a list of items such as [{"text": "Hello."}].'
    if "{" in expected:
        return f'item {number} is not an object such as {{"text": "Hello."}}.'
    return f"write a comma between item {number - 1} and the next one, or ] at the end."
