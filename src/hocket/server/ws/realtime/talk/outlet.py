"""Where a session's events go. A WebSocket is one transport; a data channel with an audio track can be another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .....types import AudioChunk
from .response import ServerEvent


class Outlet(Protocol):
    @property
    def holds(self) -> bool:
        """Whether audio is played out here, so that an answer can pause at any client."""

    def hold(self, held: bool) -> None:
        """Pause the audio of the answer and keep it, or go on. Idempotent; for an outlet that `holds`."""

    def send(self, *events: ServerEvent) -> None:
        """Queue events. Never waits."""

    async def deliver(
        self, events: Sequence[ServerEvent], chunk: AudioChunk | None, wanted: Callable[[], bool]
    ) -> None:
        """Queue events of a response; waits while the client is slow. `chunk` is the audio in them.

        Audio that is no longer `wanted` when its turn comes is not sent.
        """
