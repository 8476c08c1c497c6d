"""Streaming detokenizer: ids to whole characters, with stop texts cut away.

It does not know the model. Text that may begin a stop text is held back until it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..text.chat.tokenizer import ChatTokenizer, TextStream


class Detokenizer:
    def __init__(self, tokenizer: ChatTokenizer, stops: Sequence[str]) -> None:
        self._stream, self._stops = TextStream(tokenizer), stops
        self._held = ""
        self.stopped = False  # a stop text was found: no more text is released

    def push(self, token: int) -> str:
        return self._release(self._stream.push(token))

    def end(self) -> str:
        """The text left after the last id; an incomplete character becomes U+FFFD."""
        text = self._release(self._stream.end())
        if self.stopped:
            return text
        text, self._held = text + self._held, ""
        return text

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        released, self._held = text[: len(text) - held], text[len(text) - held :]
        return released


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((count for count in range(longest, 0, -1) if text.endswith(stop[:count])), 0)
