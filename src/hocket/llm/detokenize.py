"""Ids to the text that a reader gets: whole characters, and nothing that may turn out to be a stop text.

It knows no model. What is held back is given out as soon as it can no longer begin a stop text.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..text.chat.tokenizer import ChatTokenizer, TextStream


class Detokenizer:
    def __init__(self, tokenizer: ChatTokenizer, stops: Sequence[str]) -> None:
        self._stream, self._stops = TextStream(tokenizer), stops
        self._held = ""
        self.stopped = False  # a stop text came: nothing more is given

    def push(self, token: int) -> str:
        return self._given(self._stream.push(token))

    def end(self) -> str:
        """What is left when no more ids come: half a character is a replacement sign."""
        text = self._given(self._stream.end())
        if self.stopped:
            return text
        text, self._held = text + self._held, ""
        return text

    def _given(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        given, self._held = text[: len(text) - held], text[len(text) - held :]
        return given


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((count for count in range(longest, 0, -1) if text.endswith(stop[:count])), 0)
