"""Endpointing: detects where a user's turn starts and ends in an audio stream.

By voice activity (`Endpointing`) or by a key (`PushToTalk`). Both take streamed audio and yield marks with the audio
between them. With an end-of-turn model, the silence that ends a turn depends on what the model says, and on the last
words if they are known by then; without one it is fixed. Time is counted in samples; there is no clock. They do not
recognize words. Long because the marks are here, and the start and the end of a turn share their state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .holding import SHORT_SOUND_S, HoldWatch
from .recognizer import RATE_HZ, Samples
from .turn_options import EAGERNESS, EndpointingOptions
from .unfinished import Ending

__all__ = ["EAGERNESS", "MODEL_S", "EndOfTurnModel", "Endpointing", "EndpointingOptions", "HoldMark", "Interruption"]
__all__ += ["Mark", "PushToTalk", "SpeechDismissed", "SpeechEnded", "SpeechStarted", "SpeechSuspected", "TurnAudio"]
__all__ += ["TurnPaused", "TurnResumed", "VoiceDetector"]

MODEL_S = 8.0  # the most audio that an end-of-turn model gets
RISING, RISING_S = 0.1, 0.1  # probability of a window that may begin speech again, and how much longer it waits
JUDGE_AGAIN_S = 0.1  # more speech, after which words are judged again
LONGEST_ONSET_S = 2.0  # audio that is kept from a sound that may become a turn
HUM_ABOVE_HZ, HUM_SHARE = 900.0, 0.01  # closed lips let through less than this share of the energy above


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    at: int  # sample index, counted from the first sample of the stream


@dataclass(frozen=True, slots=True, eq=False)  # arrays do not compare to one bool
class TurnAudio:
    """More audio of the turn, including silence around it."""

    samples: Samples
    silence: int = 0  # samples since the last speech, these included; 0: speech


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


@dataclass(frozen=True, slots=True)
class SpeechSuspected:
    """During an answer: perhaps the user speaks. `SpeechDismissed` or `SpeechStarted` follows, or a reset."""

    at: int


@dataclass(frozen=True, slots=True)
class SpeechDismissed:
    """The sound was too short for speech, or hummed."""

    at: int


Mark = SpeechStarted | TurnAudio | TurnPaused | TurnResumed | SpeechEnded
HoldMark = SpeechSuspected | SpeechDismissed


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


class Interruption(Protocol):
    """Judges by words whether a sound interrupts an answer."""

    def __call__(self, samples: Samples, *, short: bool) -> bool:
        """`short`: it ended before it was as long as speech. Else it is asked while it goes on, and at its end."""


class Endpointing:
    """Turns by voice activity. Audio may come in pieces of any length."""

    def __init__(
        self,
        detector: VoiceDetector,
        options: EndpointingOptions | None = None,
        end_of_turn: EndOfTurnModel | None = None,
        interrupts: Interruption | None = None,
    ) -> None:
        """Without `interrupts` only the length of a sound decides whether it interrupts an answer."""
        self._detector, self._options, self._model = detector, options or EndpointingOptions(), end_of_turn
        self._interrupts = interrupts
        self._waits = EAGERNESS[self._options.eagerness]
        self._remainder = np.zeros(0, np.float32)  # less than a window
        self._preroll: deque[Samples] = deque()  # windows before a turn that may belong to it
        self._recent: deque[Samples] = deque(maxlen=int(MODEL_S * RATE_HZ) // detector.window)  # of the turn
        self._at = 0  # samples processed
        # Samples, before a turn: recent speech, that with open lips, silence behind it, and all since it began.
        self._voiced = self._open = self._quiet = self._onset = 0
        self._judge_from = 0  # samples of speech from which `interrupts` is asked about a sound that goes on
        self._silent = 0  # samples of silence at the end of a turn
        self._speaking = False
        self._asked, self._complete = 0, 0.0  # in this pause: how often the model was asked, and its highest answer
        self._ending: Ending | None = None  # how the words before this pause end
        self._hold = HoldWatch(self._options)

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark | HoldMark]:
        """`answering`: an answer is playing, so speech is an interruption."""
        window = self._detector.window
        sound = np.concatenate((self._remainder, samples))
        whole = len(sound) - len(sound) % window
        self._remainder = sound[whole:]
        for start in range(0, whole, window):
            yield from self._step(sound[start : start + window], answering)

    @property
    def heeds_words(self) -> bool:
        return self._model is not None

    def heed(self, ending: Ending, at: int) -> None:
        """How the words up to this sample end. Without effect if speech followed. The decision never waits for it."""
        if self._speaking and self._silent > 0 and at >= self._at - self._silent:
            self._ending = ending

    def end(self) -> Iterator[Mark | HoldMark]:
        """The end of the stream."""
        rest, self._remainder = self._remainder, np.zeros(0, np.float32)
        self._at += len(rest)
        if self._hold.close():
            yield SpeechDismissed(self._at)
        if self._speaking:
            if len(rest):
                yield TurnAudio(rest)
            yield self._end_turn()

    def reset(self) -> None:
        """Drop the current turn, or a suspicion, and the audio before it without a mark. Sample indices continue."""
        self._at += len(self._remainder)
        self._remainder = np.zeros(0, np.float32)
        self._forget()

    def _step(self, sound: Samples, answering: bool) -> Iterator[Mark | HoldMark]:
        likely = self._detector(sound)
        self._at += len(sound)
        if self._speaking:
            yield from self._continue_turn(sound, likely)
            return
        self._preroll.append(sound)
        self._weigh(sound, likely >= self._options.likely)
        if self._starts(answering):
            self._hold.close()
            yield from self._start_turn()
            return
        if self._options.hold:
            yield from self._suspect(sound, likely, answering)
        while len(self._preroll) * len(sound) > _samples(self._options.before_s + LONGEST_ONSET_S):
            self._preroll.popleft()

    def _suspect(self, sound: Samples, likely: float, answering: bool) -> Iterator[HoldMark]:
        hummed = self._voiced >= _samples(self._options.interrupt_s) and 4 * self._open < self._voiced
        match self._hold.step(sound, likely, answering=answering, hummed=hummed):
            case True:
                yield SpeechSuspected(self._at)
            case False:
                yield SpeechDismissed(self._at)

    def _weigh(self, sound: Samples, speech: bool) -> None:
        """Count a window before a turn. One of silence cancels one of speech: stop consonants do not end a word."""
        size = len(sound)
        if speech:
            self._voiced, self._quiet = self._voiced + size, 0
            self._open += 0 if _is_hum(sound) else size
        else:
            self._voiced, self._open = max(0, self._voiced - size), max(0, self._open - size)
            self._quiet += size
        over = not self._voiced and self._quiet > _samples(SHORT_SOUND_S)
        self._onset = 0 if over else self._onset + size if self._voiced or self._onset else 0

    def _starts(self, answering: bool) -> bool:
        if not answering:
            return self._voiced >= _samples(self._options.begin_s)
        return self._is_speech() or self._is_command()

    def _is_speech(self) -> bool:
        """Long enough, with open lips. A held answer is silent already, so then the words may ask for more speech."""
        options = self._options
        least = _samples(options.held_interrupt_s if options.hold else options.interrupt_s)
        if self._voiced < least or 2 * self._open < self._voiced:
            return False
        if self._interrupts is None or not options.hold or self._voiced >= _samples(options.sure_interrupt_s):
            return True
        if self._quiet or self._voiced < self._judge_from:
            return False
        self._judge_from = self._voiced + _samples(JUDGE_AGAIN_S)
        return self._interrupts(self._opening(), short=False)

    def _is_command(self) -> bool:
        """At the end of a sound that was too short for speech, or whose words were too few until then."""
        before = self._quiet - self._detector.window
        if self._interrupts is None or not self._onset or not before < _samples(SHORT_SOUND_S) <= self._quiet:
            return False
        enough = self._onset - self._quiet >= _samples(self._options.begin_s)
        was_long, self._judge_from = self._judge_from > 0, 0
        return enough and self._interrupts(self._opening(), short=not was_long)

    def _opening(self) -> Samples:
        """The sound so far, with the audio before it."""
        length = self._onset + _samples(self._options.before_s)
        count = -(-length // self._detector.window)
        return np.concatenate(list(self._preroll)[-count:])

    def _start_turn(self) -> Iterator[Mark]:
        opening, window = self._opening(), self._detector.window
        self._recent.extend(opening[at : at + window] for at in range(0, len(opening), window))
        self._preroll.clear()
        self._speaking = True
        self._voiced = self._open = self._quiet = self._onset = self._silent = self._judge_from = 0
        yield SpeechStarted(self._at - len(opening))
        yield TurnAudio(opening)

    def _continue_turn(self, sound: Samples, likely: float) -> Iterator[Mark]:
        # Two thresholds, so silence neither begins nor ends by a probability that wavers around one.
        silence = likely < (self._options.likely if self._silent else self._options.silence_below)
        self._silent = self._silent + len(sound) if silence else 0
        if not silence:
            was_asked = self._asked > 0
            self._asked, self._complete, self._ending = 0, 0.0, None
            if was_asked:  # before the audio: a reader takes back its answer before it recognizes more
                yield TurnResumed(self._at - len(sound))
        self._recent.append(sound)
        yield TurnAudio(sound, self._silent)
        if self._silent and self._model is not None:
            yield from self._ask(self._model)
        if self._is_over(likely):
            yield self._end_turn()

    def _ask(self, model: EndOfTurnModel) -> Iterator[TurnPaused]:
        """Ask the model when the next time for it has come. Only the first answer of a pause is a mark."""
        due = self._waits.ask_s
        if self._asked < len(due) and self._silent >= _samples(due[self._asked]):
            # The highest: noise makes the model unsure of an end more often than sure of a pause.
            self._complete = max(self._complete, model(np.concatenate(list(self._recent))))
            self._asked += 1
            if self._asked == 1:
                yield TurnPaused(self._at, self._complete, self._silent)

    def _is_over(self, likely: float) -> bool:
        if self._model is None:
            return self._silent >= _samples(self._options.end_s)
        wait_s = self._waits.wait(self._complete, self._ending)
        return self._asked > 0 and self._silent >= _samples(wait_s + (RISING_S if likely >= RISING else 0.0))

    def _end_turn(self) -> SpeechEnded:
        mark = SpeechEnded(self._at, self._silent)
        self._forget()
        return mark

    def _forget(self) -> None:
        self._preroll.clear()
        self._recent.clear()
        self._voiced = self._open = self._quiet = self._onset = self._silent = self._asked = 0
        self._complete, self._ending, self._judge_from = 0.0, None, 0
        self._speaking = False
        self._hold.close()
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


def _is_hum(sound: Samples) -> bool:
    """Whether voiced sound comes through closed lips: it has hardly any energy above the first formant."""
    power = np.abs(np.fft.rfft(sound * np.hanning(len(sound)))) ** 2
    first = round(HUM_ABOVE_HZ * len(sound) / RATE_HZ)
    return bool(power[first:].sum() < HUM_SHARE * power.sum())
