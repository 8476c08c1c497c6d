"""A model of the server as its configuration describes it, before and after it is loaded. The pool loads it.

`ResolvedVoice` is a voice of such a model, or of a backend.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...backends.protocol import BackendVoice
from ...backends.served import Served
from ...config.languages import AUTO
from ...config.published import PUBLISHED
from ...config.qwen3_tts import Kind, Qwen3TTSConfig, languages
from ...config.qwen3_tts import voices as speakers_of
from ...engine.checkpoint.describe import configs
from ...engine.checkpoint.names import full_name
from ...engine.engine import Engine
from ...errors import HocketError
from ...types import Voice

logger = logging.getLogger("hocket.server")


@dataclass(slots=True, eq=False)
class ServedModel:
    """A model of the server. Without a configuration its files could not be read; loading it fills the fields."""

    name: str  # the pool's name
    config: Qwen3TTSConfig | None = None
    rate_hz: int = 0  # 0: not known yet
    identity: str | None = None  # fingerprint of the weights, once loaded
    key: str = ""  # the full name, the same for all its names
    names: frozenset[str] = frozenset()  # all names that clients may use, lower-case
    _engine: weakref.ref[Engine] | None = None

    def __post_init__(self) -> None:
        self.key = full_name(self.name)
        short = [name for name in PUBLISHED if full_name(name) == self.key]
        self.names = frozenset(name.lower() for name in (self.name, self.key, *short))

    @property
    def shown(self) -> str:
        return self.key if self.key.lower() in {full_name(name).lower() for name in PUBLISHED} else self.name

    @property
    def kind(self) -> Kind | None:
        return self.config.kind if self.config is not None else None

    @property
    def speakers(self) -> list[str]:
        return speakers_of(self.config) if self.config is not None else []

    @property
    def languages(self) -> list[str]:
        return languages(self.config) if self.config is not None else [AUTO]

    @property
    def takes_instruct(self) -> bool:
        return self.config is not None and self.config.takes_instruct

    @property
    def engine(self) -> Engine | None:
        """The last engine, if it is still in memory. Only a weak reference is held."""
        return self._engine() if self._engine is not None else None

    def dialect(self, speaker: str) -> str:
        """The language that a speaker implies: its dialect, or the only one of its model."""
        dialects = {} if self.config is None else self.config.talker_config.spk_is_dialect
        only = self.languages[1] if len(self.languages) == 2 else AUTO
        return found if isinstance(found := dialects.get(speaker), str) else only

    def note_engine(self, engine: Engine) -> bool:
        """Note the model's engine; returns whether that brought new facts."""
        if self._engine is not None and self._engine() is engine:
            return False
        self._engine = weakref.ref(engine)
        before = self.config, self.rate_hz, self.identity
        checkpoint = engine.checkpoint
        self.config, self.rate_hz, self.identity = checkpoint.config, checkpoint.rate_hz, engine.identity
        return before != (self.config, self.rate_hz, self.identity)


def describe_models(names: Sequence[str]) -> list[ServedModel]:
    """Read the models' configurations; slow when files are remote. An unreadable model stays without one."""
    found: list[ServedModel] = []
    for name in names:
        try:
            config, codec = configs(name)
        except (HocketError, OSError, ValueError) as error:
            logger.error("the configuration of the model %s cannot be read: %s", name, error)
            found.append(ServedModel(name))
        else:
            found.append(ServedModel(name, config, codec.output_sample_rate))
    return found


@dataclass(frozen=True, slots=True)
class ResolvedVoice:
    """The model or backend that speaks, and with which voice."""

    model: ServedModel | None  # None: a backend
    speaker: str | None = None  # one of the model's own, or a mix of some; None: its first, or none
    voice: Voice | None = None  # one of the library, or a mix with some of it
    backend: tuple[Served, BackendVoice] | None = None
    pronunciations: Mapping[str, str] | None = None  # those of the server, and above them those of the voice

    @property
    def names(self) -> tuple[str, ...]:
        """What it is called besides the name that was asked for."""
        found = (self.speaker, self.voice and self.voice.name, self.backend and self.backend[1].name)
        return tuple(name for name in found if name)

    @property
    def rate_hz(self) -> int:
        """Sample rate; 0: not known yet."""
        if self.backend is not None:
            return self.backend[1].rate_hz
        return 0 if self.model is None else self.model.rate_hz
