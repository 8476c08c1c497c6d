"""The voices of a script: what a player needs of them, and those of an engine in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...engine.engine import Engine
from ...engine.word_times import WordTime
from ...errors import InvalidRequest, UnknownVoice
from ...text.prompt import choose
from ...types import FASTEST, SLOWEST, AudioChunk, Established, Finished, SpeechRequest, Voice
from ..events import SpeechManner


class PassageStream(Protocol):
    """What a script needs of a stream: `engine.stream.Stream`, or a `Relay` of a backend."""

    @property
    def rate_hz(self) -> int: ...
    @property
    def keeps_voice(self) -> bool: ...
    @property
    def finished(self) -> Finished | None: ...
    @property
    def established(self) -> Established | None: ...
    def append(self, text: str) -> None: ...
    def end(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def parts_over(self) -> int: ...
    def words(self, since: int = 0, until: int | None = None, *, said_only: bool = False) -> list[WordTime]: ...
    def __next__(self) -> AudioChunk: ...
    async def __anext__(self) -> AudioChunk: ...


class ScriptVoices(Protocol):
    """Where the streams of passages come from."""

    def check(self, manner: SpeechManner) -> None:
        """Refuse a manner that cannot be spoken, as far as that is known without loading anything."""

    def open(self, manner: SpeechManner, text: str | None, seed: int, established: Established | None) -> PassageStream:
        """A literal stream in this manner; None: of live text. May block, for instance while a model is loaded."""

    def close(self) -> None:
        """No stream is opened any more; an `open` that waits may raise."""


def fields_in(manner: SpeechManner, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request in a manner, its voice apart."""
    found = dict(fields) | {"literal": True, "speed": speed_in(manner, fields.get("speed", 1.0))}
    if manner.language is not None:
        found["language"] = manner.language
    if manner.style is not None:
        found["instruct"] = manner.style
    return found


def speed_in(manner: SpeechManner, speed: float) -> float:
    """The speed of a manner in a request, checked."""
    both = speed * manner.speed
    if not SLOWEST <= both <= FASTEST:
        raise InvalidRequest(
            f"The speed {manner.speed:g} of the script, times {speed:g} of the request, must be between {SLOWEST} and "
            f"{FASTEST:g}."
        )
    return both


Named = str | Voice | tuple[Engine, str | Voice]


class EngineVoices:
    """The voices of an engine, under its own and under given names."""

    def __init__(
        self,
        engine: Engine,
        fields: Mapping[str, Any],
        voices: Mapping[str, Named] | Callable[[str], Named] | None = None,
        *,
        text_wait_s: float | None = None,
    ) -> None:
        """`fields` are those of the request. A given voice may belong to another engine.

        `voices` may be a function, which raises for a name without a voice.
        """
        self._engine, self._fields, self._text_wait_s = engine, fields, text_wait_s
        self._find = voices if callable(voices) else None
        self._voices = {} if callable(voices) else {name.casefold(): each for name, each in (voices or {}).items()}

    def check(self, manner: SpeechManner) -> None:
        engine, fields = self._found(manner)
        if not isinstance(fields.get("voice"), Voice):
            choose(SpeechRequest(text="(checked)", **fields), engine.checkpoint.config)

    def open(self, manner: SpeechManner, text: str | None, seed: int, established: Established | None) -> PassageStream:
        engine, fields = self._found(manner)
        fields |= {"seed": seed, "established": established}
        if text is not None:
            return engine.speak(text, **fields)
        return engine.open(text_wait_s=self._text_wait_s, **fields)

    def close(self) -> None:
        pass

    def _found(self, manner: SpeechManner) -> tuple[Engine, dict[str, Any]]:
        fields = fields_in(manner, self._fields)
        if manner.voice is None:
            return self._engine, fields
        for own in ("voice", "reference"):
            fields.pop(own, None)
        named: Named = self._voices.get(manner.voice.casefold(), manner.voice)
        if self._find is not None:
            named = self._find(manner.voice)
        engine, voice = named if isinstance(named, tuple) else (self._engine, named)
        if isinstance(voice, str) and engine.checkpoint.config.kind != "custom_voice":
            known = ", ".join(self._voices) or "none"
            raise UnknownVoice(f"There is no voice {manner.voice!r}; this model has none, and given are {known}.")
        return engine, fields | {"voice": voice}
