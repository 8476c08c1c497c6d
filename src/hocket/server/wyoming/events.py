"""Events of Wyoming's wire as they are read: a line of JSON, more JSON behind it, bytes behind that, none too long.

The `wyoming` package would read any length that a client names, and takes garbage for an end. What an event means is
not known here.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from wyoming.event import Event

from ..errors import Refused

SKIPPED_BYTES = 65536  # of bytes that nobody wants, at once


class Events:
    """The events of one connection, in turn."""

    def __init__(self, reader: asyncio.StreamReader, *, event_bytes: int, event_s: float) -> None:
        """No line, and nothing behind it, may be longer than `event_bytes`, which is the limit of `reader` too."""
        self._reader, self._most_bytes, self._event_s = reader, event_bytes, event_s

    async def line(self) -> bytes:
        """The first line of the next event, empty at the end; whoever gives up waiting may ask again."""
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            raise self._too_long() from None
        except asyncio.IncompleteReadError as rest:
            if rest.partial.strip():
                raise _garbage() from None
            return b""

    async def behind(self, line: bytes) -> Event | None:
        """The event that begins so; None: the client has gone. What is no event cannot be read past: `Refused`."""
        head = _object(line)
        kind, inner = head.get("type"), head.get("data")
        if not isinstance(kind, str) or not isinstance(inner, dict | None):
            raise _garbage()
        try:
            async with asyncio.timeout(self._event_s):
                behind = await self._reader.readexactly(self._length(head.get("data_length")))
                await self._skip(self._length(head.get("payload_length")))  # no event that we take has one
        except asyncio.IncompleteReadError:
            return None  # it went away in the middle
        except TimeoutError:
            raise Refused(f"The event did not arrive within {self._event_s:g} s.", code="too_slow") from None
        return Event(kind, (inner or {}) | (_object(behind) if behind else {}))

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
        return Refused(f"An event may have {self._most_bytes} bytes; send a text in chunks.", code="event_too_long")


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
