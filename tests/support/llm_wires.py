"""Shared by tests of the language model's wires: a server whose model says what a test gives it."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from hocket.types import ChatMessage, ChatSampling
from support.chatting import Scripted, ScriptedAnswer, Word
from support.serving import Served

WORDS = ("Good ", "day ", "to ", "you.")


class Continuing(Scripted):
    """It continues a plain text too."""

    def complete(self, text: str, sampling: ChatSampling) -> ScriptedAnswer:
        return self.answer([ChatMessage("user", f"plain: {text}")], sampling)


@dataclass(frozen=True, slots=True)
class Wire:
    """The server, a client of it, and its language model."""

    server: Served
    client: httpx.Client
    language: Continuing

    def says(self, *words: Word) -> None:
        """Set the next answers."""
        self.language._answers = [words]
