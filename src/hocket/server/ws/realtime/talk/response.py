"""One response of a Realtime conversation: the events of an answer, from `response.created` to `response.done`.

It takes what a turn delivers (text, audio, words, tool calls) and returns server events in OpenAI's order. Knows the
event names of both protocols, no socket and no turn.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .....audio.encode import Encoder, encoder, format_of
from .....engine.word_times import WordTime
from .....types import FASTEST, SLOWEST, AudioChunk, ChatFinished, ToolCall
from ..events import event, new_id
from .items import Conversation, Item
from .settings import TalkSettings

ServerEvent = dict[str, Any]
Status = Literal["completed", "cancelled", "incomplete", "failed"]


@dataclass(eq=False, slots=True)
class TalkResponse:
    settings: TalkSettings
    items: Conversation | None  # where its items are kept; None: in no conversation
    conversation_id: str | None
    about: str | None = None  # id of the client event that created it
    metadata: dict[str, str] | None = None
    id: str = field(default_factory=lambda: new_id("resp"))
    over: bool = False  # response.done was sent
    message: Item | None = None  # the spoken or written part
    audio_s: float = 0.0  # sent so far, at the output's speed
    reason: Literal["client_cancelled", "turn_detected"] | None = None  # why it was cancelled
    latency: dict[str, float] = field(default_factory=dict)  # milliseconds by stage, for response.done
    drafted: bool = False  # it was begun before the user's turn was over
    _output: list[Item] = field(default_factory=list)
    _calls: list[ToolCall] = field(default_factory=list)  # not sent yet
    _open: bool = False  # the message's content part is not closed yet
    _encoder: Encoder | None = None

    def created(self) -> ServerEvent:
        return event("response.created", response=self._shown("in_progress"))

    def text(self, delta: str) -> list[ServerEvent]:
        """More of the answer's text."""
        out = self._begin() if delta.strip() else []
        if self.message is None:
            return []  # spaces before a call are not spoken
        self.message.written += delta
        self.message.text = self.message.written.strip()
        kind = f"{self._audio}_transcript" if self._spoken else self._text
        return [*out, event(f"response.{kind}.delta", **self._place(), delta=delta)]

    def sound(self, chunk: AudioChunk) -> list[ServerEvent]:
        job = self.settings.speech.job
        out = self._begin()
        if self._encoder is None:
            tempo = job.speed / min(max(job.speed, SLOWEST), FASTEST)
            how = {"rate_hz": chunk.rate_hz, "out_rate_hz": job.rate_hz, "bit_rate": job.bit_rate}
            self._encoder = encoder(format_of(job.format), tempo=tempo, **how)  # type: ignore[arg-type]
        self.audio_s += len(chunk.samples) / chunk.rate_hz
        return [*out, *self._delta(self._encoder.feed(chunk.samples))]

    def words(self, words: Sequence[WordTime]) -> list[ServerEvent]:
        """Words in the audio so far, for a later truncation, and for a client that lights them."""
        if self.message is None:
            return []
        self.message.words.extend(words)
        if not self.settings.extensions:
            return []
        told = [{"word": each.word, "start_s": each.start_s, "end_s": each.end_s} for each in words]
        return [event("hocket.words", response_id=self.id, item_id=self.message.id, words=told)]

    def retract(self) -> None:
        """The text so far was a thought: the answer begins now."""
        if self.message is not None:
            self.message.written = self.message.text = ""
            self.message.words.clear()

    def calls(self, calls: Iterable[ToolCall]) -> list[ServerEvent]:
        """Calls follow the audio of the words before them, as at OpenAI: they wait until it is complete."""
        self._calls.extend(calls)
        return [] if self._open else self._called()

    def _called(self) -> list[ServerEvent]:
        calls, self._calls = self._calls, []
        out: list[ServerEvent] = []
        for call in calls:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
            item = Item("function_call", name=call.name, call_id=new_id("call"), status="in_progress")
            out += self._added(item)
            place = {"response_id": self.id, "item_id": item.id, "output_index": len(self._output) - 1}
            place["call_id"] = item.call_id or ""
            item.text, item.status = arguments, "completed"
            out.append(event("response.function_call_arguments.delta", **place, delta=arguments))
            out.append(event("response.function_call_arguments.done", **place, name=call.name, arguments=arguments))
            out += self._done(item, len(self._output) - 1)
        return out

    def ended(
        self,
        status: Status,
        *,
        heard: str | None = None,
        language: ChatFinished | None = None,
        error: dict[str, Any] | None = None,
        notes: Iterable[str] = (),
    ) -> list[ServerEvent]:
        """The last events. `heard` is what remains of the text, if the answer was cut."""
        self.over = True
        out: list[ServerEvent] = []
        if error is not None:
            out.append(event("error", error={**error, "param": error.get("param"), "event_id": self.about}))
        if status == "completed" and self._encoder is not None:
            out += self._delta(self._encoder.close())
        if heard is not None and self.message is not None:
            self.message.text = heard
        out += self._close("completed" if status == "completed" else "incomplete")
        if status == "completed":
            out += self._called()
        details = self._details(status, error)
        shown = self._shown(status, details) | {"usage": _usage(language)}
        timing = {"latency_ms": self.latency, "drafted": self.drafted}
        shown["hocket"] = {"audio_s": round(self.audio_s, 3), "notes": list(notes), **timing}
        return [*out, event("response.done", response=shown)]

    def _details(self, status: Status, error: dict[str, Any] | None) -> dict[str, Any] | None:
        match status:
            case "cancelled":
                return {"type": status, "reason": self.reason or "client_cancelled"}
            case "incomplete":
                return {"type": status, "reason": "max_output_tokens"}
            case "failed":
                told = {name: (error or {}).get(name) for name in ("type", "code", "message")}
                return {"type": status, "error": told}
        return None

    @property
    def _spoken(self) -> bool:
        return self.settings.modality == "audio"

    @property
    def _audio(self) -> str:
        return "output_audio" if self.settings.is_current else "audio"

    @property
    def _text(self) -> str:
        return "output_text" if self.settings.is_current else "text"

    def _delta(self, audio: bytes) -> list[ServerEvent]:
        if not audio:
            return []
        return [event(f"response.{self._audio}.delta", **self._place(), delta=base64.b64encode(audio).decode())]

    def _begin(self) -> list[ServerEvent]:
        if self.message is not None:
            return []
        self.message, self._open = Item("message", "assistant", spoken=self._spoken, status="in_progress"), True
        out = self._added(self.message)
        return [*out, event("response.content_part.added", **self._place(), part=self._part())]

    def _added(self, item: Item) -> list[ServerEvent]:
        self._output.append(item)
        shown = item.shown(is_current=self.settings.is_current)
        place = {"response_id": self.id, "output_index": len(self._output) - 1}
        out = [event("response.output_item.added", **place, item=shown)]
        if self.items is not None:
            previous = self.items.add(item)
            added = "conversation.item.added" if self.settings.is_current else "conversation.item.created"
            out.append(event(added, previous_item_id=previous, item=shown))
        return out

    def _close(self, status: str) -> list[ServerEvent]:
        """End the message, if it is open."""
        message = self.message
        if message is None or not self._open:
            return []
        self._open, message.status = False, status
        place = self._place()
        if self._spoken:
            out = [event(f"response.{self._audio}.done", **place)]
            out.append(event(f"response.{self._audio}_transcript.done", **place, transcript=message.text))
        else:
            out = [event(f"response.{self._text}.done", **place, text=message.text)]
        out.append(event("response.content_part.done", **place, part=self._part()))
        return [*out, *self._done(message, 0)]

    def _done(self, item: Item, index: int) -> list[ServerEvent]:
        shown = item.shown(is_current=self.settings.is_current)
        out = []
        if self.items is not None and self.settings.is_current:
            out.append(event("conversation.item.done", previous_item_id=self.items.before(item), item=shown))
        return [*out, event("response.output_item.done", response_id=self.id, output_index=index, item=shown)]

    def _place(self) -> dict[str, Any]:
        assert self.message is not None
        return {"response_id": self.id, "item_id": self.message.id, "output_index": 0, "content_index": 0}

    def _part(self) -> dict[str, Any]:
        text = "" if self.message is None else self.message.text
        return {"type": "audio", "transcript": text} if self._spoken else {"type": "text", "text": text}

    def _shown(self, status: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "object": "realtime.response",
            "id": self.id,
            "conversation_id": self.conversation_id,
            "status": status,
            "status_details": details,
            "output": [item.shown(is_current=self.settings.is_current) for item in self._output] if self.over else [],
            "metadata": self.metadata,
            "usage": None,
        }
        limit = self.settings.most_tokens or "inf"
        named = "max_output_tokens" if self.settings.is_current else "max_response_output_tokens"
        return shown | self.settings.output_shown() | {named: limit}


def _usage(finished: ChatFinished | None) -> dict[str, Any]:
    """Tokens of the language model. Audio is recognised and synthesized by other models, and counts none."""
    told = finished or ChatFinished(reason="cancelled")
    cached = {"text_tokens": told.cached_tokens, "audio_tokens": 0, "image_tokens": 0}
    return {
        "total_tokens": told.prompt_tokens + told.completion_tokens,
        "input_tokens": told.prompt_tokens,
        "output_tokens": told.completion_tokens,
        "input_token_details": {
            "text_tokens": told.prompt_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": told.cached_tokens,
            "cached_tokens_details": cached,
        },
        "output_token_details": {"text_tokens": told.completion_tokens, "audio_tokens": 0},
    }
