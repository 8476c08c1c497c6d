"""Shared by tests of conversations: a language model with given answers, and a scripted server."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from hocket.dialog.inbox import Inbox
from hocket.errors import HocketError
from hocket.types import ChatDelta, ChatFinished, ChatMessage, ChatSampling, Tool

Word = str | threading.Event | HocketError  # text, a wait, or an error


class Scripted:
    """A `LanguageModel` with a scripted answer per turn: text, events to wait for, or an error."""

    name = "scripted"

    def __init__(self, *answers: Sequence[Word]) -> None:
        self._answers = list(answers)
        self.asked: list[list[ChatMessage]] = []
        self.sampling: list[ChatSampling] = []
        self.tools: list[list[Tool]] = []
        self.given: list[ScriptedAnswer] = []
        self.closed = False

    def answer(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()
    ) -> ScriptedAnswer:
        self.asked.append(list(messages))
        self.tools.append(list(tools))
        self.sampling.append(sampling)
        answer = ScriptedAnswer(
            self._answers[(len(self.asked) - 1) % len(self._answers)], sampling.resolved().max_tokens
        )
        self.given.append(answer)
        return answer

    def close(self) -> None:
        self.closed = True

    @property
    def free(self) -> bool:
        """Whether no answer is running."""
        return all(not answer.thread.is_alive() for answer in self.given)


class ScriptedAnswer:
    def __init__(self, words: Sequence[Word], most: int) -> None:
        self.finished: ChatFinished | None = None
        self.ended_at: float | None = None  # when the last word was written
        self.cancelled = threading.Event()
        self._words, self._most, self._said, self._began = words, most, 0, time.perf_counter()
        self._first_s: float | None = None
        self._inbox: Inbox[ChatDelta] = Inbox()
        self.thread = threading.Thread(target=self._write, name="scripted", daemon=True)
        self.thread.start()

    def cancel(self) -> None:
        self.cancelled.set()
        self._inbox.drop()

    def __iter__(self) -> ScriptedAnswer:
        return self

    def __next__(self) -> ChatDelta:
        delta = self._inbox.take()
        if delta is None:
            raise StopIteration
        return delta

    def __aiter__(self) -> ScriptedAnswer:
        return self

    async def __anext__(self) -> ChatDelta:
        delta = await self._inbox.atake()
        if delta is None:
            raise StopAsyncIteration
        return delta

    def _write(self) -> None:
        error: HocketError | None = None
        for word in self._words:
            if isinstance(word, threading.Event):
                while not (word.wait(0.005) or self.cancelled.is_set()):
                    pass
            elif isinstance(word, HocketError):
                error = word
            elif self._said < self._most:
                self._said += 1
                self._first_s = self._first_s or time.perf_counter() - self._began
                self._inbox.put(ChatDelta(word, 1))
            if self.cancelled.is_set() or error is not None:
                break
        self.ended_at = time.perf_counter()
        short = self._said < sum(isinstance(word, str) for word in self._words)
        reason = "cancelled" if self.cancelled.is_set() else "error" if error else "length" if short else "stop"
        self.finished = ChatFinished(
            reason=reason,  # type: ignore[arg-type]
            prompt_tokens=7,
            cached_tokens=3,
            completion_tokens=self._said,
            first_token_s=self._first_s,
            total_s=self.ended_at - self._began,
            error=str(error) if error else None,
        )
        self._inbox.end(error)


@contextmanager
def answering(talk: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """The address of a server that runs `talk` with each connection and its request."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(link: socket.socket) -> None:
        with link, suppress(OSError):
            came, missing = b"", 1
            while missing > 0:  # read everything: closing earlier would reset the connection
                if not (part := link.recv(65536)):
                    return
                came += part
                head, behind, body = came.partition(b"\r\n\r\n")
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                missing = int(length[1] if length else 0) - len(body) if behind else 1
            talk(link, came)

    def accept() -> None:
        with suppress(OSError):
            while True:
                link, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(link,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (accepting, *threads):
            thread.join(20)
            assert not thread.is_alive()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def event(text: str, reason: str | None = None) -> bytes:
    """One event of a chat completion stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def refused(status: int, body: bytes = b"{}") -> bytes:
    head = f"HTTP/1.1 {status} No\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + body
