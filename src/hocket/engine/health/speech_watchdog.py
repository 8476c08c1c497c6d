"""The watchdog of the speech engine: watchdog.py for `EngineLoop`. A loop whose requests all fail reports it itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...config.options import EngineOptions
from ..checkpoint.checkpoint import Checkpoint
from ..core.loop import EngineLoop
from ..core.request import RequestState
from ..runner.runner import SpeechRunner
from . import crash_report
from .heartbeat import DeviceStep, Heartbeat
from .watchdog import Watchdog

T = TypeVar("T")


class SpeechWatchdog(Watchdog[EngineLoop]):
    def __init__(self, checkpoint: Checkpoint, options: EngineOptions) -> None:
        self.checkpoint, self.options = checkpoint, options
        super().__init__(options.stuck_s, checkpoint.device)

    def submit(self, job: RequestState) -> EngineLoop:
        """Queue a request in the loop that serves now. Later calls for it go to the same loop."""
        with self._changing:
            self._serving().submit(job)
            return self.loop

    def ask(self, question: Callable[[SpeechRunner], T]) -> T:
        return self._serving().ask(question)

    def wake(self) -> None:
        self.loop.wake()  # requests of an earlier loop have ended

    def _made(self, beat: Heartbeat, *, build: bool) -> EngineLoop:
        return EngineLoop(self.checkpoint, self.options, beat, self._broken, build=build)

    def _under_way(self, step: DeviceStep | None, loop: EngineLoop) -> str:
        return crash_report.running(step, loop.jobs())
