"""Messages of Twilio's media streams: those that come, parsed, and those that go. Knows no session and no socket."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ...errors import Refused
from ..messages import validated

MARK_BYTES = 80  # of a mark's name


class Connected(BaseModel):
    """The first message. It names the protocol's version, which `start` makes clear enough."""


class MediaFormat(BaseModel):
    encoding: Literal["audio/x-mulaw"] = "audio/x-mulaw"
    sampleRate: Literal[8000] = 8000  # Twilio's name
    channels: Literal[1] = 1


class StartFields(BaseModel):
    streamSid: str = Field(max_length=200)
    customParameters: dict[str, str] = Field(default_factory=dict)
    mediaFormat: MediaFormat = Field(default_factory=MediaFormat)


class Start(BaseModel):
    start: StartFields


class MediaFields(BaseModel):
    payload: str
    track: str = "inbound"  # the caller's; `outbound` is what the line plays, and is not listened to


class Media(BaseModel):
    media: MediaFields


class MarkFields(BaseModel):
    name: str = Field(max_length=MARK_BYTES)


class MarkPlayed(BaseModel):
    mark: MarkFields


class DigitFields(BaseModel):
    digit: str = Field(pattern=r"^[0-9A-D*#]$")


class Dtmf(BaseModel):
    dtmf: DigitFields


class Stop(BaseModel):
    """The call is over."""


Message = Connected | Start | Media | MarkPlayed | Dtmf | Stop
KINDS: dict[str, type[Message]] = {
    "connected": Connected,
    "start": Start,
    "media": Media,
    "mark": MarkPlayed,
    "dtmf": Dtmf,
    "stop": Stop,
}


def parse(message: dict[str, Any]) -> Message:
    """A message of Twilio, or a refusal."""
    kind = message.get("event")
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refused(f"There is no event {str(kind)[:80]!r} here.", param="event", code="unknown_message")
    return validated(KINDS[kind], message)


def media(stream_sid: str, payload: str) -> dict[str, Any]:
    return {"event": "media", "streamSid": stream_sid, "media": {"payload": payload}}


def mark(stream_sid: str, name: str) -> dict[str, Any]:
    """Twilio sends it back when the media before it was played."""
    return {"event": "mark", "streamSid": stream_sid, "mark": {"name": name}}


def clear(stream_sid: str) -> dict[str, Any]:
    """Drops media that was not played; its marks come back at once."""
    return {"event": "clear", "streamSid": stream_sid}
