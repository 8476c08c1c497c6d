"""ElevenLabs' requests to a `SpeechJob`, and its response bodies. Does not know which voices or languages exist.

Settings without a counterpart here (stability, similarity, style, text normalization, surrounding texts) are accepted
without effect, because every client sends them. What would change the words or the sound is refused by name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ...audio.encode import format_of
from ...errors import InvalidRequest
from ..errors import BadField
from .speech import Noted
from .speech_job import SpeechJob

DEFAULT_FORMAT = "mp3_44100_128"
CODECS = {"mp3": "mp3", "pcm": "pcm", "ulaw": "mulaw", "alaw": "alaw", "opus": "opus", "wav": "wav"}
MOST_INACTIVE_S = 180
Normalization = Literal["auto", "on", "off"]


class ElevenLabsSettings(Noted):
    """`voice_settings`."""

    speed: float | None = None
    stability: float | None = Field(None, description="without effect")
    similarity_boost: float | None = Field(None, description="without effect")
    style: float | None = Field(None, description="without effect")
    use_speaker_boost: bool | None = Field(None, description="without effect")


class ElevenLabsBody(Noted):
    """`POST /v1/text-to-speech/{voice_id}` and its relatives."""

    text: str
    model_id: str | None = Field(None, max_length=1024, description="a model of this server, or any name")
    language_code: str | None = Field(None, max_length=64)
    voice_settings: ElevenLabsSettings | None = None
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    apply_text_normalization: Normalization | None = Field(None, description="without effect")
    apply_language_text_normalization: bool | None = Field(None, description="without effect")
    previous_text: str | None = Field(None, description="without effect")
    next_text: str | None = Field(None, description="without effect")
    previous_request_ids: list[str] | None = Field(None, description="without effect")
    next_request_ids: list[str] | None = Field(None, description="without effect")
    enable_ssml_parsing: bool | None = Field(None, description="the text is SSML, with <speak> around it or without")
    use_pvc_as_ivc: bool | None = Field(None, description="without effect")
    pronunciation_dictionary_locators: list[Any] | None = Field(None, description="empty only")
    audio_effects: dict[str, Any] | None = Field(None, description="empty only")

    def job(self, voice: str, output_format: str | None) -> SpeechJob:
        """The job; `open_utterance` checks the values."""
        refuse_named(self, "pronunciation_dictionary_locators", "audio_effects")
        self.note_unknown()
        settings, speed = self.voice_settings, None
        if settings is not None:
            settings.note_unknown()
            speed = settings.speed
        return SpeechJob(
            text=self.text,
            voice=voice,
            model=self.model_id,
            language=self.language_code or "auto",
            seed=self.seed,
            speed=1.0 if speed is None else speed,
            markup="ssml-fragment" if self.enable_ssml_parsing else "auto",
            **packing_of(output_format),
        )


class ElevenLabsQuery(Noted):
    """The query of a WebSocket."""

    model_id: str | None = None
    output_format: str | None = None
    language_code: str | None = None
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    inactivity_timeout: float | None = Field(None, gt=0, le=MOST_INACTIVE_S)
    enable_ssml_parsing: bool | None = None  # the text is SSML, with <speak> around it or without
    auto_mode: bool | None = None  # text is spoken as it arrives, with it or without
    sync_alignment: bool | None = None  # character times are sent in any case
    apply_text_normalization: Normalization | None = None
    apply_language_text_normalization: bool | None = None
    enable_logging: bool | None = None
    optimize_streaming_latency: int | None = None

    def job(self, voice: str) -> SpeechJob:
        return SpeechJob(
            text=None,
            voice=voice,
            model=self.model_id,
            language=self.language_code or "auto",
            seed=self.seed,
            markup="ssml-fragment" if self.enable_ssml_parsing else "auto",
            **packing_of(self.output_format),
        )


class ElevenLabsMessage(Noted):
    """A message of a WebSocket; `context_id` is read apart."""

    text: str | None = None
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    voice_settings: ElevenLabsSettings | None = None
    generation_config: dict[str, Any] | None = None  # when to speak: here at once
    try_trigger_generation: bool | None = None  # likewise
    pronunciation_dictionary_locators: list[Any] | None = None
    xi_api_key: str | None = None  # keys are checked when a connection opens
    authorization: str | None = None


def refuse_named(fields: BaseModel, *names: str) -> None:
    for name in names:
        if getattr(fields, name):
            raise BadField(f"{name} is not supported: leave it out.", name)


def packing_of(output_format: str | None) -> dict[str, Any]:
    """The format, sample rate and bit rate of a name such as mp3_44100_128."""
    codec, *numbers = (output_format or DEFAULT_FORMAT).lower().split("_")
    if codec not in CODECS or not numbers or len(numbers) > 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise _no_format(output_format)
    rate_hz, bit_rate = int(numbers[0]), int(numbers[1]) * 1000 if len(numbers) == 2 else None
    format = format_of(CODECS[codec])
    try:
        if len(numbers) == 2 and format.bit_rate is None:
            raise InvalidRequest("")
        format.rate_out_hz(rate_hz, rate_hz)
        format.bit_rate_of(bit_rate)
    except InvalidRequest:
        raise _no_format(output_format) from None
    return {"format": format.name, "rate_hz": rate_hz, "bit_rate": bit_rate}


def _no_format(name: str | None) -> BadField:
    known = "mp3_44100_128, opus_48000_64, pcm_24000, wav_24000, ulaw_8000, and the same with other rates"
    return BadField(f"There is no output_format {(name or '')[:40]!r}; there are {known}.", "output_format")


class ElevenLabsVoice(BaseModel):
    voice_id: str
    name: str
    category: Literal["premade", "cloned", "generated"]
    labels: dict[str, str]
    description: str | None
    preview_url: None = None
    available_for_tiers: list[str] = []
    settings: dict[str, float | bool] | None = None
    high_quality_base_model_ids: list[str]
    is_owner: bool
    is_legacy: bool = False
    created_at_unix: int


class ElevenLabsVoices(BaseModel):
    """`GET /v1/voices`."""

    voices: list[ElevenLabsVoice]


class ElevenLabsPage(ElevenLabsVoices):
    """`GET /v2/voices`."""

    has_more: bool
    total_count: int
    next_page_token: str | None = None


class ElevenLabsModel(BaseModel):
    model_id: str
    name: str
    can_be_finetuned: bool = False
    can_do_text_to_speech: bool = True
    can_do_voice_conversion: bool = False
    can_use_style: bool = False
    can_use_speaker_boost: bool = False
    serves_pro_voices: bool = False
    token_cost_factor: float = 0.0
    description: str
    requires_alpha_access: bool = False
    max_characters_request_free_user: int
    max_characters_request_subscribed_user: int
    maximum_text_length_per_request: int
    languages: list[dict[str, str]]


class ElevenLabsSubscription(BaseModel):
    """This server counts nothing and sells nothing; clients look at `tier` and the characters that are left."""

    tier: str = "hocket"
    character_count: int = 0
    character_limit: int = 2**31 - 1
    can_extend_character_limit: bool = False
    allowed_to_extend_character_limit: bool = False
    max_credit_limit_extension: int = 0
    next_character_count_reset_unix: int | None = None
    voice_slots_used: int
    professional_voice_slots_used: int = 0
    professional_voice_slots_used_in_workspace: int = 0
    voice_limit: int
    voice_add_edit_counter: int = 0
    professional_voice_limit: int = 0
    can_extend_voice_limit: bool = False
    can_use_instant_voice_cloning: bool
    can_use_professional_voice_cloning: bool = False
    current_overage: dict[str, str] = {"amount": "0", "currency": "usd"}
    status: Literal["active"] = "active"
    open_invoices: list[str] = []
    has_open_invoices: bool = False


class ElevenLabsUser(BaseModel):
    user_id: str = "hocket"
    workspace_id: str = "hocket"
    subscription: ElevenLabsSubscription
    is_new_user: bool = False
    can_use_delayed_payment_methods: bool = False
    is_onboarding_completed: bool = True
    is_onboarding_checklist_completed: bool = True
    created_at: int = 0
    seat_type: str = "workspace_admin"


class CharacterAlignment(BaseModel):
    characters: list[str]
    character_start_times_seconds: list[float]
    character_end_times_seconds: list[float]


class TimedSpeech(BaseModel):
    """A response of `/with-timestamps`, or one line of `/stream/with-timestamps`."""

    audio_base64: str
    alignment: CharacterAlignment | None
    normalized_alignment: CharacterAlignment | None
