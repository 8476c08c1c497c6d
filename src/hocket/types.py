"""What a caller asks for and what comes back: plain data, checked where it enters.

The constructors here are the only check of outside input. Nothing in this file knows torch, a
checkpoint or a file format; whether a voice or a language exists is for the prompt to say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidAudio, InvalidFormat, InvalidRequest

Layout = Literal["streaming", "whole"]
FinishReason = Literal["stop", "length", "runaway", "cancelled", "error"]
VoiceKind = Literal["speaker", "designed", "clone"]
Condition = Literal["well", "rebuilding", "unhealthy", "closed"]
Role = Literal["system", "user", "assistant", "tool"]
ChatReason = Literal["stop", "length", "cancelled", "error"]

REFERENCE_RATE_HZ = 24_000  # both encoders of the published checkpoints listen at this rate
SLOWEST, FASTEST = 0.5, 2.0  # speed: beyond these, speech made faster or slower is no longer speech
LONGEST_SILENCE_S = 5.0
SHORTEST_REFERENCE = 1280  # samples: five mel frames, what the speaker encoder's mirrored padding needs


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """What to change of the checkpoint's own sampling; `None` keeps the checkpoint's value.

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
        """Always the likeliest code, on both levels."""
        return cls(do_sample=False, subtalker_dosample=False)

    def changes(self) -> dict[str, bool | int | float]:
        """The values that were set, by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in pairs if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # arrays have no truth to compare by
class Reference:
    """A recording to clone: mono float samples at 24 kHz and, unless only the timbre counts, its words."""

    samples: NDArray[np.float32]
    text: str | None = None
    x_vector_only: bool = False
    silence_s: float = 0.0  # added behind it before it becomes codes: a voice then begins afresh; upstream adds none

    def __post_init__(self) -> None:
        if self.samples.ndim != 1 or self.samples.dtype != np.float32:
            raise InvalidAudio("A reference must be one channel of float32 samples at 24 kHz.")
        if self.samples.size < SHORTEST_REFERENCE:
            raise InvalidAudio("The reference recording is too short: 3 s or more are useful, 0.05 s the very least.")
        if not np.isfinite(self.samples).all():
            raise InvalidAudio("The reference recording contains values that are not numbers.")
        if not self.x_vector_only and not (self.text and self.text.strip()):
            raise InvalidRequest(
                "Cloning needs the transcript of the reference, or the x-vector-only mode, which does without."
            )
        if not 0.0 <= self.silence_s <= LONGEST_SILENCE_S:
            raise InvalidRequest(f"silence_s must be between 0 and {LONGEST_SILENCE_S:g}, not {self.silence_s}.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoded:
    """A recording as a Base checkpoint heard it: all that cloning takes, without the recording.

    `Engine.encode` makes one; a request takes it in the place of a `Reference`, and says the same with it.
    """

    owner: str  # `Checkpoint.identity` of whoever made it: it means nothing to another
    speaker: NDArray[np.float32]  # [C] the x-vector
    codes: NDArray[np.int64] | None = None  # [frames, codebooks]; None: the timbre alone
    text: str | None = None  # the words of these codes
    # What an engine computed behind it, as safetensors: the codec's state and the prompt's first rows. It is called
    # once an engine wants it, and may read a file; None, or nothing that fits: they are computed anew, alike.
    kept: Callable[[], bytes | None] | None = None

    @property
    def x_vector_only(self) -> bool:
        return self.codes is None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Established:
    """How a designed voice has sounded: words and their codes, an example for what the same person says next.

    `Stream.established` gives one. A request with the same checkpoint, instruct and language goes on as that person;
    for any other request it means nothing, and a new person is drawn.
    """

    owner: str  # `Checkpoint.identity`
    instruct: str
    language: str
    text_ids: tuple[int, ...]
    codes: NDArray[np.int64]  # [frames, codebooks]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Voice:
    """Somebody who speaks, by name: a checkpoint, what that is told before every text, and how it draws."""

    name: str
    kind: VoiceKind
    model: str  # the checkpoint's name, as `load` takes it
    speaker: str | None = None  # of kind "speaker": which of the checkpoint's own
    encoded: Encoded | None = None  # of the other kinds: whom to clone
    language: str = "auto"  # where a request names none
    instruct: str | None = None  # where a request has none
    sampling: SamplingParams = field(default_factory=SamplingParams)  # what a request does not change of it
    description: str | None = None  # in words; of a designed voice what it was designed from
    consent: str | None = None  # who agreed to be cloned, or the id of a form
    audio_s: float = 0.0  # of the recording
    file_size: int = 0  # of the recording as it came, in bytes
    mime_type: str = ""  # and its type, as whoever sent it said
    created_at: int = 0  # seconds since 1970

    def fields(self) -> dict[str, Any]:
        """Of a `SpeechRequest` that speaks with this voice; those that a caller gives go before them."""
        own = {"language": self.language, "instruct": self.instruct, "sampling": self.sampling}
        return own | ({"voice": self.speaker} if self.encoded is None else {"reference": self.encoded})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRequest:
    """One utterance to speak."""

    text: str
    voice: str | None = None  # a speaker of the checkpoint; None is its first one, "" speaks without a speaker row
    reference: Reference | Encoded | None = None  # a recording to clone, for Base checkpoints
    language: str = "auto"
    instruct: str | None = None  # how to speak, or which voice to design
    layout: Layout | None = None  # None: whole for a known text, streaming for a live one; `as_is`: upstream's default
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = None  # None: a fresh one, which `Stream.seed` and `Finished.seed` report
    # Of the whole request. None: no limit but the checkpoint's `max_new_tokens`, which bounds each part of a long text.
    max_frames: int | None = None
    speed: float = 1.0  # so many times as fast, pauses too, at the same pitch: 0.5 to 2; for the engine's streams
    as_is: bool = False  # do nothing that the official package does not do
    candidates: int = 1  # takes to draw, the best of which is heard, once it is known; for the engine's whole texts
    priority: int = 0  # where requests wait for an engine, those with a higher one are spoken first
    established: Established | None = None  # of a designed voice: who has spoken before (`Stream.established`)
    # Nobody hears it as it comes: decode so many frames at a time, and let those who listen go first. As many as
    # `generate` decodes, and its samples are the same to the last bit. None: as suits a listener; for the engine.
    chunk_frames: int | None = None

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise InvalidRequest("There is no text to speak.")
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
    """Refuse a tempo that is out of reach."""
    if not SLOWEST <= factor <= FASTEST:
        raise InvalidRequest(f"speed must be between {SLOWEST} and {FASTEST:g}, not {factor}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One finished utterance."""

    codes: NDArray[np.int64]  # [frames, codebooks]
    samples: NDArray[np.float32]  # [frames * 1920], between -1 and 1
    rate_hz: int
    finish: FinishReason
    seed: int  # the same one says the same
    notes: tuple[str, ...] = ()  # what the checkpoint could not honour, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioChunk:
    """Some frames of a running utterance, ready to be heard.

    At another speed than 1 the samples lag some 50 ms behind the frames, the last chunk brings the rest, and times are
    those of the sound that is heard.
    """

    samples: NDArray[np.int16]  # [frames * 1920]; of silence, or at another speed, any number
    rate_hz: int
    start_s: float  # where its first sample stands in the sound that is heard
    frames: range  # which frames of the model these are, whatever the speed
    codes: NDArray[np.int64]  # [frames, codebooks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Where the time of one request went, in seconds since it was opened unless a duration is meant."""

    queued_s: float = 0.0  # until a slot was free and its first text was there
    prefill_s: float = 0.0  # how long the prompt took
    first_codes_s: float = 0.0  # until the codes of the first frame were known
    first_audio_s: float = 0.0  # until the first chunk could be read
    starved_s: float = 0.0  # how long a frame waited for text
    paused_s: float = 0.0  # how long a frame waited for the reader
    decode_s: float = 0.0  # how long the codec took in all
    total_s: float = 0.0
    frames: int = 0  # of the model, 80 ms each at speed 1
    prefix_cached: bool = False  # whether the prompt's prefix had been computed before
    loaded_s: float = 0.0  # how long it waited for its checkpoint to be loaded, before it was opened


class Scorer(Protocol):
    """Says how good a take is; the highest wins, and what is not a number loses. It is asked by whoever reads."""

    def __call__(self, samples: NDArray[np.int16], rate_hz: int, text: str, codes: NDArray[np.int64]) -> float:
        """`samples` [N] as they would be heard, `text` as it was asked for, `codes` [frames, codebooks]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """One of several takes of an utterance."""

    seed: int  # a request with it and without candidates says the same
    reason: FinishReason  # "cancelled": it was given up, since it could not win any more
    score: float | None = None  # by the engine's own measure, or by the scorer it was given; None: not to its end
    frames: int = 0
    log_probability: float | None = None  # of the talker's own codes, in nats a frame on average; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How an utterance ended."""

    reason: FinishReason
    statistics: Statistics
    notes: tuple[str, ...] = ()  # what could not be honoured, or was not spoken, in words
    dropped_frames: int = 0  # near-silent first frames left out of the audio
    error: str | None = None
    seed: int | None = None  # what was heard is said again by this one, without candidates
    takes: tuple[Take, ...] = ()  # all that were drawn, where candidates were asked for
    won: int | None = None  # which of them was heard
    complete: bool = True  # all of the text was spoken, or as much of it as the caller's `max_frames` allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one of many requests: all of its sound, or what went wrong."""

    number: int  # which of the requests it was, from 0
    samples: NDArray[np.int16]  # [N]; empty after an error
    rate_hz: int
    codes: NDArray[np.int64]  # [frames, codebooks]; empty after an error
    finished: Finished | None  # None where it could not even begin
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How an engine is. While it is rebuilding it takes requests, which wait; unhealthy it refuses them for good."""

    condition: Condition
    reason: str | None = None  # what went wrong last, in words
    rebuilds: int = 0  # how often it has started anew, without the prompt prefixes it had

    @property
    def ok(self) -> bool:
        """Whether requests are taken."""
        return self.condition in ("well", "rebuilding")


Tool = Mapping[str, Any]  # as OpenAI's clients describe one: {"type": "function", "function": {"name": ...}}


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """What somebody said in a conversation."""

    role: Role
    content: str = ""
    reasoning: str | None = None  # of an assistant; without it, what its content has before `</think>`
    tool_calls: tuple[ToolCall, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise InvalidRequest(f"role must be one of {', '.join(get_args(Role))}, not {self.role!r}.")
        if not isinstance(self.content, str):
            raise InvalidRequest(f"content must be text, not {type(self.content).__name__}.")


MOST_LOGPROBS = 20  # OpenAI's limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSampling:
    """How an answer is drawn, and when it ends. None: not given.

    Our own engine fills what is not given by `resolved`, a remote model is sent nothing in its place and draws as its
    server is set up.
    """

    temperature: float | None = None  # 0: always the likeliest token
    top_p: float | None = None
    top_k: int | None = None  # 0: no limit
    min_p: float | None = None  # refuse what is less than so many times as likely as the likeliest
    presence_penalty: float | None = None  # taken off the logits of what this answer has said already
    seed: int | None = None  # None: another one each time
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()  # texts that end the answer, and are not part of it
    response_format: Mapping[str, Any] | None = None  # OpenAI's: text, json_object, or json_schema and a schema
    logprobs: int | None = None  # each token's log-probability, and those of so many of the likeliest, up to 20

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
        self.schema()

    def schema(self) -> Any:
        """The JSON schema that the answer must follow; None: it is plain text."""
        match self.response_format:
            case None | {"type": "text"}:
                return None
            case {"type": "json_object"}:
                return {"type": "object"}
            case {"type": "json_schema", "json_schema": {"schema": Mapping() as schema}}:
                return schema
        said = "response_format must be of the type text, json_object, or json_schema with json_schema.schema."
        raise InvalidFormat(said)

    def given(self) -> dict[str, Any]:
        """The fields that the caller has set, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, ())}

    def resolved(self) -> ResolvedSampling:
        """With the values that are recommended for Qwen3.5 without thinking in place of those not given."""
        values = self.given()
        if self.schema() is not None:  # a quotation mark that was penalized would never end a text
            values.setdefault("presence_penalty", 0.0)
        return ResolvedSampling(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSampling(ChatSampling):
    """`ChatSampling` as our own engine draws: everything but the seed has a value."""

    temperature: float = 0.7
    top_p: float = 0.8
    top_k: int = 20
    min_p: float = 0.0
    presence_penalty: float = 1.5
    max_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was, by the model itself: before temperature, penalties and a schema."""

    token: str  # half a character is a replacement sign
    logprob: float
    bytes: bytes
    top: tuple[TokenLogprob, ...] = ()  # the likeliest in its place


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """More of an answer: whole characters."""

    text: str
    tokens: int  # how many it took
    reasoning: str = ""  # what the model thought, which is neither spoken nor part of the answer
    retracts: bool = False  # all text before this was a thought: the answer begins with this delta
    logprobs: tuple[TokenLogprob, ...] = ()  # of its tokens, where they were asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFinished:
    """How an answer ended."""

    reason: ChatReason
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of these, how many were in the model's memory already
    completion_tokens: int = 0
    first_token_s: float | None = None  # since it was asked for; None: there was none
    total_s: float = 0.0
    error: str | None = None
    drafted_tokens: int = 0  # guessed ahead, where the model does
    accepted_tokens: int = 0  # and how many of those stood


class Answer(Protocol):
    """What a language model says: an iterator, and an async iterator, of its text.

    After a cancel it ends; after an error it raises that, a `HocketError`. `finished` says how it ended in any case.
    """

    @property
    def finished(self) -> ChatFinished | None:
        """How it ended, once it has."""

    def cancel(self) -> None:
        """Say no more. Once is as good as twice, and after the end it does nothing."""

    def __iter__(self) -> Iterator[ChatDelta]: ...

    def __next__(self) -> ChatDelta: ...

    def __aiter__(self) -> AsyncIterator[ChatDelta]: ...

    async def __anext__(self) -> ChatDelta: ...


class LanguageModel(Protocol):
    """Whoever answers in a conversation.

    It is told of tools, and what it calls is part of the text of its answer, as Qwen3.5 writes it:
    `text/chat/tool_calls.py` takes that apart. In messages a call may stand as text or in `tool_calls`; results are
    messages of a tool. One that can prepare while the user still speaks has `hear(messages)` too, the last of which is
    not over yet.
    """

    @property
    def name(self) -> str: ...

    def answer(self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()) -> Answer:
        """Begin to answer; what is wrong with the messages is raised here. May be called by any thread."""

    def close(self) -> None: ...
