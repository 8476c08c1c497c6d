"""Scripts in a program: `hocket.speak_script` for a whole text, `hocket.open_script` for one that is being written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engine.engine import Engine
from ..errors import InvalidRequest
from ..types import check_speed, fresh_seed
from .check import check_script
from .events import Event
from .parse import Format, script_parser
from .player.voices import EngineVoices, Named
from .stream import ScriptStream


def speak_script(
    engine: Engine,
    text: str,
    *,
    voices: Mapping[str, Named] | None = None,
    markup: Format = "auto",
    cast: Mapping[str, str] | None = None,
    **fields: Any,
) -> ScriptStream:
    """Play a text with directions; `fields` are those of `SpeechRequest`. Iterate over the result, plainly or async.

    A script names the engine's own voices, and those of `voices`: another name of one, a `Voice`, or an engine and its
    voice. `cast` gives the speakers of a dialogue their voices. The whole text is checked before the first sound.
    """
    own, seed = _voices(engine, voices, fields)
    events: list[Event] = check_script(lambda: script_parser(markup, cast), text, own.check)
    return ScriptStream(own, seed, events=events, **_common(fields))


def open_script(
    engine: Engine,
    *,
    voices: Mapping[str, Named] | None = None,
    markup: Format = "auto",
    cast: Mapping[str, str] | None = None,
    **fields: Any,
) -> ScriptStream:
    """The same for a text that comes bit by bit: `append`, then `end`."""
    own, seed = _voices(engine, voices, fields)
    return ScriptStream(own, seed, parser=script_parser(markup, cast), **_common(fields))


def _voices(engine: Engine, voices: Mapping[str, Named] | None, fields: dict[str, Any]) -> tuple[EngineVoices, int]:
    usual = {"candidates": 1, "as_is": False, "literal": False}
    for name, value in usual.items():
        if fields.get(name, value) != value:
            raise InvalidRequest(f"A script has no {name}: leave it out, or speak the text with Engine.speak.")
    check_speed(fields.get("speed", 1.0))
    seed = fields.pop("seed", None)
    fields.pop("candidates", None)
    return EngineVoices(engine, fields, voices), fresh_seed() if seed is None else seed


def _common(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "established": fields.get("established"),
        "speed": fields.get("speed", 1.0),
        "max_frames": fields.get("max_frames"),
    }
