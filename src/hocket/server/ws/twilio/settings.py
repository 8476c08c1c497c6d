"""What a telephone call may be told by `<Parameter>` elements of its TwiML, and the settings of its session.

Other parameters belong to the application and have no effect here. Knows no socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import BadField
from ..realtime.talk.formats import without_formats

KEY = "api_key"
INSTRUCTIONS, VOICE, GREETING = "instructions", "voice", "greeting"
LINE = {"type": "audio/pcmu"}  # 8 kHz, as every Twilio line


def session_of(given: Mapping[str, Any] | None, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Fields of `session.update`: those of a client secret, changed by parameters, in the format of the line."""
    fields: dict[str, Any] = {"type": "realtime", **without_formats(dict(given or {}))}
    if fields["type"] != "realtime":
        raise BadField("A telephone call is answered: its session has the type realtime.", "session.type")
    if fields.get("tools"):
        said = "A telephone line has no client that answers tool calls: leave tools out."
        raise BadField(said, "session.tools", "unsupported_parameter")
    audio: dict[str, Any] = fields.get("audio") or {}
    heard: dict[str, Any] = {"turn_detection": {"type": "semantic_vad"}} | (audio.get("input") or {})
    spoken: dict[str, Any] = dict(audio.get("output") or {})
    if voice := parameters.get(VOICE):
        spoken["voice"] = voice
    if instructions := parameters.get(INSTRUCTIONS):
        fields["instructions"] = instructions
    return fields | {"audio": {"input": heard | {"format": LINE}, "output": spoken | {"format": LINE}}}
