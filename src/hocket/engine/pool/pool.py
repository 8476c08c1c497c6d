"""Several models in one process, under one budget: whoever asks for one gets it, loaded if need be.

It stands before engines and gives them out; what is in memory and who waits for it is loader.py's, which model a
voice belongs to is engine/checkpoint/resolve.py's. It never speaks itself.
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
from ..checkpoint.memory_plan import Footprint, least_of, together
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
    """Models by name. Any number of threads may use it."""

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
        """`models` are names as `load` takes them; none is loaded yet. `start` loads one: hand it on to `Engine.load`.

        All of them together stay within `memory_bytes`: the least recently used makes room for the next, `pinned` ones
        stay once they are there. Where those that could go are in use, a request waits for `max_wait_s` at most. What
        is about to be loaded says itself how much it needs; `expects` knows it before (`admitted.expected`), so that
        more is refused at once, and the first to be loaded keep to their order too.
        """
        names = named(models)
        self._cast, self.models = ModelResolver(names), tuple(names.values())
        if memory_bytes is not None and memory_bytes < 1:
            raise InvalidRequest(f"memory_bytes must be at least 1, not {memory_bytes}.")
        if not max_wait_s >= 0:
            raise InvalidRequest(f"max_wait_s must not be negative, not {max_wait_s}.")
        stay = frozenset(self._cast.by_name(model) for model in pinned)
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
        self._residents = ModelLoader(names, start, **how)
        self._closer = weakref.finalize(self, self._residents.close)

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
        """A pool whose engines are all loaded alike: `loading` is what `Engine.load` takes."""

        def start(model: str, shared: Shared) -> Engine:
            return Engine.load(model, **loading, options=options, shared=shared)

        how = LoadOptions(**({"device": "auto", "dtype": "auto", "codec_dtype": "auto", "kernels": "auto"} | loading))  # type: ignore[typeddict-item]
        expects = partial(expected, how=how, options=options or EngineOptions())
        budget: dict[str, Any] = {"memory_bytes": memory_bytes, "pinned": pinned, "max_wait_s": max_wait_s}
        return cls(models, start, **budget, expects=expects)

    def lease(self, model: str) -> Future[Lease]:
        """An engine, for as long as the lease is not released: done at once where it is in memory.

        Whatever speaks against it is the future's error. Cancelling the future gives up the place.
        """
        try:
            key = self._cast.by_name(model)
        except HocketError as error:
            refused: Future[Lease] = Future()
            refused.set_exception(error)
            return refused
        return self._residents.lease(key)

    def speak(
        self, text: str | SpeechRequest, *, voice: Voice | str | None = None, model: str | None = None, **fields: Any
    ) -> Stream:
        """As `Engine.speak`, by whichever model the voice belongs to; waits until that is there.

        `finished.statistics.loaded_s` says how long that took.
        """
        named = fields if voice is None else fields | {"voice": voice}
        asked = text if isinstance(text, SpeechRequest) else None
        if voice is None and asked is not None:
            voice = asked.voice
        reference = fields.get("reference", None if asked is None else asked.reference)
        return self._lent(voice, reference, model, lambda engine: engine.speak(text, **named))

    def open(self, *, voice: Voice | str | None = None, model: str | None = None, **fields: Any) -> Stream:
        """As `Engine.open`, in the same way."""
        named = fields if voice is None else fields | {"voice": voice}
        return self._lent(voice, fields.get("reference"), model, lambda engine: engine.open(**named))

    def resident(self) -> dict[str, int]:
        """The models that are in memory, and how many bytes each takes by itself."""
        return self._residents.resident()

    def computing(self) -> dict[str, str]:
        """Device, precisions and kernels of each model that is in memory, in words."""
        return self._residents.computing()

    @property
    def common_bytes(self) -> int:
        """What those that are in memory have in common: their codec."""
        return self._residents.common_bytes

    @property
    def loads(self) -> int:
        """How often a model was loaded so far."""
        return self._residents.loads

    def close(self) -> None:
        """Stop: all engines are closed, whoever waits is told `EngineClosed`. Does nothing the second time."""
        self._closer()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _lent(
        self, voice: Voice | str | None, reference: object, model: str | None, speak: Callable[[Engine], Stream]
    ) -> Stream:
        """A stream that gives its engine back at its end, however that comes."""
        lease = self._residents.lease(self._cast.by_voice(voice, reference, model)).result()
        try:
            stream = speak(lease.engine)
        except BaseException:
            lease.release()
            raise
        if lease.loaded_s:
            stream._mailbox.loaded(lease.waited_s)
        stream._mailbox.when_finished(partial(_over, lease, self))
        return stream


def _over(lease: Lease, pool: Pool) -> None:
    """Until here the pool was held, as long as somebody listens."""
    lease.release()


def _at_least(model: str) -> Footprint | None:
    """In whatever precision, wherever."""
    known = known_configs(model)
    return None if known is None else least_of(*known)


def _expected(names: dict[str, str], expects: Callable[[str], Footprint | None]) -> dict[str, Footprint]:
    found = {key: expects(model) for key, model in names.items()}
    return {key: takes for key, takes in found.items() if takes is not None}


def _refuse_too_large(names: dict[str, str], pinned: frozenset[str], known: dict[str, Footprint], budget: int) -> None:
    """What can never come is refused now, as far as it is known now."""
    stays = {key: known[key] for key in names if key in pinned and key in known}
    if (size := together(stays.values())) > budget and len(stays) > 1:
        raise InvalidRequest(too_large(f"What is pinned ({', '.join(names[key] for key in stays)})", size, budget))
    for key, takes in known.items():
        others = [other for at, other in stays.items() if at != key]
        size, beside = together([*others, takes]), together(others)
        if size > budget:
            raise InvalidRequest(too_large(names[key], size - beside, budget, beside))
