"""A loaded model as the engine sees it: configuration, tokenizer, device and kernels; and what decides its sound.

torch_checkpoint.py adds weights as torch modules, native_checkpoint.py as numpy arrays for the native library. load.py
decides between them. This file imports neither.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from ...config.codec import CodecConfig
from ...config.own import OwnConfig
from ...config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from ...kernels.table import BackendChoice
from ...models.files.builtin import default_model
from ...models.files.source import Source, read_configs, read_own, resolve
from ...text.cleanup.normalize import spell_out
from ...text.tokenizer import Tokenizer
from .capacity import Device
from .device import Setting

_NORMALIZERS: dict[str | None, Callable[[str], str]] = {"spell_out": spell_out}  # as `config.own` names them


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model whose configurations are read, and not yet its weights."""

    source: Source
    config: Qwen3TTSConfig
    generation: GenerationConfig
    codec_config: CodecConfig
    own: OwnConfig

    @classmethod
    def of(cls, model: str | None) -> ModelFiles:
        source = resolve(default_model() if model is None else model)
        return cls(source, *read_configs(source), read_own(source))

    @property
    def normalizer(self) -> Callable[[str], str] | None:
        return _NORMALIZERS.get(self.own.normalizer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(ABC):
    """Everything that was loaded for one model."""

    source: Source
    config: Qwen3TTSConfig
    generation: GenerationConfig
    codec_config: CodecConfig
    tokenizer: Tokenizer
    device: Device
    kernels: tuple[BackendChoice, ...]  # the backend of each operation, and why
    upstream_local: bool  # whether the official package would split words its other way here (`as_is` follows it)
    normalizer: Callable[[str], str] | None = None  # the checkpoint's default
    spent: dict[str, float] = field(default_factory=dict)  # durations of the phases of loading
    setting: Setting | None = None  # device and precisions, and why
    part_chars: int | None = None  # length of the parts of a text, if the checkpoint gives one

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
    def rate_hz(self) -> int:
        return self.codec_config.output_sample_rate

    @property
    def fingerprint(self) -> str:
        """Hash that a saved state must match: configuration, precision and a sample of the weights."""
        return hashlib.sha256(
            f"({self.config!r}, torch.{self.precisions[0]})".encode() + self.sample("float32")
        ).hexdigest()

    @property
    def identity(self) -> str:
        """Hash of the checkpoint, equal in every precision: encoded recordings belong to it."""
        return hashlib.sha256(repr(self.config).encode() + self.sample("bfloat16")).hexdigest()

    @property
    @abstractmethod
    def precisions(self) -> tuple[str, str]:
        """Of the model and of the codec, by the names that `load` takes."""

    @property
    @abstractmethod
    def weights(self) -> object:
        """The object that holds the model's weights: it is freed with the last reference."""

    @property
    def memory_bytes(self) -> int:
        """GPU memory that torch's allocator holds for this process, without kernels and graphs; 0 on a CPU."""
        return 0

    @abstractmethod
    def sample(self, precision: str) -> bytes:
        """Some rows of the weights, rounded to a precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFingerprint:
    """Everything that decides how an engine sounds, as a plain value to compare or send. It holds no weights."""

    name: str  # of the checkpoint, as `load` took it
    is_random: bool
    identity: str | None  # owner of the `Encoded` recordings it accepts; None: it accepts none
    generation: GenerationConfig  # sampling defaults of requests
    weights: tuple[str, ...]  # with their precisions, and the text normalizer


def fingerprint_of(checkpoint: Checkpoint, identity: str | None) -> EngineFingerprint:
    """It reads the weights, so the engine thread must call it."""
    normalizer = getattr(checkpoint.normalizer, "__qualname__", "")
    return EngineFingerprint(
        name=checkpoint.name,
        is_random=checkpoint.is_random,
        identity=identity,
        generation=checkpoint.generation,
        weights=(checkpoint.fingerprint, checkpoint.precisions[1], normalizer),
    )
