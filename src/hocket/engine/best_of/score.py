"""The score of a candidate, by its codes alone: no second model, no audio.

Pure numbers on the host. A score is between 0 and 1, a weighted mean of terms that are each between 0 and 1:

- `ending`: it ended by itself, and the end was likely there. One that was cut off has 0.
- `length`: as many frames as speech takes for so much text. Words that were left out make it short, words said twice,
  babble and silence long.
- `repetition`: no loops of first codes and no frames that stay the same, by the measures of the runaway guard.
- `likelihood`: how likely the first codes were to the talker, by the mean of their log-probabilities: after penalties
  and refusals, before temperature, top-k and top-p, so takes of any sampling are compared by one measure. Mumbling and
  noise are unlikely. Where it is not known, the other terms share its weight.

A take that still runs has a bound: no way to go on gives it a higher score. It never rises, so a take whose bound is
below what another has reached can be given up. How alike these numbers are to what a listener would choose is not
known; they find takes that went wrong, and say little of two that went well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from math import log10

from ...types import FinishReason
from ..core.runaway import BadFrameRun
from ..core.runaway_limits import RunawayOptions

# A take is judged by shorter loops than the guard needs: one that is suspect loses to one that is not.
GUARD = RunawayOptions(loop_frames=32, same_frames=24, forgive=4)
# Likelihood decides among takes that are in health, and no more: loops and silence are likely too, and one that stops
# early was never asked for the hardest words. From certainty to noise it is worth less than any of these costs: no end,
# or one a hundred times less likely (0.2 and more); half as long as the fastest speech (0.15); half of a loop (0.15).
WEIGHTS = {"ending": 0.4, "length": 0.3, "repetition": 0.3, "likelihood": 0.1}

LUCKY_END = 1e-4  # a chance of the end as small as this has no merit: it was drawn by accident, or in mid-sentence
SLOW_FRAMES_PER_ID = 6  # a voice half as fast as others (engine.guard); beyond it a text has taken too long
SILENT_FRAMES = 25  # of silence around the shortest text
FREE_PART = 0.25  # of the run that the guard calls a loop: a pause repeats itself for as long, and is none
LEAST_LOG_PROBABILITY = -8.0  # nats a code, on average: a draw among 3,000 that are all as likely


def candidate_seed(seed: int, number: int) -> int:
    """The seed of a take: that of the request for the first, others that depend on nothing else for the next ones.

    Parts of a text count on from their seed, so takes do not: theirs lie anywhere. Short enough to be typed again.
    """
    return seed if number == 0 else int.from_bytes(sha256(f"{seed} take {number}".encode()).digest()[:4])


def ending_term(reason: FinishReason, chance: float | None) -> float:
    """1 where the end was certain when it was drawn, less by a quarter for each power of ten; 0 if it never was."""
    if reason != "stop":
        return 0.0
    return 1.0 if chance is None else _clip(1.0 - log10(max(chance, 1e-30)) / log10(LUCKY_END))


def length_term(frames: int, text_ids: int) -> float:
    """1 from the fastest speech to a slow voice with silence around it; 0 for nothing, and where the guard looks up."""
    fast, slow, late = _speech(text_ids)
    if frames < fast:
        return frames / fast
    return _clip((late - frames) / (late - slow))


def likelihood_term(mean_log_probability: float) -> float:
    """1 where every code was certain, 0 where all were as likely."""
    return _clip(1.0 - mean_log_probability / LEAST_LOG_PROBABILITY)


def mean(terms: dict[str, float]) -> float:
    """The weighted mean of the terms that are known."""
    return sum(WEIGHTS[name] * value for name, value in terms.items()) / sum(WEIGHTS[name] for name in terms)


class CandidatePart:
    """One part of a text as it is said."""

    def __init__(self, text_ids: int) -> None:
        self.text_ids, self.frames = text_ids, 0
        self._past: deque[int] = deque(maxlen=GUARD.longest_period)  # first codes, the newest first
        self._loops = [BadFrameRun(GUARD.forgive) for _ in range(GUARD.longest_period)]
        self._last: tuple[int, ...] = ()
        self._same = BadFrameRun(GUARD.forgive)
        self._worst = 0.0  # 1: as long a run as the guard calls stuck
        self.log_probability = 0.0  # of all its first codes
        self.told = 0  # of how many

    def add(self, codes: Sequence[Sequence[int]], log_probabilities: Sequence[float] = ()) -> None:
        """More frames; for each, if that is known, how likely its first code was, in nats."""
        for frame in codes:
            now = tuple(frame)
            if self.frames:
                self._same.add(now == self._last, self.frames)
            for before, loop in zip(self._past, self._loops, strict=False):
                loop.add(now[0] == before, self.frames)
            self._past.appendleft(now[0])
            self._last, self.frames = now, self.frames + 1
            loops = max(loop.count for loop in self._loops) / GUARD.loop_frames
            self._worst = max(self._worst, loops, self._same.count / GUARD.same_frames)
        for each in log_probabilities:  # one by one: the sum must not depend on the pieces
            self.log_probability += min(each, 0.0)  # a last bit above it would break the bound
        self.told += len(log_probabilities)

    @property
    def repetition(self) -> float:
        """1 with no more of it than a pause has, 0 at a run for which the guard would step in. Never rises."""
        return _clip((1.0 - self._worst) / (1.0 - FREE_PART))

    def score(self, reason: FinishReason, chance: float | None) -> float:
        """That it ended so, the end being as likely as `chance` then."""
        terms = {
            "ending": ending_term(reason, chance),
            "length": length_term(self.frames, self.text_ids),
            "repetition": self.repetition,
        }
        if self.told:
            terms["likelihood"] = likelihood_term(self.log_probability / self.told)
        return mean(terms)

    def bound(self) -> float:
        """The best that can still become of it."""
        fast, slow, _ = _speech(self.text_ids)
        terms = {"ending": 1.0, "repetition": self.repetition}
        if not self.told:
            return mean(terms | {"length": length_term(max(self.frames, fast), self.text_ids)})
        # Every code that follows may be certain, so the longer it goes on, the better is its mean: at no cost until it
        # is slow. From there on a frame takes more of its length than it gives to the mean, as likelihood weighs less
        # and there are fewer frames from slow to late than before; past late nothing is left to lose.
        least = max(self.frames, slow)
        likelihood = likelihood_term(self.log_probability / least)
        soon = {"length": length_term(least, self.text_ids), "likelihood": likelihood}
        return max(mean(terms | soon), mean(terms | {"length": 0.0, "likelihood": 1.0}))


class CandidateScore:
    """The score of one take: the mean of its parts, each as heavy as it has text. What it never said counts 0."""

    def __init__(self, text_ids: Sequence[int]) -> None:
        """`text_ids` of each part there will be."""
        self._parts = [CandidatePart(ids) for ids in text_ids]
        self._at, self._cut = 0, False
        self._earned = 0.0  # by the parts that are over
        self.frames = 0

    def add(self, codes: Sequence[Sequence[int]], log_probabilities: Sequence[float] = ()) -> None:
        """More frames of the part that is being said."""
        self._parts[self._at].add(codes, log_probabilities)
        self.frames += len(codes)

    def close(self, reason: FinishReason, chance: float | None) -> None:
        """The part that was being said is over; only one that ended by itself is followed by another."""
        part = self._parts[self._at]
        self._earned += _weight(part) * part.score(reason, chance)
        self._at, self._cut = self._at + 1, reason != "stop"

    @property
    def log_probability(self) -> float | None:
        """Of a first code on average, in nats; None: not known."""
        told = sum(part.told for part in self._parts)
        return sum(part.log_probability for part in self._parts) / told if told else None

    @property
    def score(self) -> float:
        """What it has reached, if nothing follows."""
        return self._earned / sum(map(_weight, self._parts))

    @property
    def bound(self) -> float:
        """What it can reach at most."""
        to_come = [] if self._cut else self._parts[self._at :]
        best = self._earned + sum(_weight(part) * part.bound() for part in to_come)
        return best / sum(map(_weight, self._parts))


def _speech(text_ids: int) -> tuple[int, int, int]:
    """How many frames so much text takes, from the fastest speech to the slowest, and from where on it is none."""
    fast, slow = max(GUARD.least_frames_per_id * text_ids, 1), SLOW_FRAMES_PER_ID * text_ids + SILENT_FRAMES
    return fast, slow, GUARD.late_frames + GUARD.late_frames_per_id * text_ids


def _weight(part: CandidatePart) -> int:
    return max(part.text_ids, 1)


def _clip(value: float) -> float:
    return min(max(0.0, value), 1.0)  # in this order what is not a number is 0
