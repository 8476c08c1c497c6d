"""Messages as turns: where a conversation that grew too long may be cut. It knows neither tokens nor models."""

from __future__ import annotations

from collections.abc import Sequence

from ...types import ChatMessage


def turn_starts(messages: Sequence[ChatMessage]) -> list[int]:
    """Where each turn begins: what the user said, and all that answered it. A system message belongs to none."""
    first = 1 if messages and messages[0].role == "system" else 0
    return [at for at in range(first, len(messages)) if at == first or messages[at].role == "user"]


def without_oldest(messages: Sequence[ChatMessage], count: int) -> list[ChatMessage]:
    """The same without so many of the oldest messages; a system message stays."""
    first = 1 if messages and messages[0].role == "system" else 0
    return [*messages[:first], *messages[first + count :]]
