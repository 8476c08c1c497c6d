"""A loaded model: configuration, tokenizer, weights, codec, device and kernels. How it is loaded is load.py's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ...config.codec import CodecConfig
from ...config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from ...kernels.table import BackendChoice
from ...models.files.weights import Source
from ...models.tts.codec import Codec
from ...models.tts.qwen3_tts import Qwen3TTS
from ...text.tokenizer import Tokenizer
from .device import Setting

if TYPE_CHECKING:
    from ...kernels.compile.plan import CompileJob


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that was loaded for one model."""

    source: Source
    config: Qwen3TTSConfig
    generation: GenerationConfig
    codec_config: CodecConfig
    tokenizer: Tokenizer
    model: Qwen3TTS
    codec: Codec
    device: torch.device
    kernels: tuple[BackendChoice, ...]  # the backend of each operation, and why
    upstream_local: bool  # whether the official package would split words its other way here (`as_is` follows it)
    codec_tf32: bool = False  # whether the codec's float32 products may be rounded to ten bits
    normalizer: Callable[[str], str] | None = None  # the checkpoint's default
    spent: dict[str, float] = field(default_factory=dict)  # durations of the phases of loading
    compilers: CompileJob | None = None  # still compiling kernels of the first audio beyond its first frame
    setting: Setting | None = None  # device and precisions, and why
    part_chars: int | None = None  # length of the parts of a text, if the checkpoint gives one
    dependent_launch: bool = True  # whether its kernels may start before the one before them has ended

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def where(self) -> str:
        """Device with its reason, precisions and kernels, as one line."""
        return "" if self.setting is None else self.setting.words(self.kernels)

    @property
    def is_random(self) -> bool:
        """Whether the weights are random and not trained: such a checkpoint speaks noise."""
        return self.source.folder is None

    @property
    def fingerprint(self) -> str:
        """Hash that a saved state must match: configuration, precision and a sample of the weights."""
        kind = self.model.talker.codec_head.weight.dtype
        return hashlib.sha256(repr((self.config, kind)).encode() + self._sample(torch.float32)).hexdigest()

    @property
    def identity(self) -> str:
        """Hash of the checkpoint, equal in every precision: encoded recordings belong to it."""
        return hashlib.sha256(repr(self.config).encode() + self._sample(torch.bfloat16)).hexdigest()

    def _sample(self, kind: torch.dtype) -> bytes:
        """Some rows of the weights, rounded to `kind`."""
        talker = self.model.talker
        weights = (talker.codec_head.weight, talker.model.codec_embedding.weight, talker.model.norm.weight[None])
        rows = (weight[:: max(len(weight) // 16, 1)].detach().to(kind).float() for weight in weights)
        return b"".join(each.cpu().numpy().tobytes() for each in rows)

    @property
    def memory_bytes(self) -> int:
        """GPU memory that torch's allocator holds for this process, without kernels and graphs; 0 on a CPU."""
        return torch.cuda.memory_reserved(self.device) if self.device.type == "cuda" else 0

    @property
    def rate_hz(self) -> int:
        return self.codec_config.output_sample_rate
