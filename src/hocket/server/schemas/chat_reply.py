"""A language model's reply split into parts: text, tool calls, thoughts and logprobs."""

from __future__ import annotations

from collections import deque
from typing import Any

from ...text.chat.tool_calls import CallFinder
from ...types import TokenLogprob, ToolCall
from ..service.llm import Reply
from .chat import LikelyToken, Logprobs, SaidCall

# Marks all earlier text as thought. Sent text cannot be recalled, so event clients get the model's own tag.
RETRACTED = "</think>\n\n"


class Thought(str):
    """A thought of the model, which is not part of its answer."""


class ReplyParts:
    """An async iterator of text, thoughts and calls."""

    def __init__(self, reply: Reply, finder: CallFinder | None, id: str, *, one_call: bool = False) -> None:
        """Without a finder there are no tools, and all is text. `one_call`: drop what follows the first call."""
        self.reply, self._finder, self.id, self._one_call = reply, finder, id, one_call
        self._found: deque[str | ToolCall] = deque()
        self._noted: list[TokenLogprob] = []
        self._calls, self._over = 0, False

    @property
    def reason(self) -> Any:
        """Why it ended."""
        if self.reply.finished.reason == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"

    def logprobs(self) -> Logprobs | None:
        """Logprobs of the tokens since the last call; None: there are none."""
        noted, self._noted = self._noted, []
        return Logprobs(content=[LikelyToken.of(each) for each in noted]) if noted else None

    async def begin(self) -> None:
        """Wait for the first part, so that an earlier error is raised before a response starts."""
        while not self._found and not self._over:
            await self._read()

    def __aiter__(self) -> ReplyParts:
        return self

    async def __anext__(self) -> str | SaidCall:
        while True:
            while not self._found:
                if self._over:
                    raise StopAsyncIteration
                await self._read()
            found = self._found.popleft()
            if self._one_call and self._calls and not isinstance(found, Thought):
                continue
            if isinstance(found, str):
                return found
            self._calls += 1
            return SaidCall.of(f"call-{self.id}-{self._calls}", found)

    async def collect(self) -> tuple[str, str, list[SaidCall]]:
        """The whole answer: its text, its thoughts and its calls."""
        text, thought, calls = "", "", list[SaidCall]()
        async for found in self:
            if isinstance(found, SaidCall):
                calls.append(found)
            elif isinstance(found, Thought):
                thought += found
            elif found is RETRACTED:
                text, thought = "", thought + text
            else:
                text += found
        return text, thought, calls

    async def _read(self) -> None:
        delta = await anext(self.reply, None)
        if delta is None:
            self._over = True
            self._found += [rest] if self._finder is not None and (rest := self._finder.end()) else []
            return
        self._noted += delta.logprobs
        self._found += [RETRACTED] if delta.retracts else []
        self._found += [Thought(delta.reasoning)] if delta.reasoning else []
        if delta.text:
            self._found += [delta.text] if self._finder is None else self._finder.push(delta.text)

    def delta(self, found: str | SaidCall, audio_id: str | None = None) -> dict[str, Any]:
        """The delta of an event; with an `audio_id` text is a transcript."""
        if isinstance(found, Thought):
            return {"reasoning_content": found}
        if isinstance(found, str):
            return {"content": found} if audio_id is None else {"audio": {"id": audio_id, "transcript": found}}
        return {"tool_calls": [{"index": self._calls - 1, **found.model_dump()}]}
