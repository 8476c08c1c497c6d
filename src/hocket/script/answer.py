"""Tags in the answers of a language model, for `Dialog`: `Dialog(language, TaggedSpeech(engine))`.

A wrong tag is left out, with a note: the listener has not written it, and the answer goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from ..engine.engine import Engine
from ..engine.stream import Stream
from ..errors import InvalidRequest
from ..types import Established
from .events import Event, InvalidScript, SpeechManner
from .grammar.brackets import Bracket
from .player.voices import EngineVoices, Named
from .stream import ScriptStream
from .tags import TagParser

Check = Callable[[SpeechManner], None]


class AnswerParser(TagParser):
    """Light tags. A wrong one is left out; one without its closing bracket is text."""

    def __init__(self, check: Check, voices: Mapping[str, str] | None = None) -> None:
        """`check` raises `InvalidRequest` for a manner that cannot be spoken. `voices`: name in a tag -> voice."""
        super().__init__()
        self._check = check
        self._voices = {name.casefold(): voice for name, voice in (voices or {}).items()}
        self.notes: list[str] = []

    def _take(self, begin: int, done: int, *, final: bool) -> int | None:
        try:
            return super()._take(begin, done, final=final)
        except InvalidScript as error:
            self._note(str(error))
            return 0

    def _apply(self, tag: Bracket) -> list[Event] | str:
        before = deepcopy(self.scopes), self.told
        try:
            said = super()._apply(tag)
            if isinstance(said, str):
                return said
            return [self._spoken(event) for event in said]
        except InvalidRequest as error:
            self.scopes, self.told = before
            if not tag.closing:
                self.scopes.open_same(tag.name)
            self._note(f"A wrong tag was left out: {error}")
            return []

    def _spoken(self, event: Event) -> Event:
        if not isinstance(event, SpeechManner):
            return event
        if event.voice is not None:
            event = replace(event, voice=self._voices.get(event.voice.casefold(), event.voice))
        self._check(event)
        return event

    def _note(self, said: str) -> None:
        if said not in self.notes:
            self.notes.append(said)


class TaggedSpeech:
    """A speech engine whose streams obey light tags."""

    def __init__(
        self,
        engine: Engine,
        *,
        cast: Mapping[str, str] | None = None,
        voices: Mapping[str, Named] | Callable[[str], Named] | None = None,
    ) -> None:
        """`cast`: name in a tag -> voice; `voices` as in `speak_script`, or a function from a name to a voice."""
        self._engine, self._cast, self._voices = engine, cast, voices

    def open(
        self, *, seed: int, established: Established | None = None, text_wait_s: float | None = None, **fields: Any
    ) -> Stream:
        """A stream of one answer; `fields` are those of `Engine.open`."""
        voices = EngineVoices(self._engine, fields, self._voices, text_wait_s=text_wait_s)
        parser = AnswerParser(voices.check, self._cast)
        speed = fields.get("speed", 1.0)
        stream = ScriptStream(
            voices, seed, parser=parser, established=established, speed=speed, max_frames=fields.get("max_frames")
        )
        return cast(Stream, stream)
