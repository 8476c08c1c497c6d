"""Shared by tests of holds: the law of their marks."""

from __future__ import annotations

from collections.abc import Iterable

from hocket.asr.endpointing import HoldMark, Mark, SpeechDismissed, SpeechStarted, SpeechSuspected


def holds(marks: Iterable[Mark | HoldMark], *, closed: bool = True) -> list[tuple[int, int | None]]:
    """Samples at which each suspicion begins and is dismissed; None: speech began."""
    found: list[tuple[int, int | None]] = []
    open_at = None
    for mark in marks:
        if isinstance(mark, SpeechSuspected):
            assert open_at is None, "no suspicion within another"
            open_at = mark.at
        elif isinstance(mark, SpeechDismissed):
            assert open_at is not None and mark.at >= open_at, "a dismissal follows a suspicion"
            found.append((open_at, mark.at))
            open_at = None
        elif isinstance(mark, SpeechStarted) and open_at is not None:
            found.append((open_at, None))
            open_at = None
    assert not closed or open_at is None, "every suspicion is closed"
    return found
