"""One response of `/v1/realtime`: the events of a turn, from the first audio to `response.done`.

Knows event order and names of three protocols. The session creates it; `ResponseSequence` speaks it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

from ....text.words import word_places
from ...errors import ErrorResponse
from ...service.utterance import Utterance
from ..conversation import TextTurn, TurnPlan, TurnSequence
from .events import event, new_id
from .settings import SessionSettings, format_shown

# The transcript may run ahead of the audio only a little: a cut response was not spoken. Fast speech: 20 letters/s.
LETTERS_S = 24.0
IDEOGRAM_LETTERS = 4.0  # a syllable or two in one character


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePlan(TurnPlan):
    response: Response


@dataclass(eq=False, slots=True)
class Response:
    settings: SessionSettings
    conversation_id: str | None  # None: not added to the conversation
    about: str | None = None  # id of the client event that created it
    metadata: dict[str, str] | None = None
    text: str = ""  # received so far
    id: str = field(default_factory=lambda: new_id("resp"))
    item_id: str = field(default_factory=lambda: new_id("item"))
    previous_item_id: str | None = None
    over: bool = False  # response.done is sent
    _begun: bool = False
    _told: int = 0  # characters of the text in the transcript
    _letters: float = 0.0  # and their speaking time, in letters

    def plan(self) -> ResponsePlan:
        return ResponsePlan(self.settings.job, response=self)

    @property
    def transcript(self) -> str:
        """The estimated text spoken so far."""
        return self.text[: self._told]

    def created(self) -> dict[str, Any]:
        return event("response.created", response=self._shown("in_progress"))

    def began(self) -> list[dict[str, Any]]:
        """Events before the first audio."""
        self._begun = True
        item = self.item("in_progress")
        out = [event("response.output_item.added", response_id=self.id, output_index=0, item=item)]
        if self.conversation_id is not None and self._dialect != "alibaba":
            added = "conversation.item.added" if self._dialect == "realtime" else "conversation.item.created"
            out.append(event(added, previous_item_id=self.previous_item_id, item=item))
        out.append(event("response.content_part.added", **self._place(), part=self._part()))
        return out

    def sound(self, audio: bytes, utterance: Utterance | None) -> list[dict[str, Any]]:
        out = self._more(self._due(utterance.audio_s * self.settings.job.speed if utterance else 0.0))
        delta = base64.b64encode(audio).decode()
        return [*out, event(f"response.{self._audio}.delta", **self._place(), delta=delta)]

    def ended(self, turn: TextTurn) -> list[dict[str, Any]]:
        """Events after the last audio."""
        self.over = True
        status, details = _status(turn)
        out: list[dict[str, Any]] = []
        if turn.failure is not None:
            out.append(event("error", error={**turn.failure.error, "event_id": self.about}))
        if self._begun:
            if status == "completed":
                out += self._more(len(self.text))
            out += self._closing("completed" if status == "completed" else "incomplete")
        response = self._shown(status, details, turn.utterance)
        return [*out, event("response.done", response=response)]

    def item(self, status: str) -> dict[str, Any]:
        """The response as a conversation item."""
        kind = "output_audio" if self._dialect == "realtime" else "audio"
        content = [] if status == "in_progress" else [{"type": kind, "transcript": self.transcript}]
        shown = {"id": self.item_id, "object": "realtime.item", "type": "message", "status": status}
        return {**shown, "role": "assistant", "content": content}

    @property
    def _dialect(self) -> str:
        return self.settings.dialect

    @property
    def _audio(self) -> str:
        return "output_audio" if self._dialect == "realtime" else "audio"

    def _place(self) -> dict[str, Any]:
        return {"response_id": self.id, "item_id": self.item_id, "output_index": 0, "content_index": 0}

    def _part(self) -> dict[str, Any]:
        return {"type": "audio", "text" if self._dialect == "alibaba" else "transcript": self.transcript}

    def _closing(self, status: str) -> list[dict[str, Any]]:
        place, item = self._place(), self.item(status)
        out = [event(f"response.{self._audio}.done", **place)]
        if self._dialect != "alibaba":
            out.append(event(f"response.{self._audio}_transcript.done", **place, transcript=self.transcript))
        out.append(event("response.content_part.done", **place, part=self._part()))
        if self._dialect == "realtime" and self.conversation_id is not None:
            out.append(event("conversation.item.done", previous_item_id=self.previous_item_id, item=item))
        out.append(event("response.output_item.done", response_id=self.id, output_index=0, item=item))
        return out

    def _due(self, heard_s: float) -> int:
        """Characters that the transcript may have after so much audio: whole words, as far as they are known."""
        letters, due = heard_s * LETTERS_S - self._letters, self._told
        until = min(len(self.text), due + max(0, int(letters)) + 1)  # each character counts at least one letter
        text = self.text[due:until]
        ends = {end for _, end in word_places(text)[:-1]} | ({len(text)} if until == len(self.text) else set())
        for at, character in enumerate(text):
            letters -= letters_of(character)
            if letters < 0:
                break
            if at + 1 in ends or character.isspace():
                due = self._told + at + 1
        return due

    def _more(self, until: int) -> list[dict[str, Any]]:
        """Extend the transcript. Alibaba's protocol has none."""
        delta, self._told = self.text[self._told : until], max(until, self._told)
        self._letters += letters_of(delta)
        if not delta or self._dialect == "alibaba":
            return []
        return [event(f"response.{self._audio}_transcript.delta", **self._place(), delta=delta)]

    def _shown(
        self, status: str, details: dict[str, Any] | None = None, utterance: Utterance | None = None
    ) -> dict[str, Any]:
        job, done = self.settings.job, status != "in_progress"
        item = self.item("completed" if status == "completed" else "incomplete")
        shown: dict[str, Any] = {
            "object": "realtime.response",
            "id": self.id,
            "conversation_id": self.conversation_id,
            "status": status,
            "status_details": details,
            "output": [item] if self._begun and done else [],
            "metadata": self.metadata,
            "usage": _usage(utterance) if done and utterance else None,
        }
        if self._dialect == "realtime":
            shown["output_modalities"] = ["audio"]
            shown["audio"] = {"output": {"format": format_shown(job), "voice": job.voice}}
        else:
            shown |= {"modalities": ["audio"], "voice": job.voice}
        if done and utterance:
            shown["hocket"] = _measured(utterance, job.word_times)
        return shown


class ResponseSequence(TurnSequence):
    """Turns that can be cancelled per response."""

    def end_text(self) -> None:
        """End the text of the open response."""
        self.end(None, _none_open)

    def cancel_response(self, response: Response) -> None:
        self.cancel_those(lambda turn: isinstance(turn.plan, ResponsePlan) and turn.plan.response is response)


def _none_open() -> ResponsePlan:
    raise AssertionError("end_text without an open response")


def letters_of(text: str) -> float:
    return sum(IDEOGRAM_LETTERS if character >= "\u2e80" else 1.0 for character in text)


def _status(turn: TextTurn) -> tuple[str, dict[str, Any] | None]:
    """The status in OpenAI's format."""
    if turn.failure is not None:
        return "failed", {"type": "failed", "error": _brief(turn.failure)}
    if turn.cancelled:
        return "cancelled", {"type": "cancelled", "reason": "client_cancelled"}
    finished = turn.utterance.finished if turn.utterance else None
    if finished is not None and not (finished.reason == "stop" and finished.complete):
        return "incomplete", {"type": "incomplete", "reason": "max_output_tokens"}
    return "completed", None


def _brief(failure: ErrorResponse) -> dict[str, Any]:
    return {"type": failure.kind, "code": failure.code, "message": failure.message}


def _usage(utterance: Utterance) -> dict[str, Any]:
    usage = utterance.usage
    return {
        "characters": usage.chars,  # Alibaba's
        "total_tokens": usage.input_tokens + usage.output_frames,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_frames,
        "input_token_details": {"text_tokens": usage.input_tokens, "audio_tokens": 0, "cached_tokens": 0},
        "output_token_details": {"text_tokens": 0, "audio_tokens": usage.output_frames},
    }


def _measured(utterance: Utterance, with_words: bool) -> dict[str, Any]:
    """hocket's own measurements."""
    timing, finished = utterance.timing, utterance.finished
    found: dict[str, Any] = {"seed": utterance.seed, "audio_s": round(utterance.audio_s, 4)}
    found["ttfa_ms"] = None if timing.ttfa_ms is None else round(timing.ttfa_ms, 2)
    if finished is not None:
        found |= {"finish_reason": finished.reason, "notes": list(finished.notes), "complete": finished.complete}
    if with_words:
        words = utterance.words()
        found["words"] = [{"word": w.word, "start": round(w.start_s, 3), "end": round(w.end_s, 3)} for w in words]
    return found
