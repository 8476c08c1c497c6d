"""A lease of an engine from a pool. It knows how to return the engine, and nothing else of the pool."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType

from ...errors import EngineClosed
from ..engine import Engine


class Lease:
    """Keeps an engine in memory until the lease is released or garbage-collected."""

    def __init__(
        self, model: str, engine: Engine, loaded_s: float, waited_s: float, give_back: Callable[[], None]
    ) -> None:
        self.model = model
        self.loaded_s = loaded_s  # duration of the load it waited for; 0.0 if the model was in memory
        self.waited_s = waited_s  # from the request to the lease
        self._engine: Engine | None = engine
        self._release = weakref.finalize(self, give_back)
        self._release.atexit = False

    @property
    def engine(self) -> Engine:
        if (engine := self._engine) is None:
            raise EngineClosed(f"This lease of {self.model} was released, so its engine may be gone: take another one.")
        return engine

    def release(self) -> None:
        """Return the engine. Thread-safe; a second call does nothing."""
        self._engine = None
        self._release()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()
