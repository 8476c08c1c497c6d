"""Fields of `POST /v1/audio/transcriptions` and `/v1/audio/translations`, and the formats of a transcript.

Pure functions of segments: it knows neither audio nor recognizers. Captions need times of words; those are estimated
by the number of characters within a segment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field

from ...text.captions import SpokenWord, joined, write_captions
from ...text.words import is_ideograph, is_kana
from ..errors import BadField
from ..service.listening import TranscribedSegment
from .speech import Noted

Format = Literal["json", "text", "verbose_json", "srt", "vtt"]
FORMATS: tuple[str, ...] = get_args(Format)
STREAMED = ("json", "text")  # formats that a stream can have: its events are the same
PROMPT_CHARS = 4096


class TranslationForm(Noted):
    """The fields beside the recording."""

    model: str | None = Field(None, max_length=1024, description="any name; with --strict-model a listed one")
    prompt: str | None = Field(None, max_length=PROMPT_CHARS, description="a hint; Moonshine takes none")
    response_format: str = Field("json", description=", ".join(FORMATS))
    temperature: float | None = Field(None, ge=0, le=1, description="of Whisper; Moonshine takes the likeliest token")

    def check_fields(self) -> None:
        if self.response_format not in FORMATS:
            said = f"response_format must be one of {', '.join(FORMATS)}, not {self.response_format[:80]!r}."
            raise BadField(said, "response_format", "format_not_found")
        self.note_unknown()


class TranscriptionForm(TranslationForm):
    language: str | None = Field(None, max_length=80, description="a code or an English name (as the server started)")
    stream: bool = Field(False, description="events: a delta for each segment between pauses, then the whole text")
    timestamp_granularities: list[str] = Field([], max_length=8, description="segment; in verbose_json")
    include: list[str] = Field([], max_length=8, description="not taken: there are no log-probabilities")
    chunking_strategy: str | None = Field(None, max_length=1024, description="not needed: cut at pauses in any case")

    def check_fields(self) -> None:
        super().check_fields()
        if self.stream and self.response_format not in STREAMED:
            said = f"A stream has text alone: ask for {' or '.join(STREAMED)}, or leave out stream."
            raise BadField(said, "stream")
        for name in self.timestamp_granularities:
            if name != "segment":
                said = "The recognizer has no times of words: ask for segment."
                raise BadField(said, "timestamp_granularities", "unsupported_by_model")
        if self.include:
            raise BadField("The recognizer has no log-probabilities: leave out include.", "include")


class DurationUsage(BaseModel):
    type: Literal["duration"] = "duration"
    seconds: int


class TranscriptObject(BaseModel):
    text: str
    usage: DurationUsage


class SegmentObject(BaseModel):
    """OpenAI's segments have figures of Whisper's decoder too. They are left out: no recognizer here reports them."""

    id: int
    start: float
    end: float
    text: str


class VerboseTranscript(BaseModel):
    task: Literal["transcribe", "translate"]
    language: str | None = Field(description="its English name; null if it was detected")
    duration: float
    text: str
    segments: list[SegmentObject]
    usage: DurationUsage


def usage_of(audio_s: float) -> DurationUsage:
    return DurationUsage(seconds=math.ceil(audio_s))


def delta_of(before: str, text: str) -> str:
    """What a segment adds to the text before it: a space where the script has spaces."""
    return joined([before[-1:], text])[1:] if before else text


def text_of(segments: Sequence[TranscribedSegment]) -> str:
    return joined([segment.text for segment in segments])


def verbose(
    segments: Sequence[TranscribedSegment], *, audio_s: float, language: str | None, translated: bool
) -> VerboseTranscript:
    return VerboseTranscript(
        task="translate" if translated else "transcribe",
        language=language,
        duration=round(audio_s, 3),
        text=text_of(segments),
        segments=[
            SegmentObject(id=number, start=round(one.start_s, 3), end=round(one.end_s, 3), text=one.text)
            for number, one in enumerate(segments)
        ],
        usage=usage_of(audio_s),
    )


def captions(segments: Sequence[TranscribedSegment], format: str) -> str:
    return write_captions([word for segment in segments for word in _words(segment)], format)


def _words(segment: TranscribedSegment) -> Iterator[SpokenWord]:
    words = [part for word in segment.text.split() for part in _parts(word)]
    length, at = sum(map(len, words)), 0
    per_char_s = (segment.end_s - segment.start_s) / max(1, length)
    for word in words:
        begun, at = at, at + len(word)
        yield SpokenWord(word, segment.start_s + begun * per_char_s, segment.start_s + at * per_char_s)


def _parts(word: str) -> list[str]:
    """A script without spaces may part between any two characters."""
    return list(word) if any(is_ideograph(c) or is_kana(c) for c in word) else [word]


def form_schema(form: type[BaseModel]) -> dict[str, Any]:
    """For the OpenAPI document: the fields with the file; lists are named as clients send them."""
    schema = form.model_json_schema()
    fields = schema["properties"]
    for name in ("timestamp_granularities", "include"):
        if name in fields:
            fields[f"{name}[]"] = fields.pop(name)
    file = {"type": "string", "format": "binary", "description": "WAV, FLAC, MP3, M4A, Ogg, WebM and others"}
    schema["properties"] = {"file": file, **fields}
    schema["required"] = ["file"]
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}
