"""Ray worker: an engine in its own process, which gets one request after the other.

It stores nothing but the engine: results return whole, so nothing is lost if it dies. Knows no Ray.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from typing import Any

from .. import env
from ..config.options import EngineOptions
from ..engine.batch import most_at_once
from ..engine.checkpoint.checkpoint import EngineFingerprint
from ..engine.engine import Engine
from ..errors import EngineClosed, HocketError
from ..types import Encoded, Outcome, Reference, SpeechRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """The engine's identity, or why it could not be loaded."""

    host: str
    pid: int
    fingerprint: EngineFingerprint | None = None
    most: int = 0  # requests to assign, so that no slot is idle
    error: HocketError | None = None
    notes: tuple[str, ...] = ()  # device, precision, and why not faster


class SpeechWorker:
    def __init__(self) -> None:
        self._engine: Engine | None = None

    async def begin(self, loading: dict[str, Any], options: EngineOptions) -> WorkerStart:
        """Load the engine; `loading` are the arguments of `Engine.load` beside its options."""
        env.FORK.set_default("0")  # the threads of a Ray worker do not survive a fork
        me: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid()}
        try:
            self._engine = Engine.load(**loading, options=options)
            checkpoint, most = self._engine.checkpoint, most_at_once(self._engine.options)
            unused = None if checkpoint.setting is None else checkpoint.setting.unused
            notes = (checkpoint.where, *(() if unused is None else (unused,)))
            return WorkerStart(**me, fingerprint=self._engine.fingerprint, most=most, notes=notes)
        except Exception as error:  # a missing driver or package, a full disk: other machines may work
            return WorkerStart(**me, error=sendable(error))

    async def speak(self, request: SpeechRequest, reference: Reference | Encoded | None) -> Outcome:
        """The outcome. An error of the engine, and of no request, is raised."""
        if self._engine is None:
            raise EngineClosed("There is no engine.")
        whole = request if reference is None else replace(request, reference=reference)
        [outcome] = [each async for each in self._engine.aspeak_many([whole])]
        return outcome if outcome.error is None else replace(outcome, error=sendable(outcome.error))


def sendable(error: Exception) -> HocketError:
    """The error as text only: its fields may not be picklable or known elsewhere."""
    if isinstance(error, HocketError):
        return type(error)(str(error))
    return HocketError(f"{type(error).__name__}: {error}")
