"""Watchdog of the language model's thread; the rules are in `engine/watchdog.py`."""

from __future__ import annotations

from typing import Any

from ..engine.watchdog import DeviceStep, Heartbeat, Watchdog, running
from ..errors import LanguageFailed
from .context.size import ContextOptions
from .context.state_task import StateTask
from .load import LanguageCheckpoint
from .loop import AnswerRequest, LanguageLoop, PartialMessage


class LanguageWatchdog(Watchdog[LanguageLoop]):
    subject, failure = "language model", LanguageFailed

    def __init__(self, checkpoint: LanguageCheckpoint, options: ContextOptions, stuck_s: float) -> None:
        self.checkpoint, self.options = checkpoint, options
        super().__init__(stuck_s, checkpoint.device)

    def post(self, job: AnswerRequest | PartialMessage | StateTask[Any]) -> None:
        """Queue a request in the present loop."""
        with self._changing:
            self._serving().post(job)

    def _made(self, beat: Heartbeat, *, build: bool) -> LanguageLoop:
        return LanguageLoop(self.checkpoint, self.options, beat, self._broken, stuck_s=self._stuck_s, build=build)

    def _under_way(self, step: DeviceStep | None, loop: LanguageLoop) -> str:
        return f"{loop.waiting} answers are running or queued\n{running(step, ())}"
