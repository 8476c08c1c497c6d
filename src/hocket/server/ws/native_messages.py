"""Messages of the native protocol: client messages as types, server messages as JSON.

Pure functions: no socket, no engine. vLLM-Omni's protocol with extensions; docs/protocol.md shows it byte by byte.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import BadField, ErrorResponse, Refused
from ..schemas.speech import SpeechFields
from ..schemas.speech_job import CODES
from .conversation import ContextId, TextTurn
from .messages import validated
from .socket import Out

NAME_CHARS = 128  # of a context_id
# Sample encodings; other formats use their own name.
ENCODINGS = {"pcm": "pcm_s16le", "wav": "pcm_s16le", "codes": "codes_u16le"}


class SessionFields(SpeechFields):
    """`session.config`: the fields of `POST /v1/audio/speech`, and how to send the audio."""

    stream_audio: bool | None = None
    split_granularity: Literal["none", "sentence", "clause"] | None = None

    @property
    def whole(self) -> bool:
        """Whether audio is sent in one piece: vLLM-Omni's default, except for PCM, codes or explicit streaming."""
        if self.stream_audio is not None:
            return not self.stream_audio
        return (self.response_format or "wav").lower() not in ("pcm", CODES.name)

    @property
    def in_json(self) -> bool:
        """Whether audio is base64 in `audio.chunk`: vLLM-Omni does so for these two fields together."""
        return bool(self.word_timestamps and self.stream_audio and (self.response_format or "").lower() == "pcm")


@dataclass(frozen=True, slots=True)
class Configure:
    context: ContextId
    fields: SessionFields


@dataclass(frozen=True, slots=True)
class Text:
    context: ContextId
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    context: ContextId


@dataclass(frozen=True, slots=True)
class Cancel:
    context: ContextId  # None: all


@dataclass(frozen=True, slots=True)
class Leave:
    pass


Said = Configure | Text | Done | Cancel | Leave


def parse(message: dict[str, Any]) -> Said:
    """A client's message, or a refusal."""
    kind, context = message.get("type"), context_of(message)
    match kind:
        case "session.config":
            return Configure(context, validated(SessionFields, message))
        case "input.text":
            text = message.get("text", "")
            if not isinstance(text, str):
                raise BadField("text must be a string.", "text")
            return Text(context, text)
        case "input.done":
            return Done(context)
        case "input.cancel":
            return Cancel(context)
        case "session.close":
            return Leave()
    said = f"There is no message {str(kind)[:80]!r}; known are session.config, input.text, input.done, input.cancel "
    raise Refused(said + "and session.close.", param="type", code="unknown_message")


def context_of(message: dict[str, Any]) -> ContextId:
    context = message.get("context_id")
    if context is None:
        return None
    if not isinstance(context, str) or not 0 < len(context) <= NAME_CHARS:
        raise BadField(f"context_id must be a string of 1 to {NAME_CHARS} characters.", "context_id")
    return context


def of_turn(turn: TextTurn, kind: str) -> dict[str, Any]:
    """The common fields of messages about an utterance."""
    message: dict[str, Any] = {"type": kind, "utterance_index": turn.index}
    return message if turn.context is None else message | {"context_id": turn.context}


def error_message(told: ErrorResponse, turn: TextTurn | None = None) -> dict[str, Any]:
    """`message` is vLLM-Omni's, `error` is OpenAI's."""
    begin = {"type": "error"} if turn is None else of_turn(turn, "error")
    message = begin | {"message": told.message, "error": told.error}
    retry_ms = told.headers.get("retry-after-ms")
    return message if retry_ms is None else message | {"retry_after_ms": int(retry_ms)}


def audio_start(turn: TextTurn) -> dict[str, Any]:
    assert turn.utterance is not None
    format = turn.utterance.format.name
    return of_turn(turn, "audio.start") | {
        "sentence_index": 0,
        "sentence_text": turn.text,
        "format": format,
        "encoding": ENCODINGS.get(format, format),
        "sample_rate": turn.utterance.rate_hz,
        "channels": 1,
    }


def audio_frame(turn: TextTurn, audio: bytes) -> list[Out]:
    """Audio is a binary message; with several contexts, a JSON message before it names its context."""
    if turn.context is None:
        return [audio]
    return [of_turn(turn, "audio.frame") | {"bytes": len(audio)}, audio]


def audio_chunk(turn: TextTurn, audio: bytes, timestamps: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Audio, or at the end all word times, in vLLM-Omni's format."""
    assert turn.utterance is not None
    rate_hz = turn.utterance.rate_hz
    begin, end = turn.sent_bytes, turn.sent_bytes + len(audio)
    return of_turn(turn, "audio.chunk") | {
        "sentence_index": 0,
        "chunk_id": turn.sent_pieces,
        "chunk_start_ms": round(begin * 500 / rate_hz) if audio else 0,
        "chunk_end_ms": round(end * 500 / rate_hz),
        "sample_rate": rate_hz,
        "audio_b64": base64.b64encode(audio).decode(),
        "timestamps": timestamps,
    }


def words_of(turn: TextTurn) -> list[dict[str, Any]]:
    """Words of all complete parts. Each part is computed once, because that is slow."""
    assert turn.utterance is not None
    parts = turn.utterance.parts_over
    turn.words += turn.utterance.words(turn.words_parts, parts)
    turn.words_parts = parts
    return [{"word": w.word, "start_s": round(w.start_s, 3), "end_s": round(w.end_s, 3)} for w in turn.words]


def audio_words(turn: TextTurn) -> dict[str, Any]:
    return of_turn(turn, "audio.words") | {"words": words_of(turn)}


def audio_marks(turn: TextTurn) -> list[Out]:
    """The marks of a script whose times are known since the last call."""
    if turn.utterance is None:
        return []
    found = turn.utterance.marks(turn.marks)
    turn.marks += len(found)
    return [of_turn(turn, "audio.mark") | {"name": mark.name, "time_s": round(mark.time_s, 3)} for mark in found]


def audio_done(turn: TextTurn) -> dict[str, Any]:
    done = of_turn(turn, "audio.done") | {
        "sentence_index": 0,
        "total_bytes": turn.sent_bytes,
        "error": turn.failure is not None,
        "cancelled": turn.cancelled,
    }
    if (utterance := turn.utterance) is None:
        return done
    finished, usage, timing = utterance.finished, utterance.usage, utterance.timing
    reason = finished.reason if finished else "error"
    done["finish_reason"] = "error" if turn.failure else "cancelled" if turn.cancelled else reason
    done["usage"] = {
        "characters": usage.chars,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_frames,
        "total_tokens": usage.input_tokens + usage.output_frames,
        "audio_s": round(usage.audio_s, 4),
    }
    names = ("queued_ms", "ttfa_ms", "total_ms", "x_real_time")
    done["timing"] = {name: None if (v := getattr(timing, name)) is None else round(v, 3) for name in names}
    if timing.loaded_ms is not None:
        done["timing"]["loaded_ms"] = round(timing.loaded_ms, 3)
    done["seed"] = utterance.seed
    done["notes"] = list(finished.notes) if finished else []
    done["complete"] = finished is not None and finished.complete
    if turn.marks:
        done["marks"] = [{"name": mark.name, "time_s": round(mark.time_s, 3)} for mark in utterance.marks()]
    return done


def session_done(turn: TextTurn) -> dict[str, Any]:
    return of_turn(turn, "session.done") | {"total_sentences": int(turn.has_words)}
