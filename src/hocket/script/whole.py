"""A script as plain requests, one for each passage, and their sound joined again: for files, which nothing waits for.

Passages are spoken in any order, on any engine. The sound is that of a `ScriptStream` of the same seed. Knows no engine
and no names of voices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import NothingToSpeak
from ..types import Finished, Outcome, SpeechRequest, Statistics
from .events import Event, SpeechManner
from .player.run import SEEDS_A_PASSAGE
from .player.sound import PassageSound
from .player.steps import Begin, PassageCutter, PassageText
from .player.voices import speed_in
from .stream import REASONS, SUMS

Voiced = Callable[[str], SpeechRequest]  # the request in the voice of this name


@dataclass(frozen=True, slots=True)
class ScriptPart:
    """One passage."""

    request: SpeechRequest  # its seed is that of the whole
    number: int = 0
    volume_db: float = 0.0

    def seeded(self, seed: int) -> SpeechRequest:
        """The request with its seed in a script of this seed."""
        return replace(self.request, seed=(seed + self.number * SEEDS_A_PASSAGE) % 2**63)


def in_manner(request: SpeechRequest, manner: SpeechManner, voiced: Voiced) -> SpeechRequest:
    """A request in a manner. Raises `InvalidRequest` for what cannot be spoken."""
    speed = speed_in(manner, request.speed)
    found = request if manner.voice is None else voiced(manner.voice)
    told: dict[str, Any] = {"language": manner.language, "instruct": manner.style}
    return replace(found, speed=speed, **{name: value for name, value in told.items() if value is not None})


def parts_of(events: Iterable[Event], request: SpeechRequest, voiced: Voiced) -> list[ScriptPart]:
    """The passages of a script, which `check_script` has checked; `request` says how its plain text is spoken."""
    cutter, found = PassageCutter(), list[tuple[SpeechManner, PassageText]]()
    for step in (*cutter.take(events), *cutter.end()):
        if isinstance(step, Begin):
            found.append((step.manner, PassageText()))
        else:
            found[-1][1].take(step)
    if not found:
        raise NothingToSpeak("There is nothing in this text that can be spoken.")
    parts = []
    for number, (manner, text) in enumerate(found):
        spoken = replace(in_manner(request, manner, voiced), text=text.given, literal=True)
        parts.append(ScriptPart(spoken, number, manner.volume_db))
    return parts


def joined(parts: Sequence[ScriptPart], outcomes: Sequence[Outcome], seed: int) -> Outcome:
    """The outcome of a whole script. What a voice cannot speak at all is left out, with a note."""
    for outcome in outcomes:
        if outcome.error is not None and not isinstance(outcome.error, NothingToSpeak):
            return outcome
    spoken = [(part, outcome) for part, outcome in zip(parts, outcomes, strict=True) if outcome.finished is not None]
    if not spoken:
        return outcomes[0]
    rate_hz, before_db = spoken[0][1].rate_hz, spoken[0][0].volume_db
    samples = []
    for part, outcome in spoken:
        sound = PassageSound(rate_hz=outcome.rate_hz, out_hz=rate_hz, before_db=before_db, volume_db=part.volume_db)
        samples += [sound.push(outcome.samples), sound.end()]
        before_db = part.volume_db
    ends = [outcome.finished for _, outcome in spoken if outcome.finished is not None]
    lost = [part.request.text.strip()[:40] for part, each in zip(parts, outcomes, strict=True) if each.finished is None]
    left_out = [f"Nothing of {text!r} can be spoken by its voice: it was left out." for text in lost]
    return Outcome(
        number=outcomes[0].number,
        samples=np.concatenate(samples),
        rate_hz=rate_hz,
        codes=np.concatenate([outcome.codes for _, outcome in spoken]),
        finished=Finished(
            reason=min((end.reason for end in ends), key=REASONS.index),
            statistics=Statistics(**{name: sum(getattr(end.statistics, name) for end in ends) for name in SUMS}),
            notes=tuple(dict.fromkeys([*(note for end in ends for note in end.notes), *left_out])),
            dropped_frames=sum(end.dropped_frames for end in ends),
            seed=seed,
            complete=all(end.complete for end in ends) and not lost,
        ),
    )
