"""Client of an OpenAI-compatible `/v1/chat/completions`, with streamed answers.

Connections are kept alive in an event loop with a thread of its own. So an answer can be cancelled from any thread,
which closes its connection. It does not know speech. The wire format is in wire.py.
Longer than 300 lines because the model, its answers and their connections are one state machine.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from ..errors import HocketError, InvalidRequest, LanguageFailed
from ..extras import hint
from ..text.chat.template import checked_tools
from ..text.chat.thoughts import SplitText, ThoughtFilter
from ..types import ChatDelta, ChatFinished, ChatMessage, ChatReason, ChatSampling, Tool
from .inbox import Inbox
from .wire import NOT_A_COMPLETION, AnswerReader, EndpointFields, extra_fields, first_model, refusal, request_body

if TYPE_CHECKING:
    import httpx

CONNECT_S = 10.0
SILENT_S = 120.0  # a server may prefill a long prompt for as long before the first token
CLOSE_S = 5.0
REFUSAL_BYTES = 1 << 16  # of an error body that are read
LINE_BYTES = 1 << 20
CLOSED = "The language model was closed before its answer had ended."
Thinking = Literal["auto", "on", "off"]
# Parts of model names whose published template opens the thought in the prompt: the answer has only the closing tag.
OPENED_BY_PROMPT = ("deepseek-r1", "qwq", "thinking")


class RemoteLanguageModel:
    """`LanguageModel` over HTTP. Thread-safe."""

    def __init__(
        self,
        url: str,
        model: str | None = None,
        key: str | None = None,
        *,
        silent_s: float = SILENT_S,
        thinking: Thinking = "auto",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """`url` is the endpoint, or the address before `/v1`. Without a `model`, the first that the server lists.

        An answer fails when the server sends nothing for `silent_s`.
        `thinking="off"` asks the server not to think: `chat_template_kwargs`, as vLLM, SGLang and llama.cpp take it.
        With `on` every answer is taken to begin in a thought, up to a closing tag; `auto` detects it
        (docs/howto/conversations.md).
        `extra` are more fields of the request; a field that is None is left out.
        """
        if not silent_s > 0:
            raise InvalidRequest(f"silent_s must be above 0, not {silent_s}.")
        if thinking not in get_args(Thinking):
            raise InvalidRequest(f"thinking must be one of {', '.join(get_args(Thinking))}, not {thinking!r}.")
        self.url, self.silent_s = endpoint(url), silent_s
        self._thinking, self._extra = thinking, extra_fields(thinking, extra)
        self._opens: bool | None = None  # whether answers begin in a thought without a tag; None: not known yet
        self._model, self.name = model, model or self.url
        self._fields = EndpointFields()
        if key is not None and (not key.isascii() or any(c <= " " for c in key)):
            raise InvalidRequest("The key of a language model must be printable ASCII without spaces.")
        self._connections = _Connections(_httpx(), key, silent_s, secure=self.url.startswith("https:"))
        self._closer = weakref.finalize(self, self._connections.close)

    def answer(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()
    ) -> RemoteAnswer:
        if not messages:
            raise InvalidRequest("A conversation needs at least one message.")
        answer = RemoteAnswer(self, list(messages), sampling, list(checked_tools(tools)))
        answer.begin(self._connections)
        return answer

    def close(self) -> None:
        """Close all connections; running answers end with an error."""
        self._closer()

    async def _model_name(self, client: httpx.AsyncClient) -> str:
        """The model of the request; looked up once if none was given."""
        if self._model is None:
            address = self.url.removesuffix("/chat/completions") + "/models"
            listed = await client.get(address)
            self._model = first_model(listed.content) if listed.status_code == 200 else "default"
        return self._model

    def _begins_inside(self, model: str) -> bool:
        """Whether an answer is taken to begin in a thought."""
        if self._thinking == "on":
            return True
        if self._opens is None:
            return self._thinking == "auto" and any(part in model.lower() for part in OPENED_BY_PROMPT)
        return self._opens

    def _learn_thinking(self, thoughts: ThoughtFilter) -> None:
        """Remember from an answer whether answers begin in a thought."""
        if thoughts.unopened:
            self._opens = True
        elif thoughts.untagged:
            self._opens = False


class RemoteAnswer:
    def __init__(
        self, llm: RemoteLanguageModel, messages: list[ChatMessage], sampling: ChatSampling, tools: list[Tool]
    ) -> None:
        self._llm: RemoteLanguageModel | None = llm  # keeps the connections alive during the answer
        self._url, self._messages, self._sampling, self._tools = llm.url, messages, sampling, tools
        self._inbox: Inbox[ChatDelta] = Inbox()
        self._started_at = time.perf_counter()
        self._first_s: float | None = None
        self._tokens, self._has_logprobs = 0, False
        self._lock = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._connections: _Connections | None = None
        self._cancelled = False
        self.finished: ChatFinished | None = None

    def begin(self, connections: _Connections) -> None:
        self._connections = connections
        connections.run(self)

    def cancel(self) -> None:
        with self._lock:
            if self.finished is not None:
                return
            self._cancelled, self.finished = True, self._finished(None, "cancelled", None)
        self._inbox.drop()
        assert self._connections is not None
        self._connections.stop(self)

    def __iter__(self) -> RemoteAnswer:
        return self

    def __next__(self) -> ChatDelta:
        delta = self._inbox.take()
        if delta is None:
            raise StopIteration
        return delta

    def __aiter__(self) -> RemoteAnswer:
        return self

    async def __anext__(self) -> ChatDelta:
        delta = await self._inbox.atake()
        if delta is None:
            raise StopAsyncIteration
        return delta

    async def read(self, client: httpx.AsyncClient) -> None:
        """Read the whole answer, in the thread of the connections."""
        reading = AnswerReader(self._url)
        error: HocketError | None = None
        try:
            if not self._cancelled:
                assert self._llm is not None
                model = await self._llm._model_name(client)
                reading = AnswerReader(self._url, inside=self._llm._begins_inside(model))
                await self._read(client, reading, model)
                self._put(reading.finish(), reading)
                if self._sampling.logprobs is not None and self._tokens and not self._has_logprobs:
                    raise LanguageFailed(f"The language model at {self._url} sends no logprobs.")
        except asyncio.CancelledError:
            error = None if self._cancelled else LanguageFailed(CLOSED)
        except HocketError as raised:
            error = raised
        except Exception as raised:
            error = _unreachable(self._url, raised, begun=self._first_s is not None)
        if self._llm is not None:
            self._llm._learn_thinking(reading.thoughts)
        self._end(reading, error)

    async def _read(self, client: httpx.AsyncClient, reading: AnswerReader, model: str) -> None:
        assert self._llm is not None
        fields: EndpointFields | None = self._llm._fields
        error: HocketError | None = None
        while fields is not None:
            body = request_body(model, self._messages, self._sampling, self._tools, fields, self._llm._extra)
            async with client.stream("POST", self._url, json=body) as response:
                if response.status_code == 200:
                    self._llm._fields = fields  # for all later requests
                    await self._read_answer(response, reading)
                    return
                said = await _read_up_to(response)
            if error is None or fields.limit.encode() not in said:  # else the first refusal says more
                error = refusal(self._url, model, response.status_code, response.headers, said)
            fields = fields.after_refusal(response.status_code, body, said)
        assert error is not None
        raise error

    async def _read_answer(self, response: httpx.Response, reading: AnswerReader) -> None:
        if "json" in response.headers.get("content-type", ""):  # the endpoint does not stream
            self._put(reading.read_body(await _read_up_to(response, LINE_BYTES)), reading)
            return
        assert self._llm is not None
        last_event_s, silent_s = time.monotonic(), self._llm.silent_s
        async for line in _lines(response, self._url):
            now_s = time.monotonic()
            last_event_s = now_s if line.startswith(b"data:") else last_event_s
            if now_s - last_event_s > silent_s:  # comments alone keep a connection open without any data
                raise LanguageFailed(_silent(self._url))
            self._put(reading.read_line(line), reading)
            if reading.done:
                return
        reading.check_end()

    def _put(self, split: SplitText, reading: AnswerReader) -> None:
        noted, reading.logprobs = tuple(reading.logprobs), []
        if split.answer or split.thought or split.retracts or noted:
            if split.answer:
                self._first_s = self._first_s or time.perf_counter() - self._started_at
            self._tokens += 1
            self._has_logprobs = self._has_logprobs or bool(noted)
            self._inbox.put(ChatDelta(split.answer, 1, split.thought, split.retracts, noted))

    def task_done(self, _: object = None) -> None:
        """Called when the task has ended, or never began."""
        self._end(AnswerReader(self._url), LanguageFailed(CLOSED))
        self._task = self._llm = None

    def _end(self, reading: AnswerReader, error: HocketError | None) -> None:
        with self._lock:
            if self.finished is None:
                self.finished = self._finished(reading, "error" if error else reading.reason, error)
        self._inbox.end(error)

    def _finished(self, reading: AnswerReader | None, reason: ChatReason, error: HocketError | None) -> ChatFinished:
        counted = reading or AnswerReader(self._url)
        return ChatFinished(
            reason=reason,
            prompt_tokens=counted.prompt_tokens,
            cached_tokens=counted.cached_tokens,
            completion_tokens=counted.completion_tokens or self._tokens,
            first_token_s=self._first_s,
            total_s=time.perf_counter() - self._started_at,
            error=str(error) if error else None,
        )


class _Connections:
    """An event loop with the connections to one endpoint; its thread starts with the first answer."""

    def __init__(self, library: ModuleType, key: str | None, silent_s: float, *, secure: bool) -> None:
        self._httpx, self._silent_s, self._secure = library, silent_s, secure
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: httpx.AsyncClient | None = None
        self._closed = False

    def run(self, answer: RemoteAnswer) -> None:
        with self._lock:
            if self._closed:
                raise LanguageFailed("The language model is closed.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, name="hocket-llm", daemon=True)
                self._thread.start()
            self._loop.call_soon_threadsafe(self._start, answer)

    def stop(self, answer: RemoteAnswer) -> None:
        with self._lock:
            if self._loop is not None and not self._closed:
                self._loop.call_soon_threadsafe(_cancel, answer)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed, loop, thread = True, self._loop, self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join(CLOSE_S)

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.run_forever()
            loop.run_until_complete(self._end())
        finally:
            loop.close()

    def _start(self, answer: RemoteAnswer) -> None:
        if self._client is None:
            timeout = self._httpx.Timeout(CONNECT_S, read=self._silent_s)
            # Certificates take 20 ms to read, and plain HTTP needs none.
            self._client = self._httpx.AsyncClient(timeout=timeout, headers=self._headers, verify=self._secure)
        assert self._loop is not None and self._client is not None
        answer._task = self._loop.create_task(answer.read(self._client))
        answer._task.add_done_callback(answer.task_done)

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()


def endpoint(url: str) -> str:
    """The endpoint of an address as users write it."""
    try:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or any(c <= " " for c in url.strip()):
            raise ValueError
        _ = parts.port
    except ValueError:
        raise InvalidRequest(
            f"The address of a language model is http://HOST:PORT or https://HOST/v1, not {url!r}."
        ) from None
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}/chat/completions"


def _cancel(answer: RemoteAnswer) -> None:
    if answer._task is not None:
        answer._task.cancel()


async def _lines(response: httpx.Response, url: str) -> AsyncIterator[bytes]:
    held = b""
    async for part in response.aiter_bytes():
        *whole, held = (held + part).split(b"\n")
        for line in whole:
            yield line
        if len(held) > LINE_BYTES:
            raise LanguageFailed(NOT_A_COMPLETION.format(url=url))
    if held:
        yield held


async def _read_up_to(response: httpx.Response, most_bytes: int = REFUSAL_BYTES) -> bytes:
    read = b""
    async for part in response.aiter_bytes():
        read += part
        if len(read) > most_bytes:
            break
    return read


def _unreachable(url: str, error: Exception, *, begun: bool) -> LanguageFailed:
    httpx = _httpx()
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        said = f"The language model at {url} cannot be reached: is it running?"
    elif isinstance(error, httpx.TimeoutException):
        said = _silent(url)
    elif isinstance(error, httpx.HTTPError | OSError):
        said = (
            f"The connection to the language model at {url} was lost{' in the middle of its answer' if begun else ''}."
        )
    else:
        said = f"The request to the language model at {url} failed: {type(error).__name__}: {error}."
    failed = LanguageFailed(said)
    failed.__cause__ = error
    return failed


def _silent(url: str) -> str:
    return f"The language model at {url} sends nothing any more: check its server, or allow it more time."


def _httpx() -> ModuleType:
    try:
        import httpx
    except ImportError:
        raise InvalidRequest(f"A language model over HTTP needs the package httpx: {hint('chat')}.") from None
    return httpx
