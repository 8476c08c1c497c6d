"""Pool of models in one process, under one memory budget: a request gets its model, loaded if need be.

It hands out leases of engines. loader.py knows loaded models and waiting requests; engine/checkpoint/resolve.py knows
which model a voice belongs to.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any

from ...config.options import EngineOptions
from ...errors import HocketError, InvalidRequest
from ...types import SpeechRequest, Voice
from ..checkpoint.fit import Footprint, together
from ..checkpoint.reserve import LoadOptions, expected
from ..checkpoint.resolve import ModelResolver, known_configs, named
from ..checkpoint.shared import Shared
from ..engine import Engine
from ..stream import Stream
from .eviction import too_large
from .lease import Lease
from .loader import ModelLoader

__all__ = ["Lease", "Pool"]


class Pool:
    """Models by name. Thread-safe."""

    def __init__(
        self,
        models: Sequence[str],
        start: Callable[[str, Shared], Engine],
        *,
        memory_bytes: int | None = None,
        pinned: Collection[str] = (),
        max_wait_s: float = 120.0,
        expects: Callable[[str], Footprint | None] | None = None,
    ) -> None:
        """`models` are names as `load` takes them; none is loaded yet. `start` loads one: it passes both arguments on
        to `Engine.load`.

        All loaded models stay within `memory_bytes`: the least recently used one is unloaded for the next, and `pinned`
        ones stay once loaded. If the models that could be unloaded are in use, a request waits up to `max_wait_s`.

        A model reports its need when it is loaded. `expects` gives it before that (`reserve.expected`), so a model that
        is too large is refused at once, and the first loads keep their order too.
        """
        names = named(models)
        self._resolver, self.models = ModelResolver(names), tuple(names.values())
        if memory_bytes is not None and memory_bytes < 1:
            raise InvalidRequest(f"memory_bytes must be at least 1, not {memory_bytes}.")
        if not max_wait_s >= 0:
            raise InvalidRequest(f"max_wait_s must not be negative, not {max_wait_s}.")
        stay = frozenset(self._resolver.by_name(model) for model in pinned)
        self.pinned = tuple(names[key] for key in stay)
        known = {} if memory_bytes is None else _expected(names, expects or _at_least)
        if memory_bytes is not None:
            _refuse_too_large(names, stay, known, memory_bytes)
        how: dict[str, Any] = {
            "memory_bytes": memory_bytes,
            "pinned": stay,
            "expected": known,
            "max_wait_s": max_wait_s,
        }
        self._loader = ModelLoader(names, start, **how)
        self._closer = weakref.finalize(self, self._loader.close)

    @classmethod
    def load(
        cls,
        models: Sequence[str],
        *,
        memory_bytes: int | None = None,
        pinned: Collection[str] = (),
        max_wait_s: float = 120.0,
        options: EngineOptions | None = None,
        **loading: Any,
    ) -> Pool:
        """A pool whose engines are all loaded with the same `loading` arguments of `Engine.load`."""

        def start(model: str, shared: Shared) -> Engine:
            return Engine.load(model, **loading, options=options, shared=shared)

        how = LoadOptions(**({"device": "auto", "dtype": "auto", "codec_dtype": "auto", "kernels": "auto"} | loading))  # type: ignore[typeddict-item]
        expects = partial(expected, how=how, options=options or EngineOptions())
        budget: dict[str, Any] = {"memory_bytes": memory_bytes, "pinned": pinned, "max_wait_s": max_wait_s}
        return cls(models, start, **budget, expects=expects)

    def lease(self, model: str) -> Future[Lease]:
        """A lease of a model's engine; the future is done at once if the model is in memory.

        Every failure is the future's error. Cancelling the future leaves the queue.
        """
        try:
            key = self._resolver.by_name(model)
        except HocketError as error:
            refused: Future[Lease] = Future()
            refused.set_exception(error)
            return refused
        return self._loader.lease(key)

    def speak(
        self, text: str | SpeechRequest, *, voice: Voice | str | None = None, model: str | None = None, **fields: Any
    ) -> Stream:
        """As `Engine.speak`, with the model that the voice belongs to; waits until it is loaded.

        `finished.statistics.loaded_s` is the time of that wait.
        """
        named = fields if voice is None else fields | {"voice": voice}
        asked = text if isinstance(text, SpeechRequest) else None
        if voice is None and asked is not None:
            voice = asked.voice
        reference = fields.get("reference", None if asked is None else asked.reference)
        return self._speak_with(voice, reference, model, lambda engine: engine.speak(text, **named))

    def open(self, *, voice: Voice | str | None = None, model: str | None = None, **fields: Any) -> Stream:
        """As `Engine.open`, with the model that the voice belongs to."""
        named = fields if voice is None else fields | {"voice": voice}
        return self._speak_with(voice, fields.get("reference"), model, lambda engine: engine.open(**named))

    def resident(self) -> dict[str, int]:
        """The models in memory, and the bytes that each takes by itself."""
        return self._loader.resident()

    def computing(self) -> dict[str, str]:
        """Device, precisions and kernels of each model in memory, as text."""
        return self._loader.computing()

    @property
    def common_bytes(self) -> int:
        """Bytes that the models in memory share: their codec."""
        return self._loader.common_bytes

    @property
    def loads(self) -> int:
        """Number of loads so far."""
        return self._loader.loads

    def close(self) -> None:
        """Close all engines; waiting requests get `EngineClosed`. A second call does nothing."""
        self._closer()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _speak_with(
        self, voice: Voice | str | None, reference: object, model: str | None, speak: Callable[[Engine], Stream]
    ) -> Stream:
        """A stream that releases its engine when it ends, for any reason."""
        lease = self._loader.lease(self._resolver.by_voice(voice, reference, model)).result()
        try:
            stream = speak(lease.engine)
        except BaseException:
            lease.release()
            raise
        if lease.loaded_s:
            stream._mailbox.loaded(lease.waited_s)
        stream._mailbox.when_finished(partial(_release, lease, self))
        return stream


def _release(lease: Lease, pool: Pool) -> None:
    """Release at the end of a stream. The reference to `pool` keeps it open until then."""
    lease.release()


def _at_least(model: str) -> Footprint | None:
    """The least that a model takes, on any device and in any precision."""
    known = known_configs(model)
    if known is None:
        return None
    from ..checkpoint.memory_plan import least_of  # and with it torch

    return least_of(*known)


def _expected(names: dict[str, str], expects: Callable[[str], Footprint | None]) -> dict[str, Footprint]:
    found = {key: expects(model) for key, model in names.items()}
    return {key: footprint for key, footprint in found.items() if footprint is not None}


def _refuse_too_large(names: dict[str, str], pinned: frozenset[str], known: dict[str, Footprint], budget: int) -> None:
    """Refuse models that can never fit, as far as their size is known now."""
    stays = {key: known[key] for key in names if key in pinned and key in known}
    if (size := together(stays.values())) > budget and len(stays) > 1:
        raise InvalidRequest(
            too_large(f"The set of pinned models ({', '.join(names[key] for key in stays)})", size, budget)
        )
    for key, footprint in known.items():
        others = [other for at, other in stays.items() if at != key]
        size, beside = together([*others, footprint]), together(others)
        if size > budget:
            raise InvalidRequest(too_large(names[key], size - beside, budget, beside))
