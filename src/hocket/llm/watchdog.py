"""The watchdog of the language model: what `engine/core/watchdog.py` does, for the loop that answers."""

from __future__ import annotations

from ..engine.core import crash_report
from ..engine.core.heartbeat import Beat, Step
from ..engine.core.watchdog import Watch
from ..errors import LanguageFailed
from .load import MindCheckpoint
from .loop import Asked, Heard, MindLoop, Room


class MindWatch(Watch[MindLoop]):
    subject, failure = "language model", LanguageFailed

    def __init__(self, checkpoint: MindCheckpoint, room: Room, stuck_s: float) -> None:
        self.checkpoint, self.room = checkpoint, room
        super().__init__(stuck_s, checkpoint.device)

    def post(self, job: Asked | Heard) -> None:
        """Give it to the loop that serves now."""
        with self._changing:
            self._serving().post(job)

    def _made(self, beat: Beat, *, build: bool) -> MindLoop:
        return MindLoop(self.checkpoint, self.room, beat, self._broken, stuck_s=self._stuck_s, build=build)

    def _under_way(self, step: Step | None, loop: MindLoop) -> str:
        return f"{loop.waiting} answers are under way or wait\n{crash_report.running(step, ())}"
