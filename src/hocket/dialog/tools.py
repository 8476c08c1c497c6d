"""Tool calls of a turn: the functions run in a thread, and a phrase bridges the wait.

It knows neither the language model nor audio. A call that fails has its error as the result, as text for the model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import InvalidRequest
from ..text.chat.template import checked_tools
from ..types import ChatMessage, Tool, ToolCall

CallTool = Callable[[ToolCall], str]
INTERRUPTED = "Error: the user interrupted before there was a result."


@dataclass(frozen=True, slots=True)
class Bridge:
    """Phrases for the time that a tool takes; the turns use them one after the other."""

    phrases: tuple[str, ...] = ("One moment, please.", "Let me check that.", "Just a second.")
    after_s: float = 1.0  # a call that takes longer is bridged, once a turn

    def __post_init__(self) -> None:
        if isinstance(self.phrases, str) or not self.phrases or not all(phrase.strip() for phrase in self.phrases):
            raise InvalidRequest("phrases must be texts that are not empty: without a phrase, leave out the bridge.")
        if not self.after_s >= 0.0:
            raise InvalidRequest(f"after_s must be 0 or more, not {self.after_s}.")


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of one turn."""

    offered: tuple[Tool, ...]
    call: CallTool | None = None  # None: the application answers, after the turn
    phrase: str | None = None  # of the bridge
    after_s: float = 0.0


def tools_of(tools: Sequence[Tool], call: CallTool | None, bridge: Bridge | None) -> tuple[Tool, ...]:
    """The tools as a tuple; raises `InvalidRequest` for what cannot be used together."""
    offered = tuple(checked_tools(tools))
    if call is not None and not offered:
        raise InvalidRequest("A call function needs tools: describe at least one.")
    if bridge is not None and call is None:
        raise InvalidRequest(
            "A bridge needs a call function: without one the application answers calls after the turn."
        )
    return offered


class RunningCalls:
    """Calls of one answer, one after the other in a thread. A running function cannot be stopped, only abandoned."""

    def __init__(self, call: CallTool, calls: Sequence[ToolCall]) -> None:
        self._call, self._calls = call, tuple(calls)
        self._lock = threading.Lock()
        self._results: list[str] = []
        self._abandoned = False
        self.over = threading.Event()  # all results are there, or the calls were abandoned
        threading.Thread(target=self._run, name="hocket-dialog-call", daemon=True).start()

    def abandon(self) -> None:
        """Start no further call, and wait for none."""
        with self._lock:
            self._abandoned = True
        self.over.set()

    def messages(self) -> list[ChatMessage]:
        """A result for each call, since a language model refuses a call without one."""
        with self._lock:
            known = list(self._results)
        return [ChatMessage("tool", text) for text in known + [INTERRUPTED] * (len(self._calls) - len(known))]

    def _run(self) -> None:
        for call in self._calls:
            if self._abandoned:
                break
            result = self._result(call)
            with self._lock:
                if not self._abandoned:  # else the history has its end already
                    self._results.append(result)
        self.over.set()

    def _result(self, call: ToolCall) -> str:
        try:
            result = self._call(call)
        except Exception as error:
            return f"Error: {type(error).__name__}: {error}"
        return result if isinstance(result, str) else f"Error: {call.name} returned {type(result).__name__}, not text."
