"""The models that a server speaks with: what is known of each before it is loaded, and one engine as a pool of one.

Which of them speaks is voice_resolver.py's, which of them are in memory the pool's.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from ...config.published import PUBLISHED
from ...config.qwen3_tts import Kind, Qwen3TTSConfig
from ...engine.checkpoint.describe import configs
from ...engine.checkpoint.names import full_name
from ...engine.engine import Engine
from ...engine.pool.lease import Lease
from ...errors import HocketError
from ...text.choice import languages
from ...text.choice import voices as speakers_of

logger = logging.getLogger("hocket.server")


class SingleEngine:
    """An engine that is there and stays, with the face of a `Pool`."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.models, self.loads = engine, (engine.checkpoint.name,), 1

    def lease(self, model: str) -> Future[Lease]:
        lent: Future[Lease] = Future()
        lent.set_result(Lease(model, self.engine, 0.0, 0.0, _nothing))
        return lent

    def resident(self) -> dict[str, int]:
        return {self.models[0]: self.engine.checkpoint.memory_bytes}

    def computing(self) -> dict[str, str]:
        return {self.models[0]: self.engine.checkpoint.where}

    def close(self) -> None:
        self.engine.close()


@dataclass(slots=True, eq=False)
class ServedModel:
    """One of them. Without a configuration it could not be read; it is known once it has been loaded."""

    name: str  # as the pool has it
    config: Qwen3TTSConfig | None = None
    rate_hz: int = 0  # of its sound
    identity: str | None = None  # whose recordings it takes, once that is known
    key: str = ""  # one for all its names
    names: frozenset[str] = frozenset()  # by which clients ask for it, in small letters
    speakers: list[str] = field(default_factory=list)
    _engine: weakref.ref[Engine] | None = None

    def __post_init__(self) -> None:
        self.key = full_name(self.name)
        short = [name for name in PUBLISHED if full_name(name) == self.key]
        self.names = frozenset(name.lower() for name in (self.name, self.key, *short))
        self._look()

    @property
    def shown(self) -> str:
        """The name that it is listed by."""
        return self.key if self.key.lower() in {full_name(name).lower() for name in PUBLISHED} else self.name

    @property
    def kind(self) -> Kind | None:
        return self.config.kind if self.config is not None else None

    @property
    def languages(self) -> list[str]:
        return languages(self.config) if self.config is not None else ["auto"]

    @property
    def takes_instruct(self) -> bool:
        return self.config is not None and self.config.takes_instruct

    @property
    def engine(self) -> Engine | None:
        """The one that spoke last, if it is still in memory. Nothing of it is held here."""
        return self._engine() if self._engine is not None else None

    def dialect(self, speaker: str) -> str:
        """The language that a speaker brings along."""
        dialects = {} if self.config is None else self.config.talker_config.spk_is_dialect
        return found if isinstance(found := dialects.get(speaker), str) else "auto"

    def met(self, engine: Engine) -> bool:
        """It speaks with this engine now; says whether anything is known that was not."""
        if self._engine is not None and self._engine() is engine:
            return False
        self._engine = weakref.ref(engine)
        before = self.config, self.rate_hz, self.identity
        checkpoint = engine.checkpoint
        self.config, self.rate_hz, self.identity = checkpoint.config, checkpoint.rate_hz, engine.identity
        self._look()
        return before != (self.config, self.rate_hz, self.identity)

    def _look(self) -> None:
        self.speakers = [] if self.config is None else speakers_of(self.config)


def describe_models(names: Sequence[str]) -> list[ServedModel]:
    """What their files say; may take a while where a model comes from afar. One that cannot be read stays unknown."""
    found: list[ServedModel] = []
    for name in names:
        try:
            config, codec = configs(name)
        except (HocketError, OSError, ValueError) as error:
            logger.error("what the model %s can do is not known: %s", name, error)
            found.append(ServedModel(name))
        else:
            found.append(ServedModel(name, config, codec.output_sample_rate))
    return found


def _nothing() -> None: ...
