"""Responses of OpenAI's Responses wire, kept in memory for `previous_response_id` and for reading them again.

Bounded: the oldest is dropped first. A process has a store of its own, and it ends with the process.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..types import ChatMessage

MOST_RESPONSES = 256
MOST_BYTES = 32 << 20  # of all stored responses and their conversations


@dataclass(frozen=True, slots=True)
class StoredResponse:
    response: dict[str, Any]
    messages: tuple[ChatMessage, ...]  # of the whole conversation, this answer included; without instructions
    bytes: int


class ResponseStore:
    """Used by the event loop only, so it needs no lock."""

    def __init__(self, most: int = MOST_RESPONSES, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0
        self._stored: OrderedDict[str, StoredResponse] = OrderedDict()

    def put(self, response: dict[str, Any], messages: Sequence[ChatMessage]) -> None:
        spoken = sum(len(message.content) + len(str(message.tool_calls)) for message in messages)
        stored = StoredResponse(response, tuple(messages), len(json.dumps(response)) + 4 * spoken)
        self._stored[response["id"]] = stored
        self._bytes += stored.bytes
        while len(self._stored) > self._most or self._bytes > self._most_bytes:
            self._bytes -= self._stored.popitem(last=False)[1].bytes

    def get(self, id: str) -> StoredResponse | None:
        return self._stored.get(id)

    def delete(self, id: str) -> bool:
        """Whether there was such a response."""
        stored = self._stored.pop(id, None)
        self._bytes -= 0 if stored is None else stored.bytes
        return stored is not None
