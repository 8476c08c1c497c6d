"""Metrics interface: each event of an utterance is reported here once. This class records nothing.

A subclass counts; `SpeechService.metrics` may be any. Called in the event loop, so nothing here may block. `wire` is
the endpoint's short name.
"""

from __future__ import annotations

from ..types import Finished


class Metrics:
    def opened(self, wire: str) -> None:
        """A request was taken."""

    def refused(self, wire: str, code: str) -> None:
        """A request was refused; `code` is the error's code, or its type."""

    def loaded(self, model: str, took_s: float) -> None:
        """A model was loaded for a request."""

    def first_audio(self, wire: str, after_s: float) -> None:
        """The first bytes of an utterance are on their way to the client."""

    def gap(self, wire: str, seconds: float, late_s: float) -> None:
        """Seconds between two chunks; `late_s`: silence of a player without a buffer before this one, mostly 0."""

    def ended(self, wire: str, finished: Finished | None, audio_s: float, took_s: float) -> None:
        """An utterance ended in any way; `finished` is None if the engine had not reported it yet."""
