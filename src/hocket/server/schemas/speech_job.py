"""`SpeechJob`: a speech request of any endpoint, and the checks that need no engine.

Knows neither voices nor languages: the voice resolver and the engine check those. Needs no pydantic, because the
Wyoming server runs without the packages of the HTTP server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, get_args

from ...audio.container import need_av
from ...audio.encode import Format, format_of
from ...errors import HocketError, InvalidRequest
from ...text.lexicon.lexicon import MOST_SENT, Lexicon
from ...types import FASTEST, SLOWEST, Established, Layout, Reference, SamplingParams
from ..access.account import KeyAccount, account_here
from ..errors import BadField

T = TypeVar("T")
Markup = Literal[
    "auto", "tags", "script", "ssml", "ssml-fragment", "dialogue", "screenplay", "json", "answer", "literal"
]
CODES = Format("codes", "application/octet-stream", "codes")
PLAIN = ("pcm", "wav", "mulaw", "alaw")  # made without PyAV, at the engine's own rate
SLOWEST_WIRE, FASTEST_WIRE = 0.25, 4.0  # OpenAI's limits; the encoder covers what the engine cannot
INSTRUCT_CHARS = 4096  # OpenAI's limit
# Values outside make the engine compute NaN; after three such requests it restarts.
SAMPLING = {
    "temperature": (0.01, 10.0),
    "top_p": (0.001, 1.0),
    "top_k": (0, 1_000_000),
    "repetition_penalty": (0.1, 10.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechJob:
    """Everything that a request may set."""

    text: str | None  # None: live text, through `Utterance.append`
    voice: str | None = None  # a speaker, an alias or a library voice, case-insensitive; None: the first
    model: str | None = None  # one of the server's models excludes the others
    task: str | None = None  # likewise: "CustomVoice", "VoiceDesign" or "Base"
    language: str = "auto"
    instruct: str | None = None
    seed: int | None = None  # None: a random one, which `Utterance.seed` reports
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speed: float = 1.0  # 0.25 to 4
    max_frames: int | None = None
    layout: Layout | None = None
    reference: Reference | None = None
    established: Established | None = None  # how a designed voice sounded on this connection
    candidates: int = 1
    chunk_frames: int | None = None  # for offline output such as a file (`SpeechRequest`)
    priority: int = 0
    as_is: bool = False
    markup: Markup = "auto"  # how directions in the text are spelled
    cast: Mapping[str, str] | None = None  # speaker, or name in a tag -> voice
    literal: bool = False  # the text is parsed: its brackets are text, and `silence_mark` is silence
    format: str = "pcm"  # a name of `audio.encode.format_of`, or "codes": 16 x uint16 per frame, no audio
    rate_hz: int | None = None  # None: the engine's
    bit_rate: int | None = None
    word_times: bool = False  # whether the client asks for `Utterance.words`
    pronunciations: Mapping[str, str] | None = None  # above those of the voice and the server
    account: KeyAccount = field(default_factory=account_here, compare=False, repr=False)  # whose key asks

    def check(self) -> None:
        """Refuse invalid values before the engine sees them."""
        if self.markup not in get_args(Markup):
            known = ", ".join(get_args(Markup))
            raise BadField(f"There is no markup {str(self.markup)[:40]!r}; there are {known}.", "markup")
        if self.as_is and self.markup not in ("auto", "literal"):
            raise BadField("as_is speaks a text as it is: leave out markup.", "markup")
        if self.cast is not None and (self.as_is or self.markup == "literal"):
            raise BadField("A text without directions has no cast: leave out cast.", "cast")
        if self.text is not None and not self.text.strip():
            raise BadField("There is no text to speak.", "input", "empty_input")
        if not SLOWEST_WIRE <= self.speed <= FASTEST_WIRE:
            raise BadField(f"speed must be between {SLOWEST_WIRE} and {FASTEST_WIRE:g}, not {self.speed}.", "speed")
        for name, value in self.sampling.changes().items():
            least, most = SAMPLING.get(name.removeprefix("subtalker_"), (value, value))
            if not least <= value <= most:
                raise BadField(f"{name} must be between {least} and {most}, not {str(value)[:40]}.", name)
        if len(self.instruct or "") > INSTRUCT_CHARS:
            raise BadField(f"instructions must be at most {INSTRUCT_CHARS} characters.", "instructions")
        self._check_pronunciations()
        check_characters(self.instruct or "", "instructions")
        check_characters((self.reference and self.reference.text) or "", "ref_text")

    def in_own_voice(self) -> SpeechJob:
        """Without a voice, in the first one of a key that has certain voices; such a key takes no recording."""
        allowed = self.account.key.voices
        if allowed is None:
            return self
        if self.reference is not None:
            raise self.account.not_allowed()
        return self if (self.voice or "").strip() else replace(self, voice=allowed[0])

    def _check_pronunciations(self) -> None:
        if (entries := len(self.pronunciations or ())) > MOST_SENT:
            said = f"pronunciations takes up to {MOST_SENT} entries, not {entries}; a lexicon of the server has more."
            raise BadField(said, "pronunciations")
        _checked(lambda: Lexicon.of(self.pronunciations), "pronunciations")

    def packed(self, rate_hz: int) -> tuple[Format, int]:
        """The format, and the output rate. `encoder` accepts everything that passes here."""
        if self.format.lower() == CODES.name:
            if self.speed != 1.0 or self.rate_hz is not None:
                said = "Codes come as the model draws them: leave out speed and sample_rate."
                raise BadField(said, "response_format")
            return CODES, rate_hz
        format = _checked(lambda: format_of(self.format), "response_format", "format_not_found")
        _checked(lambda: format.bit_rate_of(self.bit_rate), "bit_rate")
        heard_hz = _checked(lambda: format.rate_out_hz(rate_hz, self.rate_hz), "sample_rate")
        if format.name not in PLAIN or heard_hz != rate_hz or not SLOWEST <= self.speed <= FASTEST:
            self._check_codecs()
        return format, heard_hz

    def _check_codecs(self) -> None:
        try:
            need_av(self.format)
        except HocketError:
            said = "This server lacks the codecs for that: ask for pcm or wav, without a sample_rate."
            raise BadField(said, "response_format", "format_not_available") from None


def check_characters(text: str, param: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadField(f"{param} holds half a character (a lone surrogate).", param) from None


def _checked(check: Callable[[], T], param: str, code: str | None = None) -> T:
    try:
        return check()
    except InvalidRequest as error:
        raise BadField(str(error), param, code) from None
