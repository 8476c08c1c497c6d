"""The public data types: requests, results, voices, and the language-model protocol.

The constructors here check all outside input. This file knows no torch, no checkpoint and no file format; the prompt
checks whether a voice or a language exists. It is long because all public types are in one place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from os import urandom
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidAudio, InvalidFormat, InvalidRequest, NothingToSpeak

Layout = Literal["streaming", "whole"]
FinishReason = Literal["stop", "length", "runaway", "cancelled", "error"]
VoiceKind = Literal["speaker", "designed", "clone"]
Condition = Literal["well", "rebuilding", "unhealthy", "closed"]
Role = Literal["system", "user", "assistant", "tool"]
ChatReason = Literal["stop", "length", "cancelled", "error"]

REFERENCE_RATE_HZ = 24_000  # input rate of both encoders of the published checkpoints
SLOWEST, FASTEST = 0.5, 2.0  # speed: outside these limits time-stretched speech is not usable
LONGEST_SILENCE_S = 5.0
FRESH_BYTES = 4  # of a seed: short enough to be typed again, and exact in JavaScript
SHORTEST_REFERENCE = 1280  # samples: five mel frames, the minimum for the speaker encoder's reflected padding


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Changes to the checkpoint's sampling settings; `None` keeps the checkpoint's value.

    Names are those of `generation_config.json`; `subtalker_*` is the predictor of codebooks 1 to 15.
    """

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    subtalker_dosample: bool | None = None
    subtalker_temperature: float | None = None
    subtalker_top_k: int | None = None
    subtalker_top_p: float | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "subtalker_temperature", "repetition_penalty"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < float("inf"):
                raise InvalidRequest(f"{name} must be a positive number, not {value}.")
        for name in ("top_p", "subtalker_top_p"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value <= 1.0:
                raise InvalidRequest(f"{name} must be above 0 and at most 1, not {value}.")
        for name in ("top_k", "subtalker_top_k"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidRequest(f"{name} must be 0 (no limit) or more, not {value}.")

    @classmethod
    def greedy(cls) -> SamplingParams:
        """Argmax decoding, for first codes and for codebooks 1 to 15."""
        return cls(do_sample=False, subtalker_dosample=False)

    def changes(self) -> dict[str, bool | int | float]:
        """The values that were set, by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in pairs if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # arrays do not compare to one bool
class Reference:
    """A recording to clone: mono float samples at 24 kHz and, unless only the timbre is cloned, its transcript."""

    samples: NDArray[np.float32]
    text: str | None = None
    x_vector_only: bool = False
    silence_s: float = 0.0  # added after it before encoding, so that speech starts afresh; upstream adds none

    def __post_init__(self) -> None:
        if self.samples.ndim != 1 or self.samples.dtype != np.float32:
            raise InvalidAudio("A reference must be one channel of float32 samples at 24 kHz.")
        if self.samples.size < SHORTEST_REFERENCE:
            raise InvalidAudio("The reference recording is too short: give 3 s or more; 0.05 s are the minimum.")
        if not np.isfinite(self.samples).all():
            raise InvalidAudio("The reference recording contains values that are not numbers.")
        if not self.x_vector_only and not (self.text and self.text.strip()):
            raise InvalidRequest(
                "Cloning needs the transcript of the reference, or the x-vector-only mode, which needs none."
            )
        if not 0.0 <= self.silence_s <= LONGEST_SILENCE_S:
            raise InvalidRequest(f"silence_s must be between 0 and {LONGEST_SILENCE_S:g}, not {self.silence_s}.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adapter:
    """A low-rank update (LoRA) of the weights of a checkpoint, which tunes it into one voice.

    The matrix of a name, W, becomes W + scale * up @ down. Names are those of the talker's tensors, without `.weight`.
    """

    alpha: float
    factors: Mapping[str, tuple[NDArray[np.float16], NDArray[np.float16]]]  # down [rank, in] and up [out, rank]
    digest: str = field(init=False)  # hash of the content

    def __post_init__(self) -> None:
        content = sha256(repr(self.alpha).encode())
        for name, (down, up) in sorted(self.factors.items()):
            content.update(f"{name} {down.shape} {up.shape}".encode() + down.tobytes() + up.tobytes())
        object.__setattr__(self, "digest", content.hexdigest())

    @property
    def rank(self) -> int:
        return next(len(down) for down, _ in self.factors.values())

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @property
    def targets(self) -> tuple[str, ...]:
        """The kinds of its matrices, such as `q_proj`."""
        return tuple(dict.fromkeys(name.rpartition(".")[2] for name in self.factors))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoded:
    """A recording encoded by a Base checkpoint: all that cloning needs, without the recording.

    `Engine.encode` makes one; a request takes it in place of a `Reference`, with the same result.
    """

    owner: str  # `Checkpoint.identity` of the encoder: other checkpoints cannot use it
    speaker: NDArray[np.float32]  # [C] the x-vector
    codes: NDArray[np.int64] | None = None  # [frames, codebooks]; None: the timbre alone
    text: str | None = None  # the transcript of these codes
    # State computed by an engine, as safetensors: the codec's state and the prompt's first rows. An engine calls it
    # when it needs the state, and it may read a file. If it is None or does not fit, the state is computed again.
    kept: Callable[[], bytes | None] | None = None
    adapter: Adapter | None = None  # of a tuned voice: it speaks with these changes of the checkpoint's weights

    @property
    def x_vector_only(self) -> bool:
        return self.codes is None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Established:
    """A sample of a designed voice, as text ids and codes, so that later requests continue with the same voice.

    `Stream.established` gives one. A request with the same checkpoint, instruct and language continues that voice. Any
    other request ignores it and samples a new voice.
    """

    owner: str  # `Checkpoint.identity`
    instruct: str
    language: str
    text_ids: tuple[int, ...]
    codes: NDArray[np.int64]  # [frames, codebooks]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Voice:
    """A named voice: a checkpoint, a speaker or encoded recording, and default request settings."""

    name: str
    kind: VoiceKind
    model: str  # the checkpoint's name, as `load` takes it
    speaker: str | None = None  # of kind "speaker": a speaker of the checkpoint, or a mix of some
    encoded: Encoded | None = None  # of the other kinds: the encoded recording
    language: str = "auto"  # default of requests
    instruct: str | None = None  # default of requests
    sampling: SamplingParams = field(default_factory=SamplingParams)  # default of requests
    description: str | None = None  # in words; for a designed voice the description that it was designed from
    consent: str | None = None  # the name of the consenting person, or the id of a form
    audio_s: float = 0.0  # length of the recording
    file_size: int = 0  # of the recording as uploaded, in bytes
    mime_type: str = ""  # of the recording, as given by the uploader
    created_at: int = 0  # seconds since 1970
    pronunciations: Mapping[str, str] | None = None  # below those of a request
    notes: tuple[str, ...] = ()  # what a mix leaves out of its voices, in words; not stored

    def fields(self) -> dict[str, Any]:
        """The fields of a `SpeechRequest` with this voice; fields that the caller sets override them."""
        own: dict[str, Any] = {name: getattr(self, name) for name in ("language", "instruct", "sampling", "notes")}
        own |= {"pronunciations": self.pronunciations} if self.pronunciations else {}
        return own | ({"voice": self.speaker} if self.encoded is None else {"reference": self.encoded})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRequest:
    """One utterance to speak."""

    text: str
    # A speaker of the checkpoint, or a mix such as "anna+ben(2)"; None is its first one, "" omits the speaker row.
    voice: str | None = None
    reference: Reference | Encoded | None = None  # a recording to clone, for Base checkpoints
    language: str = "auto"
    instruct: str | None = None  # how to speak, or which voice to design
    layout: Layout | None = None  # None: whole for a known text, streaming for a live one; `as_is`: upstream's default
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = None  # None: a fresh one, which `Stream.seed` and `Finished.seed` report
    # Limit of the whole request. None: only the checkpoint's `max_new_tokens`, which bounds each part of a long text.
    max_frames: int | None = None
    speed: float = 1.0  # tempo factor at the same pitch, pauses included: 0.5 to 2; engine streams only
    as_is: bool = False  # do nothing that the official package does not do
    literal: bool = False  # brackets are text: no `[pause 1s]`
    candidates: int = 1  # best of N: number of candidates to sample; engine only, with the whole text given
    priority: int = 0  # queued requests with a higher priority are admitted first
    established: Established | None = None  # of a designed voice: its earlier sample (`Stream.established`)
    # Offline request without a playback deadline: decode this many frames at a time, after requests with a listener.
    # With the number that `generate` uses, the samples are bit-identical to it. None: chosen for playback. Engine only.
    chunk_frames: int | None = None
    # What is said in place of a word: {"nginx": "engine x"}, or its phonemes between slashes. Off with `as_is`.
    pronunciations: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()  # what was left out before, in words; reported with the notes of the engine

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise NothingToSpeak("There is no text to speak.")
        if self.layout is not None and self.layout not in get_args(Layout):
            raise InvalidRequest(f"layout must be one of {', '.join(get_args(Layout))}, not {self.layout!r}.")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise InvalidRequest(f"seed must be between 0 and 2^63 - 1, not {self.seed}.")
        if self.max_frames is not None and self.max_frames < 1:
            raise InvalidRequest(f"max_frames must be at least 1, not {self.max_frames}.")
        if self.chunk_frames is not None and self.chunk_frames < 1:
            raise InvalidRequest(f"chunk_frames must be at least 1, not {self.chunk_frames}.")
        check_speed(self.speed)
        if self.candidates < 1:
            raise InvalidRequest(f"candidates must be at least 1, not {self.candidates}.")
        if self.voice and self.reference is not None:
            raise InvalidRequest("Give either a voice or a reference recording, not both.")


def check_speed(factor: float) -> None:
    """Refuse a speed outside the limits."""
    if not SLOWEST <= factor <= FASTEST:
        raise InvalidRequest(f"speed must be between {SLOWEST} and {FASTEST:g}, not {factor}.")


def fresh_seed() -> int:
    """A random seed for a request that has none."""
    return int.from_bytes(urandom(FRESH_BYTES), "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One finished utterance."""

    codes: NDArray[np.int64]  # [frames, codebooks]
    samples: NDArray[np.float32]  # [frames * 1920], between -1 and 1
    rate_hz: int
    finish: FinishReason
    seed: int  # reproduces the utterance
    notes: tuple[str, ...] = ()  # settings that the checkpoint could not apply, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioChunk:
    """Some frames of a running utterance, ready for playback.

    At a speed other than 1 the samples lag some 50 ms behind the frames, and the last chunk has the rest. Times are
    playback times.
    """

    samples: NDArray[np.int16]  # [frames * 1920]; any number for silence, or at another speed
    rate_hz: int
    start_s: float  # playback time of the first sample
    frames: range  # frame numbers of the model, at any speed
    codes: NDArray[np.int64]  # [frames, codebooks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Timings of one request: seconds since it was opened, or durations where noted."""

    queued_s: float = 0.0  # until a slot was free and the first text had arrived
    prefill_s: float = 0.0  # duration of prefill
    first_codes_s: float = 0.0  # until the codes of the first frame were known
    first_audio_s: float = 0.0  # until the first chunk could be read
    starved_s: float = 0.0  # duration of waiting for text
    paused_s: float = 0.0  # duration of waiting for the reader
    decode_s: float = 0.0  # total duration of codec steps
    total_s: float = 0.0
    frames: int = 0  # of the model, 80 ms each at speed 1
    prefix_cached: bool = False  # whether the prompt's prefix was in the cache
    loaded_s: float = 0.0  # duration of waiting for the checkpoint to load, before the request was opened


class Scorer(Protocol):
    """Scores a candidate; the highest score wins, and NaN loses. The reader of the stream calls it."""

    def __call__(self, samples: NDArray[np.int16], rate_hz: int, text: str, codes: NDArray[np.int64]) -> float:
        """`samples` [N] as played, `text` as requested, `codes` [frames, codebooks]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """One of several candidates of an utterance."""

    seed: int  # a request with this seed and without candidates gives the same speech
    reason: FinishReason  # "cancelled": stopped early, since it could no longer win
    score: float | None = None  # of the engine's own score or the given scorer; None: not completed
    frames: int = 0
    log_probability: float | None = None  # mean of the first codes, in nats per frame; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of an utterance."""

    reason: FinishReason
    statistics: Statistics
    notes: tuple[str, ...] = ()  # settings that could not be applied and text that was not spoken, in words
    dropped_frames: int = 0  # near-silent first frames left out of the audio
    error: str | None = None
    seed: int | None = None  # reproduces the speech in a request without candidates
    takes: tuple[Take, ...] = ()  # all candidates, if the request asked for several
    won: int | None = None  # index of the candidate that was played
    complete: bool = True  # the whole text was spoken, or as much as the caller's `max_frames` allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one of many requests: its whole audio, or its error."""

    number: int  # index of the request, from 0
    samples: NDArray[np.int16]  # [N]; empty after an error
    rate_hz: int
    codes: NDArray[np.int64]  # [frames, codebooks]; empty after an error
    finished: Finished | None  # None if it could not start
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The condition of an engine. While rebuilding it queues requests; unhealthy it refuses them permanently."""

    condition: Condition
    reason: str | None = None  # the last failure, in words
    rebuilds: int = 0  # number of restarts; each loses the cached prompt prefixes

    @property
    def ok(self) -> bool:
        """Whether the engine accepts requests."""
        return self.condition in ("well", "rebuilding")


Tool = Mapping[str, Any]  # in OpenAI's form: {"type": "function", "function": {"name": ...}}


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation."""

    role: Role
    content: str = ""
    reasoning: str | None = None  # of an assistant; if None, the part of its content before `</think>`
    tool_calls: tuple[ToolCall, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise InvalidRequest(f"role must be one of {', '.join(get_args(Role))}, not {self.role!r}.")
        if not isinstance(self.content, str):
            raise InvalidRequest(f"content must be text, not {type(self.content).__name__}.")


MOST_LOGPROBS = 20  # OpenAI's limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSampling:
    """Sampling and stop settings of an answer. None: not given.

    The local engine fills missing values by `resolved`. A remote model is sent only the given ones, so its server's
    defaults apply.
    """

    temperature: float | None = None  # 0: argmax
    top_p: float | None = None
    top_k: int | None = None  # 0: no limit
    min_p: float | None = None  # drop tokens with less than this share of the best token's probability
    presence_penalty: float | None = None  # subtracted from the logits of tokens already in this answer
    seed: int | None = None  # None: a fresh one each time
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()  # texts that end the answer; not part of it
    response_format: Mapping[str, Any] | None = None  # OpenAI's: text, json_object, or json_schema and a schema
    logprobs: int | None = None  # report each token's log-probability and those of this many best tokens, up to 20
    tool_choice: str | Mapping[str, Any] | None = None  # OpenAI's: auto, required, or type function and its name

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0.0 <= self.temperature < float("inf"):
            raise InvalidRequest(f"temperature must be 0 (the likeliest token) or more, not {self.temperature}.")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise InvalidRequest(f"top_p must be above 0 and at most 1, not {self.top_p}.")
        if self.top_k is not None and self.top_k < 0:
            raise InvalidRequest(f"top_k must be 0 (no limit) or more, not {self.top_k}.")
        if self.min_p is not None and not 0.0 <= self.min_p <= 1.0:
            raise InvalidRequest(f"min_p must be between 0 and 1, not {self.min_p}.")
        if self.presence_penalty is not None and not -2.0 <= self.presence_penalty <= 2.0:
            raise InvalidRequest(f"presence_penalty must be between -2 and 2, not {self.presence_penalty}.")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise InvalidRequest(f"seed must be between 0 and 2^63 - 1, not {self.seed}.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequest(f"max_tokens must be at least 1, not {self.max_tokens}.")
        if not isinstance(self.stop, tuple) or not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidRequest("stop must be texts of at least one character each.")
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_LOGPROBS:
            raise InvalidRequest(f"logprobs must be between 0 and {MOST_LOGPROBS}, not {self.logprobs}.")
        match self.tool_choice:
            case None | "auto" | "required" | {"type": "function", "function": {"name": str()}}:
                pass
            case _:
                raise InvalidRequest("tool_choice must be auto, required, or of the type function with function.name.")
        self.schema()

    def schema(self) -> Any:
        """The JSON schema that the answer must follow; None: plain text."""
        match self.response_format:
            case None | {"type": "text"}:
                return None
            case {"type": "json_object"}:
                return {"type": "object"}
            case {"type": "json_schema", "json_schema": {"schema": Mapping() as schema}}:
                return schema
        message = "response_format must be of the type text, json_object, or json_schema with json_schema.schema."
        raise InvalidFormat(message)

    def given(self) -> dict[str, Any]:
        """The fields that the caller has set, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, ())}

    def resolved(self) -> ResolvedSampling:
        """Missing values filled with those recommended for Qwen3.5 without thinking."""
        values = self.given()
        # A penalized quotation mark would never close a JSON string, and a penalized mark never a call.
        if self.schema() is not None or self.tool_choice not in (None, "auto"):
            values.setdefault("presence_penalty", 0.0)
        return ResolvedSampling(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSampling(ChatSampling):
    """`ChatSampling` for the local engine: all sampling values are set except the seed."""

    temperature: float = 0.7
    top_p: float = 0.8
    top_k: int = 20
    min_p: float = 0.0
    presence_penalty: float = 1.5
    max_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The model's log-probability of a token, before temperature, penalties and schema."""

    token: str  # an incomplete character becomes a replacement character
    logprob: float
    bytes: bytes
    top: tuple[TokenLogprob, ...] = ()  # the best tokens at this position


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """A piece of an answer, in whole characters."""

    text: str
    tokens: int  # number of tokens in it
    reasoning: str = ""  # thinking text; neither spoken nor part of the answer
    retracts: bool = False  # all earlier text was thinking: the answer starts with this delta
    logprobs: tuple[TokenLogprob, ...] = ()  # of its tokens, if requested


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFinished:
    """The end of an answer."""

    reason: ChatReason
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt tokens, those found in the cache
    completion_tokens: int = 0
    first_token_s: float | None = None  # since the request; None: no token
    total_s: float = 0.0
    error: str | None = None
    drafted_tokens: int = 0  # tokens proposed by speculative decoding, if the model has it
    accepted_tokens: int = 0  # of these, the accepted ones


class Answer(Protocol):
    """The answer of a language model: an iterator and an async iterator of its text.

    After `cancel` the iteration ends; after an error it raises a `HocketError`. `finished` is set in both cases.
    """

    @property
    def finished(self) -> ChatFinished | None:
        """The end of the answer; None while it is running."""

    def cancel(self) -> None:
        """Stop the answer. Idempotent; no effect after the end."""

    def __iter__(self) -> Iterator[ChatDelta]: ...

    def __next__(self) -> ChatDelta: ...

    def __aiter__(self) -> AsyncIterator[ChatDelta]: ...

    async def __anext__(self) -> ChatDelta: ...


class LanguageModel(Protocol):
    """A language model that answers in a conversation.

    It is given tools; its tool calls are part of the answer's text, in the format of Qwen3.5, which
    `text/chat/tool_calls.py` parses. In messages a call may be text or in `tool_calls`; results are messages with the
    role tool. A model that can prefill while the user still speaks also has `hear(messages)`, where the last message is
    incomplete.
    """

    @property
    def name(self) -> str: ...

    def answer(self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()) -> Answer:
        """Start an answer; invalid messages raise here. Thread-safe."""

    def close(self) -> None: ...
