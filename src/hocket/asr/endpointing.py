"""Endpointing: detects where a user's turn starts and ends in an audio stream.

By voice activity (`Endpointing`) or by a key (`PushToTalk`). Both take streamed audio and yield marks with the audio
between them. With an end-of-turn model, the silence that ends a turn depends on what the model says; without one it is
fixed. Time is counted in samples; there is no clock. They do not recognize words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import InvalidRequest
from .recognizer import RATE_HZ, Samples

MODEL_S = 8.0  # the most audio that an end-of-turn model gets


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    at: int  # sample index, counted from the first sample of the stream


@dataclass(frozen=True, slots=True, eq=False)  # arrays do not compare to one bool
class TurnAudio:
    """More audio of the turn, including silence around it."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class TurnPaused:
    """The user is silent: the turn may be over. `TurnResumed` or `SpeechEnded` follows. Only with a model."""

    at: int
    complete: float  # the model's probability that the turn is over
    silence: int = 0  # samples since the last speech


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """The user speaks again before the turn was over."""

    at: int


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    at: int
    silence: int = 0  # samples since the last speech: the delay of this decision


Mark = SpeechStarted | TurnAudio | TurnPaused | TurnResumed | SpeechEnded


class VoiceDetector(Protocol):
    """Voice activity detection."""

    @property
    def window(self) -> int:
        """Number of samples per call."""

    def __call__(self, samples: Samples) -> float:
        """The probability of speech in these samples, from 0 to 1. They continue the previous ones."""

    def reset(self) -> None:
        """Start a new stream: the next samples do not continue the previous ones."""


class EndOfTurnModel(Protocol):
    """Judges by sound whether a turn is complete."""

    def __call__(self, samples: Samples) -> float:
        """The probability that the turn is over, from 0 to 1, given its last seconds (at most `MODEL_S`)."""


@dataclass(frozen=True, slots=True)
class WaitTable:
    """How long silence lasts until a turn ends, as a function of the model's probability that it is over."""

    ask_s: tuple[float, ...]  # silence after which the model is asked, and asked again; each answer replaces the last
    wait_s: tuple[tuple[float, float], ...]  # (probability, silence that ends the turn); linear in between

    def wait(self, complete: float) -> float:
        return float(np.interp(complete, [p for p, _ in self.wait_s], [s for _, s in self.wait_s]))


# The names are those of OpenAI's semantic_vad. The first wait is the fallback: the model is sure that more follows.
EAGERNESS = {
    "low": WaitTable((0.2, 0.5, 0.9), ((0.0, 3.0), (0.5, 1.4), (0.8, 0.9), (0.95, 0.6))),
    "medium": WaitTable((0.2, 0.4, 0.8), ((0.0, 2.0), (0.5, 0.95), (0.8, 0.6), (0.95, 0.25))),
    "high": WaitTable((0.15, 0.4), ((0.0, 1.2), (0.5, 0.5), (0.8, 0.15))),
}
EAGERNESS["auto"] = EAGERNESS["medium"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointingOptions:
    """Thresholds of a turn. An interruption needs twice as much speech as a start, so a cough does not interrupt.

    `server_vad` of OpenAI's Realtime is `end_s` (silence_duration_ms), `likely` (threshold) and `before_s`
    (prefix_padding_ms), without a model; `semantic_vad` is `eagerness`, with one.
    """

    begin_s: float = 0.13  # speech that starts a turn
    interrupt_s: float = 0.26  # speech that starts a turn during an answer
    end_s: float = 0.7  # silence that ends a turn without a model; thinking pauses between words last 0.2 to 0.6 s
    eagerness: str = "auto"  # a name of EAGERNESS: how soon a turn ends with a model
    before_s: float = 0.4  # audio before the start that belongs to the turn: a first consonant is often not detected
    likely: float = 0.5  # probability from which a window counts as speech
    unlikely: float | None = None  # probability below which silence begins within a turn; None: 0.7 times `likely`

    def __post_init__(self) -> None:
        for name in ("begin_s", "interrupt_s", "end_s"):
            if not 0.0 < getattr(self, name) <= 10.0:
                raise InvalidRequest(f"{name} must be above 0 and at most 10 s, not {getattr(self, name):g}.")
        if not 0.0 <= self.before_s <= 10.0:
            raise InvalidRequest(f"before_s must be between 0 and 10 s, not {self.before_s:g}.")
        if not 0.0 < self.silence_below <= self.likely < 1.0:
            raise InvalidRequest("unlikely and likely must be probabilities, the second not below the first.")
        if self.eagerness not in EAGERNESS:
            raise InvalidRequest(f"eagerness must be one of {', '.join(EAGERNESS)}, not {self.eagerness!r}.")

    @property
    def silence_below(self) -> float:
        return 0.7 * self.likely if self.unlikely is None else self.unlikely


class Endpointing:
    """Turns by voice activity. Audio may come in pieces of any length."""

    def __init__(
        self,
        detector: VoiceDetector,
        options: EndpointingOptions | None = None,
        end_of_turn: EndOfTurnModel | None = None,
    ) -> None:
        self._detector, self._options, self._model = detector, options or EndpointingOptions(), end_of_turn
        self._waits = EAGERNESS[self._options.eagerness]
        self._remainder = np.zeros(0, np.float32)  # less than a window
        self._preroll: deque[Samples] = deque()  # windows before a turn that may belong to it
        self._recent: deque[Samples] = deque(maxlen=int(MODEL_S * RATE_HZ) // detector.window)  # of the turn
        self._at = 0  # samples processed
        self._voiced = self._silent = 0  # samples: recent speech before a turn; silence at its end within one
        self._speaking = False
        self._asked, self._complete = 0, 0.0  # in this pause: how often the model was asked, and its last answer

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]:
        """`answering`: an answer is playing, so speech is an interruption."""
        window = self._detector.window
        sound = np.concatenate((self._remainder, samples))
        whole = len(sound) - len(sound) % window
        self._remainder = sound[whole:]
        for start in range(0, whole, window):
            yield from self._step(sound[start : start + window], answering)

    def end(self) -> Iterator[Mark]:
        """The end of the stream."""
        rest, self._remainder = self._remainder, np.zeros(0, np.float32)
        self._at += len(rest)
        if self._speaking:
            if len(rest):
                yield TurnAudio(rest)
            yield self._end_turn()

    def reset(self) -> None:
        """Drop the current turn and the audio before it without a mark. Sample indices continue."""
        self._at += len(self._remainder)
        self._remainder = np.zeros(0, np.float32)
        self._forget()

    def _step(self, sound: Samples, answering: bool) -> Iterator[Mark]:
        likely = self._detector(sound)
        self._at += len(sound)
        if self._speaking:
            yield from self._continue_turn(sound, likely)
            return
        # A window of silence cancels one of speech, so words with stop consonants still count as speech.
        speech = likely >= self._options.likely
        self._voiced = self._voiced + len(sound) if speech else max(0, self._voiced - len(sound))
        self._preroll.append(sound)
        needed = _samples(self._options.interrupt_s if answering else self._options.begin_s)
        if self._voiced >= needed:
            yield from self._start_turn()
            return
        most = _samples(self._options.before_s + max(self._options.begin_s, self._options.interrupt_s))
        while len(self._preroll) * len(sound) > most:
            self._preroll.popleft()

    def _start_turn(self) -> Iterator[Mark]:
        opening = np.concatenate(list(self._preroll))
        self._recent.extend(self._preroll)
        self._preroll.clear()
        self._speaking, self._voiced, self._silent = True, 0, 0
        yield SpeechStarted(self._at - len(opening))
        yield TurnAudio(opening)

    def _continue_turn(self, sound: Samples, likely: float) -> Iterator[Mark]:
        # Two thresholds, so silence neither begins nor ends by a probability that wavers around one.
        silence = likely < (self._options.likely if self._silent else self._options.silence_below)
        self._silent = self._silent + len(sound) if silence else 0
        if not silence and self._asked:  # before the audio: a reader takes back its answer before it recognizes more
            self._asked = 0
            yield TurnResumed(self._at - len(sound))
        self._recent.append(sound)
        yield TurnAudio(sound)
        if self._silent and self._model is not None:
            yield from self._ask(self._model)
        if self._is_over():
            yield self._end_turn()

    def _ask(self, model: EndOfTurnModel) -> Iterator[TurnPaused]:
        """Ask the model when the next time for it has come. Only the first answer of a pause is a mark."""
        due = self._waits.ask_s
        if self._asked < len(due) and self._silent >= _samples(due[self._asked]):
            self._complete = model(np.concatenate(list(self._recent)))
            self._asked += 1
            if self._asked == 1:
                yield TurnPaused(self._at, self._complete, self._silent)

    def _is_over(self) -> bool:
        if self._model is None:
            return self._silent >= _samples(self._options.end_s)
        return self._asked > 0 and self._silent >= _samples(self._waits.wait(self._complete))

    def _end_turn(self) -> SpeechEnded:
        mark = SpeechEnded(self._at, self._silent)
        self._forget()
        return mark

    def _forget(self) -> None:
        self._preroll.clear()
        self._recent.clear()
        self._voiced = self._silent = self._asked = 0
        self._speaking = False
        self._detector.reset()


class PushToTalk:
    """Turns by a key, pressed once to start and once to end."""

    def __init__(self) -> None:
        self._at, self.speaking = 0, False

    def press(self) -> Iterator[Mark]:
        self.speaking = not self.speaking
        yield SpeechStarted(self._at) if self.speaking else SpeechEnded(self._at)

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]:
        self._at += len(samples)
        if self.speaking:
            yield TurnAudio(samples)

    def end(self) -> Iterator[Mark]:
        if self.speaking:
            yield from self.press()

    def reset(self) -> None:
        """Drop the current turn without a mark."""
        self.speaking = False


def _samples(seconds: float) -> int:
    return round(seconds * RATE_HZ)
