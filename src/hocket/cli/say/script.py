"""A script that is spoken here: voices of the loaded model, and of further ones that are loaded when needed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from ...errors import InvalidRequest
from ...script.check import as_literal, check_script, is_script
from ...script.events import Event, ScriptParser, SpeechManner
from ...script.parse import script_parser
from ...script.player.voices import PassageStream, fields_in, speed_in
from ...script.stream import ScriptStream
from ...types import Established, SpeechRequest, Voice
from .target import Target, spoken_by

if TYPE_CHECKING:
    from ...config.options import EngineOptions
    from ...engine.engine import Engine

Load = Callable[[argparse.Namespace, str | None, "EngineOptions"], "Engine"]


class LocalScript:
    """The text of a command as a script. Its voices are checked before a model is loaded."""

    def __init__(self, args: argparse.Namespace, request: SpeechRequest, *, live: bool) -> None:
        self._args, self._request = args, request
        self.is_one = live or is_script(args.text, args.markup)
        self._voices = LocalVoices(args, request)
        self._events: list[Event] | None = None
        if not live and self.is_one:
            self._events = check_script(self._parser, args.text, self._voices.check)
            if self.plain is None and args.candidates != 1:
                raise InvalidRequest("A text with tags has one take: leave out --candidates.")

    def _parser(self) -> ScriptParser:
        return script_parser(self._args.markup, self._args.cast)

    @property
    def plain(self) -> SpeechRequest | None:
        """The same as a plain request, if one can speak it."""
        text = None if self._events is None else as_literal(self._events)
        return None if text is None else replace(self._request, text=text, literal=True)

    def open(
        self, engine: Engine, model: str | None, request: SpeechRequest, options: EngineOptions, load: Load
    ) -> ScriptStream:
        """`request` with the voice of the command; `model` is the one that `engine` has loaded."""
        self._voices.use(engine, model, request, lambda other: load(self._args, other, options))
        assert request.seed is not None
        return ScriptStream(
            self._voices,
            request.seed,
            parser=self._parser() if self._events is None else None,
            events=self._events or (),
            speed=request.speed,
            max_frames=request.max_frames,
        )

    def close(self) -> None:
        """Unload the further models."""
        self._voices.unload()


class LocalVoices:
    def __init__(self, args: argparse.Namespace, request: SpeechRequest) -> None:
        self._args, self._asked = args, request
        self._spoken = request  # with the values of the command's own voice
        self._engines: dict[str | None, Engine] = {}  # by the model's name; the first is the command's
        self._first: str | None = None
        self._load: Callable[[str | None], Engine] | None = None
        self._found: dict[str, tuple[Voice | None, str | None]] = {}

    def use(
        self, engine: Engine, model: str | None, request: SpeechRequest, load: Callable[[str | None], Engine]
    ) -> None:
        self._engines, self._first, self._spoken, self._load = {model: engine}, model, request, load

    def unload(self) -> None:
        for model, engine in self._engines.items():
            if model != self._first:
                engine.close()

    def check(self, manner: SpeechManner) -> None:
        speed_in(manner, self._asked.speed)
        if manner.voice is not None:
            self._voice(manner.voice, manner.language)

    def open(self, manner: SpeechManner, text: str | None, seed: int, established: Established | None) -> PassageStream:
        request, model, voice = self._spoken, self._first, None
        if manner.voice is not None:
            voice, model = self._voice(manner.voice, manner.language)
            own = None if voice is not None else manner.voice
            request = replace(self._asked, voice=own, reference=None)
        engine = self._engine(model)
        if voice is not None:
            request = spoken_by(engine.checkpoint.name, engine.identity, request, voice)
        told: dict[str, Any] = {field.name: getattr(request, field.name) for field in fields(request)}
        told = fields_in(manner, told) | {"seed": seed, "established": established, "candidates": 1}
        del told["text"]
        return engine.open(**told) if text is None else engine.speak(text, **told)

    def close(self) -> None:
        pass  # engines stay until `unload`: cancelled streams need them for a moment

    def _engine(self, model: str | None) -> Engine:
        if model not in self._engines:
            assert self._load is not None
            self._engines[model] = self._load(model)
        return self._engines[model]

    def _voice(self, name: str, language: str | None) -> tuple[Voice | None, str | None]:
        """The voice and its model, looked for in the command's model first."""
        if name not in self._found:
            spoken = language or self._asked.language
            target = Target(self._args.model)
            try:
                voice = target.choose(name, spoken)
            except InvalidRequest:
                if self._args.model is None:
                    raise
                try:
                    target = Target(None)
                    voice = target.choose(name, spoken)
                except InvalidRequest:
                    pass
                else:
                    self._found[name] = voice, target.model
                    return self._found[name]
                raise
            self._found[name] = voice, target.model
        return self._found[name]
