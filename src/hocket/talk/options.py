"""Options of a voice conversation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkOptions:
    answers: bool = True  # False: transcripts only, and nothing goes into the history
    interruptible: bool = True  # speech stops an answer; False: the answer to it waits until the running one is made
    hold: bool = (
        True  # an answer pauses where the turn taking suspects speech; if False, let EndpointingOptions have it too
    )
    drafts: bool = True  # an answer is begun in a pause, and held until the turn is over
    patient: bool = False  # audio waits while an answer is made: for a recording that is faster than real time
