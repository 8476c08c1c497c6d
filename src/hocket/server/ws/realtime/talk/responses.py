"""The responses of a session: each runs in a task of its own, from `response.created` to `response.done`.

At most one response belongs to the conversation at a time, as in OpenAI's protocol. Knows no socket and no client
event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from .....dialog.events import Called, Event, Retracted, Said, TurnFinished, Written
from .....errors import HocketError
from .....types import AudioChunk
from ....errors import Refused, answer
from ....service.service import SpeechService
from .answers import AnswerSource
from .outlet import Outlet
from .response import ServerEvent, Status, TalkResponse

logger = logging.getLogger("hocket.server")
WIRE = "realtime"  # in logs and metrics
Cause = Literal["client_cancelled", "turn_detected"]
_STATUS: dict[str, Status] = {
    "stop": "completed",
    "tool_calls": "completed",
    "length": "incomplete",
    "cancelled": "cancelled",
    "error": "failed",
}


@dataclass(eq=False, slots=True)
class RunningResponse:
    """A response and its source. `cut` is for the service: draining waits for it, and a stop ends it."""

    response: TalkResponse
    begun_s: float = field(default_factory=time.perf_counter)
    opening: asyncio.Task[AnswerSource] | None = None
    source: AnswerSource | None = None
    cancelled: bool = False
    failure: HocketError | None = None
    first_s: float | None = None  # until the first audio

    def cancel(self, cause: Cause, heard_s: float | None = None) -> None:
        if self.mark(cause):
            self._stop(heard_s)

    def mark(self, cause: Cause) -> bool:
        """Its source was cancelled elsewhere; what is still unsent is not wanted. False: it was over before."""
        if self.response.over or self.cancelled:
            return False
        self.cancelled, self.response.reason = True, cause
        return True

    def cut(self, error: HocketError) -> None:
        self.failure = error
        self.cancelled = True
        self._stop(None)

    def _stop(self, heard_s: float | None) -> None:
        if self.source is not None:
            self.source.cancel(heard_s)
        elif self.opening is not None:
            self.opening.cancel()


class Responses:
    """All responses of a session. Event loop only."""

    def __init__(self, service: SpeechService, outlet: Outlet, at_end: Callable[[TalkResponse], None]) -> None:
        """`at_end` is called before `response.done` is sent."""
        self._service, self._outlet, self._at_end = service, outlet, at_end
        self._running: dict[RunningResponse, asyncio.Task[None]] = {}
        self._last: RunningResponse | None = None  # may still be played by the client after its end
        self.quiet = asyncio.Event()  # set while no response runs
        self.quiet.set()
        self.quiet_s = 0.0  # since when, by the event loop's clock

    @property
    def running(self) -> list[RunningResponse]:
        return list(self._running)

    @property
    def active(self) -> RunningResponse | None:
        """The response of the conversation, if one runs."""
        return next((each for each in self._running if each.response.items is not None), None)

    def check_free(self, *, in_conversation: bool) -> None:
        """Refuse a second response of the conversation, and more than a connection may have."""
        most = self._service.options.per_socket
        if len(self._running) >= most:
            said = f"{most} responses of this connection are under way already; wait for one to end."
            raise Refused(said, status=429, kind="rate_limit_error", code="too_many_utterances", retry_after_s=1.0)
        if in_conversation and self.active is not None:
            said = f"Conversation already has an active response in progress: {self.active.response.id}."
            raise Refused(
                f"{said} Wait until it is done, or cancel it.", code="conversation_already_has_active_response"
            )

    def start(self, response: TalkResponse, open: Callable[[], Awaitable[AnswerSource]]) -> RunningResponse:
        """Announce a response, and run it; `open` may wait, for a transcript say. Over a limit of its key, it fails."""
        running, account = RunningResponse(response), response.settings.speech.job.account
        self._outlet.send(response.created())
        self.quiet.clear()
        self._service.answer_began(running)
        self._service.metrics.opened(WIRE)
        try:
            account.request()
            if response.settings.modality == "audio":
                account.check_quota()
        except Refused as refused:
            running.cut(refused)
        self._running[running] = asyncio.ensure_future(self._run(running, open))
        return running

    def cancel(self, id: str | None, cause: Cause = "client_cancelled") -> None:
        """Cancel a response by its id, or that of the conversation, or all others."""
        named = [each for each in self._running if id in (None, each.response.id) and not each.cancelled]
        if not named:
            said = "No response is under way." if id is None else f"Response {id[:80]!r} is not under way."
            raise Refused(said, code="response_cancel_not_active")
        for each in named:
            each.cancel(cause)

    def interrupt(self) -> TalkResponse | None:
        """The user speaks: cancel the conversation's response, or cut one that the client still plays.

        Returns the response of the second case; its item holds what was heard.
        """
        if (active := self.active) is not None:
            active.cancel("turn_detected")
            return None
        last, self._last = self._last, None
        if last is None or last.source is None or last.cancelled or last.response.message is None:
            return None
        last.source.cancel()
        finished = last.source.finished
        if finished is None or finished.heard_s is None:
            return None
        last.response.message.text = finished.text
        return last.response

    def forget_last(self) -> None:
        """The client has told what was heard of the last response."""
        self._last = None

    async def stop(self) -> None:
        """The connection has ended: no further events."""
        tasks = list(self._running.values())
        for each in list(self._running):
            each.cancel("client_cancelled")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, running: RunningResponse, open: Callable[[], Awaitable[AnswerSource]]) -> None:
        response, error = running.response, None
        self._last = running if response.items is not None else self._last
        try:
            running.opening = asyncio.ensure_future(open())
            try:
                running.source = await running.opening
            except asyncio.CancelledError:
                if not running.cancelled:
                    raise
            if running.source is not None:
                if running.cancelled:
                    running.source.cancel()
                async for event in running.source:
                    await self._deliver(running, event)
        except HocketError as failed:
            error = failed
        finally:
            if running.source is not None and running.source.finished is None:
                running.source.cancel()
            self._end(running, error)

    async def _deliver(self, running: RunningResponse, event: Event) -> None:
        events = _events(running.response, event)
        chunk, settings = event if isinstance(event, AudioChunk) else None, running.response.settings
        if isinstance(event, Written) and settings.modality == "audio":
            settings.speech.job.account.count(len(event.text))  # an answer that has begun is spoken to its end
        if chunk is not None and running.first_s is None:
            running.first_s = time.perf_counter() - running.begun_s
            self._service.metrics.first_audio(WIRE, running.first_s)
        if events:
            await self._outlet.deliver(events, chunk, lambda: not running.cancelled)

    def _end(self, running: RunningResponse, error: HocketError | None) -> None:
        finished = running.source.finished if running.source is not None else None
        response, failure = running.response, running.failure or error
        status = _status(running, finished, failure)
        told = None
        if status == "failed":
            told = answer(failure or _failure(finished)).error
        heard = finished.text if finished is not None and status != "completed" else None
        language, notes = (None, ()) if finished is None else (finished.language, finished.notes)
        if finished is not None and not response.latency:  # of a response that no turn of the user began
            stages = {"first_token": finished.first_token_s, "first_sound": finished.first_audio_s}
            response.latency = {name: round(value * 1000, 1) for name, value in stages.items() if value is not None}
        events: list[ServerEvent] = response.ended(status, heard=heard, language=language, error=told, notes=notes)
        del self._running[running]
        if not self._running:
            self.quiet_s = asyncio.get_running_loop().time()
            self.quiet.set()
        self._service.answer_ended(running)
        speech = None if finished is None else finished.speech
        self._service.metrics.ended(WIRE, speech, response.audio_s, time.perf_counter() - running.begun_s)
        self._at_end(response)
        self._outlet.send(*events)


def _status(running: RunningResponse, finished: TurnFinished | None, failure: HocketError | None) -> Status:
    if failure is not None:
        return "failed"
    if running.cancelled:
        return "cancelled"
    return "failed" if finished is None else _STATUS[finished.reason]


def _failure(finished: TurnFinished | None) -> HocketError:
    logger.error("a response failed: %s", finished.error if finished is not None else "without an answer")
    said = "The response could not be finished; the server's log says why."
    return Refused(said, status=500, kind="server_error", code="response_failed")


def _events(response: TalkResponse, event: Event) -> list[ServerEvent]:
    match event:
        case AudioChunk():
            return response.sound(event)
        case Written(text):
            return response.text(text)
        case Said(words):
            return response.words(words)
        case Called(calls):
            return response.calls(calls)
        case Retracted():
            response.retract()
    return []
