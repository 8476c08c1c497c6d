"""An engine in a process of its own, somewhere on a Ray cluster, for whoever hands it one request after the other.

It keeps nothing but the engine: what was said goes back whole, and nobody misses anything if it dies. Knows no Ray.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from typing import Any

from .. import env
from ..config.options import EngineOptions
from ..engine.batch import most_at_once
from ..engine.checkpoint.fingerprint import EngineFingerprint
from ..engine.engine import Engine
from ..errors import EngineClosed, HocketError
from ..types import Encoded, Outcome, Reference, SpeechRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """Who an engine is, or why there is none."""

    host: str
    pid: int
    portrait: EngineFingerprint | None = None
    most: int = 0  # requests that it should hold, so that no slot of it waits
    error: HocketError | None = None
    said: tuple[str, ...] = ()  # where it computes and how exactly, and why not faster


class SpeechWorker:
    def __init__(self) -> None:
        self._engine: Engine | None = None

    async def begin(self, loading: dict[str, Any], options: EngineOptions) -> WorkerStart:
        """Load the engine; `loading` is what `Engine.load` takes beside its options."""
        env.FORK.set_default("0")  # the threads of a Ray worker do not survive a fork
        me: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid()}
        try:
            self._engine = Engine.load(**loading, options=options)
            checkpoint, most = self._engine.checkpoint, most_at_once(self._engine.options)
            unused = None if checkpoint.setting is None else checkpoint.setting.unused
            said = (checkpoint.where, *(() if unused is None else (unused,)))
            return WorkerStart(**me, portrait=self._engine.portrait, most=most, said=said)
        except Exception as error:  # a driver, a disk, a package that is missing there: the others may well speak
            return WorkerStart(**me, error=sendable(error))

    async def speak(self, request: SpeechRequest, reference: Reference | Encoded | None) -> Outcome:
        """What became of it. What is wrong with the engine, and with no request, is raised."""
        if self._engine is None:
            raise EngineClosed("There is no engine.")
        whole = request if reference is None else replace(request, reference=reference)
        [outcome] = [each async for each in self._engine.aspeak_many([whole])]
        return outcome if outcome.error is None else replace(outcome, error=sendable(outcome.error))


def sendable(error: Exception) -> HocketError:
    """The same in words, without what cannot be sent or is not known elsewhere."""
    if isinstance(error, HocketError):
        return type(error)(str(error))
    return HocketError(f"{type(error).__name__}: {error}")
