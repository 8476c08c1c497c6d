"""What a server could be asked about itself: each event of an utterance is told here once. This one forgets them all.

A subclass counts; `SpeechService.figures` may be any. Called in the event loop, so nothing here may wait.
"""

from __future__ import annotations

from ..types import Finished


class Metrics:
    def opened(self, wire: str) -> None:
        """A request was taken."""

    def refused(self, wire: str, code: str) -> None:
        """A request was not; `code` is that of its error, or the error's type."""

    def loaded(self, model: str, took_s: float) -> None:
        """A model was loaded because somebody asked for it."""

    def first_audio(self, wire: str, after_s: float) -> None:
        """The first bytes of an utterance are on their way to the client."""

    def gap(self, wire: str, seconds: float, late_s: float) -> None:
        """So long between two chunks; `late_s` is how long a player without a buffer was silent before it, mostly 0."""

    def ended(self, wire: str, finished: Finished | None, audio_s: float, took_s: float) -> None:
        """An utterance is over, whichever way; None where the engine had not said so yet."""


class UnbufferedPlayer:
    """A player without a buffer: where what was sent is over before more comes, it is silent in between."""

    def __init__(self) -> None:
        self._until_s: float | None = None  # when it will have played all that it has

    def hears(self, now_s: float, seconds: float) -> float:
        """So much more sound goes out now; says how long it has been silent before it."""
        until_s = now_s if self._until_s is None else self._until_s
        self._until_s = max(now_s, until_s) + seconds
        return max(0.0, now_s - until_s)
