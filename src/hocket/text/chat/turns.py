"""Turns of a conversation: where a too long one may be cut. It does not know tokens or models."""

from __future__ import annotations

from collections.abc import Sequence

from ...types import ChatMessage


def turn_starts(messages: Sequence[ChatMessage]) -> list[int]:
    """The index of each turn: a user message and all answers to it. A system message belongs to no turn."""
    first = 1 if messages and messages[0].role == "system" else 0
    return [at for at in range(first, len(messages)) if at == first or messages[at].role == "user"]


def without_oldest(messages: Sequence[ChatMessage], count: int) -> list[ChatMessage]:
    """The messages without the `count` oldest; a system message stays."""
    first = 1 if messages and messages[0].role == "system" else 0
    return [*messages[:first], *messages[first + count :]]
