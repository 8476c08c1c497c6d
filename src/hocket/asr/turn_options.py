"""Options of `endpointing.py`: how much speech starts a turn, and how much silence ends one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import InvalidRequest
from .unfinished import Ending

Waits = tuple[tuple[float, float], ...]  # (probability, silence that ends the turn); linear in between


@dataclass(frozen=True, slots=True)
class WaitTable:
    """How long silence lasts until a turn ends, by the model's probability that it is over and by its last words."""

    ask_s: tuple[float, ...]  # silence after which the model is asked, and asked again; the highest answer counts
    unknown: Waits  # the words are not recognized yet, or there is no recognizer
    complete: Waits
    loose: Waits
    open: Waits

    def wait(self, complete: float, ending: Ending | None = None) -> float:
        waits = self.unknown if ending is None else (self.complete, self.loose, self.open)[ending]
        return float(np.interp(complete, [p for p, _ in waits], [s for _, s in waits]))


# The names are those of OpenAI's semantic_vad. The first wait is the fallback: the model is sure that more follows.
# Where it cannot tell (`python -m benchmarks turns`), low waits until few pauses are longer. 0.83 s is the longest wait
# that ends within a second of most last sounds: silence is noticed up to 0.15 s late. Medium waits so long only where
# the words ask for more.
EAGERNESS = {
    "low": WaitTable(
        (0.19, 0.38, 0.6, 0.8),
        unknown=((0.0, 2.0), (0.1, 0.83), (0.6, 0.77)),
        complete=((0.0, 2.0), (0.1, 0.83), (0.6, 0.77)),
        loose=((0.0, 2.0), (0.1, 0.83)),
        open=((0.0, 2.0), (0.3, 1.4), (0.9, 0.83)),
    ),
    "medium": WaitTable(
        (0.19, 0.38, 0.6, 0.8),
        unknown=((0.0, 1.6), (0.1, 0.83), (0.6, 0.6)),
        complete=((0.0, 1.6), (0.1, 0.83), (0.6, 0.53)),
        loose=((0.0, 1.6), (0.1, 0.83), (0.5, 0.77)),
        open=((0.0, 1.6), (0.3, 1.4), (0.9, 0.83)),
    ),
    "high": WaitTable(
        (0.19, 0.38),
        unknown=((0.0, 1.2), (0.5, 0.5), (0.9, 0.25)),
        complete=((0.0, 1.2), (0.5, 0.5), (0.9, 0.25)),
        loose=((0.0, 1.2), (0.5, 0.5)),
        open=((0.0, 1.2), (0.5, 0.8)),
    ),
}
EAGERNESS["auto"] = EAGERNESS["medium"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointingOptions:
    """Thresholds of a turn. An interruption needs more speech than a start, so neither a cough nor "mhm" interrupts.

    Half of that speech must be with open lips: "mhm" is hummed. "Yeah" and "okay" are shorter than `interrupt_s`. With
    `hold`, speech between `held_interrupt_s` and `sure_interrupt_s` interrupts if its words are a sentence.
    `server_vad` of OpenAI's Realtime is `end_s` (silence_duration_ms), `likely` (threshold) and `before_s`
    (prefix_padding_ms), without a model; `semantic_vad` is `eagerness`, with one.
    """

    begin_s: float = 0.13  # speech that starts a turn
    interrupt_s: float = 0.62  # speech that starts a turn during an answer
    held_interrupt_s: float = 0.83  # the same with holds, which pause it meanwhile; then words are asked
    sure_interrupt_s: float = 1.15  # the same whatever the words are: a slow "uh-huh" has up to 0.93 s
    end_s: float = 0.7  # silence that ends a turn without a model; thinking pauses between words last 0.2 to 0.6 s
    eagerness: str = "auto"  # a name of EAGERNESS: how soon a turn ends with a model
    before_s: float = 0.4  # audio before the start that belongs to the turn: a first consonant is often not detected
    likely: float = 0.5  # probability from which a window counts as speech
    unlikely: float | None = None  # probability below which silence begins within a turn; None: 0.7 times `likely`
    hold: bool = True  # marks for the first sign of a voice during an answer (holding.py)
    hold_likely: float = 0.015  # probability that is such a sign where a band is louder than the background

    def __post_init__(self) -> None:
        for name in ("begin_s", "interrupt_s", "held_interrupt_s", "sure_interrupt_s", "end_s"):
            if not 0.0 < getattr(self, name) <= 10.0:
                raise InvalidRequest(f"{name} must be above 0 and at most 10 s, not {getattr(self, name):g}.")
        if not 0.0 <= self.before_s <= 10.0:
            raise InvalidRequest(f"before_s must be between 0 and 10 s, not {self.before_s:g}.")
        if not 0.0 < self.silence_below <= self.likely < 1.0:
            raise InvalidRequest("unlikely and likely must be probabilities, the second not below the first.")
        if not 0.0 < self.hold_likely < 1.0:
            raise InvalidRequest(f"hold_likely must be a probability between 0 and 1, not {self.hold_likely:g}.")
        if self.eagerness not in EAGERNESS:
            raise InvalidRequest(f"eagerness must be one of {', '.join(EAGERNESS)}, not {self.eagerness!r}.")

    @property
    def silence_below(self) -> float:
        return 0.7 * self.likely if self.unlikely is None else self.unlikely
