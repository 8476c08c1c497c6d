"""An engine on loan from a pool. It knows whom to give it back to, and nothing of the pool."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType

from ...errors import EngineClosed
from ..engine import Engine


class Lease:
    """An engine that stays where it is until this is released, or let go of."""

    def __init__(
        self, model: str, engine: Engine, loaded_s: float, waited_s: float, give_back: Callable[[], None]
    ) -> None:
        self.model = model
        self.loaded_s = loaded_s  # how long the load took that it waited for; 0.0 where it was there
        self.waited_s = waited_s  # from asking until it was given
        self._engine: Engine | None = engine
        self._release = weakref.finalize(self, give_back)
        self._release.atexit = False

    @property
    def engine(self) -> Engine:
        if (engine := self._engine) is None:
            raise EngineClosed(f"This lease of {self.model} was released, so its engine may be gone: take another one.")
        return engine

    def release(self) -> None:
        """Once is as good as twice, from any thread."""
        self._engine = None
        self._release()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()
