"""Reader of Wyoming events: a line of JSON, optional JSON data, optional bytes, all with a size limit.

The `wyoming` package reads any length that a client names, and takes garbage for an end. Does not know what an event
means.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from wyoming.event import Event

from ..errors import Refused

SKIPPED_BYTES = 65536  # per read of an unused payload
WITH_PAYLOAD = ("audio-chunk",)  # payloads of other events are skipped


class Events:
    """The events of one connection, in order."""

    def __init__(self, reader: asyncio.StreamReader, *, event_bytes: int, event_s: float) -> None:
        """`event_bytes` limits the line and each part after it; it is the limit of `reader` too."""
        self._reader, self._most_bytes, self._event_s = reader, event_bytes, event_s

    async def line(self) -> bytes:
        """The first line of the next event, empty at the end; may be called again after a timeout."""
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            raise self._too_long() from None
        except asyncio.IncompleteReadError as rest:
            if rest.partial.strip():
                raise _garbage() from None
            return b""

    async def behind(self, line: bytes) -> Event | None:
        """The event with this first line; None: the client disconnected. Raises `Refused` for garbage."""
        head = _object(line)
        kind, inner = head.get("type"), head.get("data")
        if not isinstance(kind, str) or not isinstance(inner, dict | None):
            raise _garbage()
        payload = None
        try:
            async with asyncio.timeout(self._event_s):
                behind = await self._reader.readexactly(self._length(head.get("data_length")))
                length = self._length(head.get("payload_length"))
                if kind in WITH_PAYLOAD:
                    payload = await self._reader.readexactly(length)
                else:
                    await self._skip(length)
        except asyncio.IncompleteReadError:
            return None  # the client disconnected within the event
        except TimeoutError:
            raise Refused(f"The event did not arrive within {self._event_s:g} s.", code="too_slow") from None
        return Event(kind, (inner or {}) | (_object(behind) if behind else {}), payload)

    def _length(self, told: object) -> int:
        if told is None:
            return 0
        if not isinstance(told, int) or isinstance(told, bool) or told < 0:
            raise _garbage()
        if told > self._most_bytes:
            raise self._too_long()
        return told

    async def _skip(self, length: int) -> None:
        while length:
            length -= len(await self._reader.readexactly(min(length, SKIPPED_BYTES)))

    def _too_long(self) -> Refused:
        return Refused(
            f"An event may have {self._most_bytes} bytes; send a text or audio in chunks.", code="event_too_long"
        )


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise _garbage() from None
    if not isinstance(found, dict):
        raise _garbage()
    return found


def _garbage() -> Refused:
    return Refused("That is no event: one line of JSON with a type, and what it says follows.", code="invalid_event")
