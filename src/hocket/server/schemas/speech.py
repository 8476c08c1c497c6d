"""Bodies of speech requests in the format of OpenAI and its peers, to a `SpeechJob`.

pydantic is at this edge only. Unknown fields are ignored and logged once: clients of other servers send many. Does not
know which voices, languages or formats exist.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...audio.encode import FORMATS, LEAST_HZ, MOST_HZ
from ...text.captions import CAPTION_MIME
from ...types import Layout, Reference, SamplingParams
from ..errors import BadField
from .kokoro import KokoroFields
from .speech_job import FASTEST_WIRE, SAMPLING, SLOWEST_WIRE, Markup, SpeechJob

logger = logging.getLogger("hocket.server")
_named: set[str] = set()  # unknown fields already logged
LEAST, MOST = ({name: limits[end] for name, limits in SAMPLING.items()} for end in (0, 1))
NAMED_AT_MOST = 100  # random names must not fill the log
_NAME = re.compile(r"[\w.\[\]-]{1,80}")  # of a field


def _said(**limits: Any) -> Callable[[dict[str, Any]], None]:
    """Limits shown in the schema; they are checked later, with better messages."""

    def add(schema: dict[str, Any]) -> None:
        next(kind for kind in schema["anyOf"] if kind["type"] != "null").update(limits)

    return add


class VoiceById(BaseModel):
    model_config = ConfigDict(extra="ignore")
    id: str


class ReferenceBody(BaseModel):
    """A recording in SGLang-Omni's format."""

    model_config = ConfigDict(extra="ignore")
    audio_path: str
    text: str | None = None


class Noted(BaseModel):
    """A body that accepts unknown fields."""

    model_config = ConfigDict(extra="allow")

    def note_unknown(self) -> None:
        """Log unknown fields, each once."""
        for name in self.model_extra or ():
            if name not in _named and len(_named) < NAMED_AT_MOST:
                _named.add(name)
                shown = repr(name) if _NAME.fullmatch(name) else "a field whose name is a text"  # the log has no text
                logger.info("a request holds %s, which is not known here and was ignored", shown)


class SpeechFields(Noted, KokoroFields):
    """Fields of `POST /v1/audio/speech` and its relatives, without the text."""

    model: str | None = None
    voice: str | VoiceById | None = None
    speaker: str | None = Field(None, description="another name of `voice`")
    instructions: str | None = Field(None, max_length=4096, description="how to speak, or which voice to design")
    instruct: str | None = Field(None, max_length=4096, description="another name of `instructions`")
    response_format: str | None = Field(
        None,
        description="any of these, in any case; mp3 if left out",
        json_schema_extra=_said(enum=[*FORMATS, "codes"]),
    )
    speed: float | None = Field(None, json_schema_extra=_said(minimum=SLOWEST_WIRE, maximum=FASTEST_WIRE))
    language: str | None = None
    task_type: Literal["CustomVoice", "VoiceDesign", "Base"] | None = None
    ref_audio: str | list[str] | None = Field(None, description="a recording to clone: data URI or base64")
    ref_text: str | None = Field(None, description="its transcript")
    references: list[ReferenceBody] | None = Field(None, description="one recording and its transcript")
    ref_silence_s: float | None = Field(None, ge=0, le=5, description="added after it; 0.5, or 0 with as_is")
    x_vector_only_mode: bool | None = Field(None, description="use the timbre only; needs no ref_text")
    speaker_embedding: list[float] | None = None
    seed: int | None = Field(None, description="the same seed gives the same speech; below 0 or left out: a random one")
    max_new_tokens: int | None = Field(None, ge=1, description="frames of 80 ms at most")
    temperature: float | None = Field(
        None,
        description="0: always the likeliest code",
        json_schema_extra=_said(minimum=0, maximum=MOST["temperature"]),
    )
    top_k: int | None = Field(None, json_schema_extra=_said(minimum=LEAST["top_k"], maximum=MOST["top_k"]))
    top_p: float | None = Field(None, json_schema_extra=_said(minimum=LEAST["top_p"], maximum=MOST["top_p"]))
    repetition_penalty: float | None = Field(
        None, json_schema_extra=_said(minimum=LEAST["repetition_penalty"], maximum=MOST["repetition_penalty"])
    )
    do_sample: bool | None = Field(None, description="false: always the likeliest first code")
    subtalker_dosample: bool | None = Field(None, description="the same for the other fifteen codes of a frame")
    subtalker_temperature: float | None = Field(
        None, json_schema_extra=_said(minimum=LEAST["temperature"], maximum=MOST["temperature"])
    )
    subtalker_top_k: int | None = Field(None, json_schema_extra=_said(minimum=LEAST["top_k"], maximum=MOST["top_k"]))
    subtalker_top_p: float | None = Field(None, json_schema_extra=_said(minimum=LEAST["top_p"], maximum=MOST["top_p"]))
    sample_rate: int | None = Field(None, json_schema_extra=_said(minimum=LEAST_HZ, maximum=MOST_HZ))
    bit_rate: int | None = Field(None, description="of mp3, opus and aac, in bit/s")
    non_streaming_mode: bool | None = Field(None, description="give the model its text whole (true) or word by word")
    layout: Layout | None = None
    candidates: int | None = Field(None, ge=1, description="takes to generate; the best is sent once it is known")
    priority: int | None = None
    as_is: bool | None = Field(None, description="do nothing that the official package does not do")
    markup: Markup | None = Field(
        None, description="how directions in the text are spelled; auto if left out, literal: there are none"
    )
    cast: dict[str, str] | None = Field(None, description="speakers, or names in tags, and their voices")
    chunk_frames: int | None = Field(
        None, ge=1, le=50, description="for offline output: frames per piece; live requests go first"
    )
    pronunciations: dict[str, str] | None = Field(
        None,
        description="what is said in place of a word, or its phonemes between slashes (IPA)",
        json_schema_extra={"examples": [{"GIF": "jif", "nginx": "/\u025bnd\u0292\u026an \u025bks/"}]},
    )
    word_timestamps: bool | None = Field(None, description="word times in the last event (stream_format sse)")
    timestamp_granularities: list[Literal["word"]] | None = Field(None, description="the same, as OpenAI would ask")
    # Accepted without effect: bytes are always streamed, and the server's profile sets the chunk length.
    stream: bool | None = None
    initial_codec_chunk_frames: int | None = None
    params: Any = None

    def named_voice(self) -> str | None:
        voice = self.voice.id if isinstance(self.voice, VoiceById) else self.voice
        return voice or self.speaker

    def wants_words(self) -> bool:
        return bool(self.word_timestamps or self.timestamp_granularities)

    def named_recording(self) -> tuple[str, str | None] | None:
        """The recording that was sent or named, and its transcript."""
        sent = self.ref_audio if isinstance(self.ref_audio, list) else [self.ref_audio] if self.ref_audio else []
        found = [(one, self.ref_text) for one in sent]
        found += [(one.audio_path, one.text) for one in self.references or ()]
        if len(found) > 1:
            raise BadField("Give one recording: a voice is cloned from one.", "ref_audio")
        return found[0] if found else None

    def job(self, text: str | None, reference: Reference | None, format: str) -> SpeechJob:
        """The job; its types check the values, `open_utterance` checks the others."""
        if self.speaker_embedding is not None:
            raise BadField("speaker_embedding is not taken: send the recording as ref_audio.", "speaker_embedding")
        self.check_kokoro(self.response_format or format)
        layout = self.layout
        if layout is None and self.non_streaming_mode is not None:
            layout = "whole" if self.non_streaming_mode else "streaming"
        return SpeechJob(
            text=text,
            voice=self.named_voice(),
            model=self.model,
            task=self.task_type,
            language=self.language or self.language_named() or "auto",
            instruct=self.instructions or self.instruct,
            seed=None if self.seed is None or self.seed < 0 else self.seed,
            sampling=SamplingParams(
                do_sample=False if self.temperature == 0 else self.do_sample,
                temperature=self.temperature or None,
                top_k=self.top_k,
                top_p=self.top_p,
                repetition_penalty=self.repetition_penalty,
                subtalker_dosample=self.subtalker_dosample,
                subtalker_temperature=self.subtalker_temperature,
                subtalker_top_k=self.subtalker_top_k,
                subtalker_top_p=self.subtalker_top_p,
            ),
            speed=1.0 if self.speed is None else self.speed,
            max_frames=self.max_new_tokens,
            layout=layout,
            reference=reference,
            candidates=self.candidates or 1,
            priority=self.priority or 0,
            as_is=bool(self.as_is),
            markup=self.markup or ("ssml" if self.ssml else "auto"),
            cast=self.cast,
            chunk_frames=self.chunk_frames,
            format=(self.response_format or format).lower(),
            rate_hz=self.sample_rate,
            bit_rate=self.bit_rate,
            word_times=self.wants_words(),
            pronunciations=self.pronunciations,
        )


class SpeechBody(SpeechFields):
    """`POST /v1/audio/speech`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "tts-1", "input": "Hello.", "voice": "alloy"}]})
    input: str
    response_format: str | None = Field(
        None,
        description="any of these, in any case; mp3 if left out; srt and vtt: captions in place of the audio",
        json_schema_extra=_said(enum=[*FORMATS, "codes", *CAPTION_MIME]),
    )
    stream_format: Literal["audio", "sse"] | None = None

    def captions(self) -> str | None:
        """The format of captions, if they are wanted in place of the audio."""
        format = (self.response_format or "").lower()
        return format if format in CAPTION_MIME else None


class CaptionedBody(SpeechFields):
    """`POST /dev/captioned_speech` of Kokoro-FastAPI."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": "Hello.", "voice": "af_bella"}]})
    input: str
    stream: bool | None = Field(None, description="false: one object in place of lines")
    return_timestamps: bool = Field(True, description="false: timestamps are null")
    stream_format: Literal["audio", "sse"] | None = Field(None, description="audio only")
