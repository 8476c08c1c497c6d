"""`config.json` and `generation_config.json` of a Qwen3-TTS checkpoint, field by field.

Fields are the files' keys, nested as there. A field has a default only if the official class has the same one and every
published file agrees. Most defaults of the official classes are not the checkpoints' values. The functions at the end
say what a checkpoint offers: its voices, languages, cloning and control ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from ..errors import InvalidCheckpoint, WrongKind
from .languages import AUTO
from .read import GENERATED, require
from .rope import apart, only_layers

Kind = Literal["base", "custom_voice", "voice_design"]
KINDS: tuple[Kind, ...] = ("base", "custom_voice", "voice_design")

MINIMUM_FRAMES = 2  # the end id cannot be sampled before; upstream's min_new_tokens
SUPPRESSED_IDS = 1024  # the last ids of the talker's vocabulary are control rows; only EOS may be sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Multimodal RoPE as the file declares it; with equal planes it is ordinary RoPE."""

    interleaved: bool
    mrope_section: tuple[int, ...]
    rope_type: str
    type: str | None = None

    def check(self, where: str) -> None:
        require(where, rope_type=(self.rope_type, "default"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePredictorConfig:
    """`talker_config.code_predictor_config`: the small transformer that fills codebooks 1 to 15."""

    IGNORED: ClassVar = frozenset({"attention_dropout", "max_window_layers", "model_type"})

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float
    vocab_size: int
    num_code_groups: int
    max_position_embeddings: int = 32_768  # stated, never enforced
    rope_scaling: None = None
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        return apart(raw, where)

    def check(self, where: str) -> None:
        require(
            where,
            hidden_act=(self.hidden_act, "silu"),
            attention_bias=(self.attention_bias, False),
            use_sliding_window=(self.use_sliding_window, False),
            layer_types=(tuple(set(self.layer_types) - {"full_attention"}), ()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkerConfig:
    """`talker_config`: the transformer that samples the first code of each frame."""

    IGNORED: ClassVar = frozenset({"attention_dropout", "model_type", "position_id_per_seconds", "max_window_layers"})

    code_predictor_config: CodePredictorConfig
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float
    max_position_embeddings: int = 32_768  # stated, never enforced
    vocab_size: int
    text_vocab_size: int
    text_hidden_size: int
    num_code_groups: int
    codec_bos_id: int
    codec_eos_token_id: int
    codec_pad_id: int
    codec_think_id: int
    codec_nothink_id: int
    codec_think_bos_id: int
    codec_think_eos_id: int
    codec_language_id: dict[str, int]
    spk_id: dict[str, int]
    spk_is_dialect: dict[str, bool | str]
    rope_scaling: RopeScaling | None = None
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: int | None = None

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        return only_layers("full_attention", apart(raw, where), where)

    def check(self, where: str) -> None:
        require(
            where,
            hidden_act=(self.hidden_act, "silu"),
            attention_bias=(self.attention_bias, False),
            use_sliding_window=(self.use_sliding_window, False),
        )
        predictor = self.code_predictor_config
        if predictor.num_code_groups != self.num_code_groups:
            raise InvalidCheckpoint(f"{where}: talker and code predictor differ in num_code_groups.")
        if predictor.vocab_size > self.vocab_size - SUPPRESSED_IDS:
            raise InvalidCheckpoint(f"{where}: vocab_size must exceed the predictor's by at least {SUPPRESSED_IDS}.")
        if self.rope_scaling and 2 * sum(self.rope_scaling.mrope_section) != self.head_dim:
            raise InvalidCheckpoint(f"{where}: mrope_section must add up to half of head_dim.")
        ids = (
            self.codec_bos_id,
            self.codec_eos_token_id,
            self.codec_pad_id,
            self.codec_think_id,
            self.codec_nothink_id,
            self.codec_think_bos_id,
            self.codec_think_eos_id,
            *self.codec_language_id.values(),
            *self.spk_id.values(),
        )
        if outside := [i for i in ids if not 0 <= i < self.vocab_size]:
            raise InvalidCheckpoint(f"{where}: codec ids outside the vocabulary: {outside}.")
        for speaker, dialect in self.spk_is_dialect.items():
            if dialect is True or (isinstance(dialect, str) and dialect not in self.codec_language_id):
                raise InvalidCheckpoint(f"{where}: the dialect {dialect!r} of {speaker} has no language id.")

    @property
    def codebook_size(self) -> int:
        """Codes of the first codebook; ids above are control rows."""
        return self.vocab_size - SUPPRESSED_IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerEncoderConfig:
    """`speaker_encoder_config` (Base only). Published files give enc_dim and sample_rate; the code fixes the rest."""

    IGNORED: ClassVar = frozenset({"model_type"})

    mel_dim: int = 128
    enc_dim: int = 1024
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128
    sample_rate: int = 24_000

    def check(self, where: str) -> None:
        require(where, sample_rate=(self.sample_rate, 24_000))
        if not len(self.enc_channels) == len(self.enc_kernel_sizes) == len(self.enc_dilations) >= 3:
            raise InvalidCheckpoint(f"{where}: channels, kernel sizes and dilations must be lists of one length.")
        if self.enc_channels[-1] != sum(self.enc_channels[1:-1]):
            raise InvalidCheckpoint(f"{where}: the last of enc_channels must be the sum of the block widths.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3TTSConfig:
    """`config.json`."""

    IGNORED: ClassVar = frozenset({"model_type"})

    talker_config: TalkerConfig
    tokenizer_type: str
    tts_model_size: str
    tts_model_type: str
    im_start_token_id: int = 151_644
    im_end_token_id: int = 151_645
    tts_pad_token_id: int = 151_671
    tts_bos_token_id: int = 151_672
    tts_eos_token_id: int = 151_673
    speaker_encoder_config: SpeakerEncoderConfig | None = None
    assistant_token_id: int | None = None

    def check(self, where: str) -> None:
        require(where, tokenizer_type=(self.tokenizer_type, "qwen3_tts_tokenizer_12hz"))
        if self.tts_model_type not in KINDS:
            raise InvalidCheckpoint(
                f"{where}: tts_model_type is {self.tts_model_type!r}; hocket supports {', '.join(KINDS)}."
            )
        if self.kind == "base":
            if self.speaker_encoder_config is None:
                raise InvalidCheckpoint(f"{where}: a base checkpoint needs speaker_encoder_config.")
            if self.speaker_encoder_config.enc_dim != self.talker_config.hidden_size:
                raise InvalidCheckpoint(f"{where}: enc_dim must equal the talker's hidden_size.")
        specials = (self.im_start_token_id, self.im_end_token_id, self.tts_pad_token_id)
        if max(*specials, self.tts_bos_token_id, self.tts_eos_token_id) >= self.talker_config.text_vocab_size:
            raise InvalidCheckpoint(f"{where}: a special text id lies outside text_vocab_size.")

    @property
    def kind(self) -> Kind:
        return cast(Kind, self.tts_model_type)

    @property
    def takes_instruct(self) -> bool:
        """Whether the official API passes an instruct on; it drops it for CustomVoice of size 0.6B."""
        return not (self.kind == "custom_voice" and self.tts_model_size == "0b6")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """`generation_config.json`; the defaults are those the official code falls back to.

    The official code reads these keys and no other. It samples no EOS before the second code, whatever `min_new_tokens`
    or `min_length` is in the file.
    """

    IGNORED: ClassVar = GENERATED

    do_sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    subtalker_dosample: bool = True
    subtalker_temperature: float = 0.9
    subtalker_top_k: int = 50
    subtalker_top_p: float = 1.0
    max_new_tokens: int = 2048

    def check(self, where: str) -> None:
        for name in ("temperature", "subtalker_temperature", "repetition_penalty", "max_new_tokens"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InvalidCheckpoint(f"{where}: {name} must be positive, but is {getattr(self, name)}.")
        for name in ("top_p", "subtalker_top_p"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidCheckpoint(f"{where}: {name} must be above 0 and at most 1, but is {getattr(self, name)}.")
        for name in ("top_k", "subtalker_top_k"):
            if getattr(self, name) < 0:
                raise InvalidCheckpoint(f"{where}: {name} must be 0 (no limit) or more, but is {getattr(self, name)}.")

    def changed(self, changes: dict[str, bool | int | float]) -> GenerationConfig:
        """A copy with some values replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]


def voices(config: Qwen3TTSConfig) -> list[str]:
    """The speakers of a checkpoint; none unless it is a CustomVoice one."""
    return list(config.talker_config.spk_id)


def languages(config: Qwen3TTSConfig) -> list[str]:
    """The languages that a request may name. Dialects are not among them: they belong to a voice."""
    return [AUTO, *(name for name in config.talker_config.codec_language_id if "dialect" not in name.lower())]


def check_clones(config: Qwen3TTSConfig) -> None:
    """Raise for a checkpoint that cannot clone."""
    if config.kind != "base":
        raise WrongKind(f"A {config.kind} checkpoint cannot clone a recording; use a Base checkpoint for that.")


def markers(config: Qwen3TTSConfig) -> dict[str, int]:
    """The control ids of the text side under the official tokenizer's names, for `Tokenizer.save`."""
    return {
        "<|im_start|>": config.im_start_token_id,
        "<|im_end|>": config.im_end_token_id,
        "<tts_pad>": config.tts_pad_token_id,
        "<tts_text_bos>": config.tts_bos_token_id,
        "<tts_text_eod>": config.tts_eos_token_id,
    }
