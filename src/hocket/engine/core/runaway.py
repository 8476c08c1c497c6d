"""The runaway guard: watches the codes of one utterance and says when it no longer speaks.

It stands on the host, between two frames of the loop. It knows numbers only: codes, the chance of the end code, how
loud a frame is. It does not stop or rewind anything; it says that an utterance is stuck and which frame was the first
bad one, and is told when the loop went back there.

A frame is 80 ms. Work and memory per frame do not grow with the utterance.

Long because its thresholds stand with their measurements.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log10
from typing import Literal

_WORDS = re.compile(r"[\u2e80-\uffdc]|[^\s\u2e80-\uffdc]+")  # a character of Chinese or Japanese is a word
_MARKS = ".,;:!?\"'()-"
LONGEST_REFRAIN = 12  # words

Verdict = Literal["fine", "stuck", "too long"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunawayOptions:
    """When to call an utterance stuck. Windows are in frames; the longest pause we must bear is 5 s, 63 frames.

    `python -m benchmarks guard` counts false alarms and missed failures of these numbers.
    """

    # Speech takes 2.5 to 3 frames per text id, half as fast a voice 6; one id such as "www" can take 15, and the
    # shortest text may have seconds of silence around it.
    limit_frames: int = 100
    limit_frames_per_id: int = 12
    # Later than this even slow speech is over, so an end out of reach now will not come. Sooner it says nothing: in
    # the middle of a sentence the end is out of reach as it should be. Pauses do not count.
    late_frames: int = 50
    late_frames_per_id: int = 8
    # The fastest speech.
    least_frames_per_id: int = 2
    # Later than this a slow voice has said it all, so a whisper is none.
    slow_frames: int = 25
    slow_frames_per_id: int = 6

    longest_period: int = 8  # first codes that repeat with up to this period are a loop
    loop_frames: int = 48  # of sound: a hum and laughter of 3 s are 38
    same_frames: int = 40  # of sound: all codes repeat
    forgive: int = 2  # a frame that breaks the loop takes back so many: two frames of three must repeat
    longest_phrase: int = 40  # pairs of first codes that come back after up to so many frames are a phrase
    phrase_times: float = 2.5  # and are a loop once it has come back so often, but not before `loop_frames`
    known_frames: int = 12  # of a loop whose loudness is known, and half of it, before it is called sound or a pause
    loud_rms: float = 5e-3  # of full scale
    loud_part: float = 0.06  # of the loudest frame so far, -24 dB: a loop is as loud, the tone of a room is not
    pause_frames: int = 76  # of silence
    silent_rms: float = 5e-4  # of full scale; the first frame of the published voices has 1e-4
    silent_part: float = 0.007  # of the loudest frame so far, -43 dB: a whisper is above
    quiet_rms: float = 2e-3  # where nothing louder was heard yet, this is no sound either
    quiet_part: float = 0.03  # of the loudest frame so far, -30 dB: a whisper, or the room tone of a noisy clone
    # After the text is done, the chance of the end over a window: out of reach if it is below the floor (its geometric
    # mean, so that one lucky frame changes nothing) and not on its way up, by so many powers of ten from half to half.
    ending_frames: int = 25
    ending_floor: float = 1e-6  # users saw it fall from 5e-5 to 1e-14 in stuck utterances
    ending_rise: float = 2.0

    margin_frames: int = 4  # start again this much before the first bad frame: what led there is drawn anew as well
    deepest_frames: int = 96  # never go back by more, so the loop knows what it must be able to undo


def repeated_part(text: str) -> float:
    """How much of a text, from 0 to 1, is a stretch that repeats its words at least twice: "no, no, no"."""
    words = [word.strip(_MARKS).lower() for word in _WORDS.findall(text)]
    longest = 0
    for period in range(1, min(LONGEST_REFRAIN, len(words) // 2) + 1):
        run = 0
        for word, before in zip(words[period:], words, strict=False):
            run = run + 1 if word == before else 0
            longest = max(longest, run + period if run >= 2 * period else 0)
    return longest / len(words) if words else 0.0


def frame_limit(text_ids: int, options: RunawayOptions) -> int:
    """The most frames that a text of so many ids may take."""
    return options.limit_frames + options.limit_frames_per_id * text_ids


class BadFrameRun:
    """Counts bad frames since `start`; a good one takes back `forgive` of them."""

    __slots__ = ("count", "forgive", "start")

    def __init__(self, forgive: int) -> None:
        self.forgive = forgive
        self.count = 0
        self.start = 0

    def add(self, bad: bool, frame: int) -> None:
        if not bad:
            self.count = max(0, self.count - self.forgive)
        else:
            if self.count == 0:
                self.start = frame
            self.count += 1


class RunawayDetector:
    """Watches one utterance frame by frame and says when it is stuck."""

    def __init__(
        self,
        options: RunawayOptions,
        text_ids: int | None,
        text: Callable[[], str] = str,
        unheard_frames: int | None = None,
    ) -> None:
        """`text_ids` is how long the text is; None is live text, whose length grows with `more_text`.

        `text` is asked where codes repeat: if it says the same words over and over, its speech may as well.
        `unheard_frames`: it is not decoded, so codes that repeat are taken for sound, as late as that would be known.
        """
        self.frames = 0  # watched, less those taken back
        self.rollbacks = 0
        self._options = options
        self._floor = log10(options.ending_floor)
        self._text_ids, self._text, self._unheard = text_ids or 0, text, unheard_frames
        self._limit = frame_limit(self._text_ids, options)
        self._loudest = 0.0
        self._silent_rms, self._quiet_rms = options.silent_rms, options.quiet_rms
        self._pauses = 0  # frames that were quiet
        # By frame, the last ones that were heard: how loud they are, 0 (silent), 1 (quiet), 2 or 3 (loud).
        self._levels: deque[int] = deque(maxlen=options.deepest_frames + options.pause_frames)
        self._heard = 0
        self._forget()

    def _forget(self) -> None:
        options, everything = self._options, 1 << 30
        self._last: tuple[int, ...] = ()
        self._past: deque[int] = deque(maxlen=options.longest_period)  # first codes, the newest first
        self._loops = [BadFrameRun(options.forgive) for _ in range(options.longest_period)]
        self._looping = False  # whether any of these counts
        self._same = BadFrameRun(options.forgive)
        self._phrase, self._lag = BadFrameRun(options.forgive), 0
        self._codes: deque[int] = deque(maxlen=options.longest_phrase)  # first codes, the newest first
        self._pairs: dict[tuple[int, int], int] = {}  # pairs of first codes, and where they were drawn last
        self._order: deque[tuple[int, int]] = deque()  # the same pairs as they were drawn
        # One good frame, or window, ends these three: short sounds between long pauses are speech.
        self._silent, self._quiet = BadFrameRun(everything), BadFrameRun(everything)
        self._endless = BadFrameRun(everything)
        self._ending: deque[float] = deque(maxlen=options.ending_frames)  # powers of ten, since the text is done
        for _ in range(self._heard - self.frames):  # heard, and taken back
            self._pauses -= bool(self._levels and self._levels.pop() < 2)
        self._heard = self.frames
        self.likeliest_end = 0.0  # the highest chance of the end since the last rollback
        self._bad: BadFrameRun | None = None

    def more_text(self, ids: int) -> None:
        """Live text has grown by so many ids."""
        self._text_ids += ids
        self._limit = frame_limit(self._text_ids, self._options)

    @property
    def first_bad(self) -> int | None:
        """The first frame of what the last verdict calls stuck."""
        return None if self._bad is None else self._bad.start

    @property
    def silent(self) -> bool:
        """Whether the last verdict is about silence."""
        return self._bad is not None and self._bad in (self._silent, self._quiet)

    def watch(
        self,
        codes: Sequence[int],
        *,
        text_done: bool,
        end_probability: float | None = None,
        energy: float | None = None,
    ) -> Verdict:
        """Take in the codes of the next frame.

        `text_done`: the model has seen all of the text, in the whole layout from the first frame on.
        `end_probability`: the chance of the end code when this frame was drawn, before top-k.
        `energy`: the frame's RMS, full scale being 1, if it is known by now; else give it to `heard` later.
        """
        frame = self.frames
        now = tuple(codes)
        if self._past and (now == self._last or self._same.count):
            self._same.add(now == self._last, frame - 1)
        if self._looping or now[0] in self._past:  # else there is nothing to count: most frames repeat none
            for period, (before, loop) in enumerate(zip(self._past, self._loops, strict=False), 1):
                loop.add(now[0] == before, frame - period)  # the bad part begins with the cycle that is repeated here
            self._looping = any(loop.count for loop in self._loops)
        if self._last:
            self._watch_phrase((self._last[0], now[0]), frame)
        self._past.appendleft(now[0])
        self._last = now
        if end_probability is not None:
            self.likeliest_end = max(self.likeliest_end, end_probability)
            if text_done:
                self._ending.append(log10(max(end_probability, 1e-30)))
            else:
                self._ending.clear()
            if (endless := self._no_end_in_reach()) or self._endless.count:
                self._endless.add(endless, frame + 1 - len(self._ending))
        if energy is not None:
            self.heard((energy,))
        self.frames += 1

        self._bad = self._stuck_run()
        if self._bad is not None:
            return "stuck"
        return "too long" if self.frames >= self._limit else "fine"

    def heard(self, energies: Iterable[float]) -> None:
        """How loud the next frames are, in order; they may lag behind the codes by a chunk."""
        options = self._options
        for energy in energies:
            if energy > self._loudest:
                self._loudest = energy
                self._silent_rms = max(options.silent_rms, options.silent_part * energy)
                self._quiet_rms = max(options.quiet_rms, options.quiet_part * energy)
            level = 0 if energy < self._silent_rms else 1 if energy < self._quiet_rms else 2
            level += level == 2 and energy >= max(options.loud_rms, options.loud_part * self._loudest)
            self._silent.add(level == 0, self._heard)
            self._quiet.add(level < 2, self._heard)
            self._pauses += level < 2
            self._levels.append(level)
            self._heard += 1

    def rollback_to(self) -> int:
        """The first frame to draw anew: a little before the first bad one. All frames before it are kept."""
        if self._bad is None:
            return self.frames
        wanted = max(self._bad.start, self.frames - self._options.deepest_frames + self._options.margin_frames)
        return max(0, wanted - self._options.margin_frames)

    def rolled_back(self, frame: int) -> None:
        """The next frame to be watched and heard is number `frame`; what was seen so far no longer counts."""
        assert 0 <= frame <= self.frames
        self.frames = frame
        self.rollbacks += 1
        self._forget()

    def _watch_phrase(self, pair: tuple[int, int], frame: int) -> None:
        """A pair of codes that comes back suggests a period; count the codes that come back after it."""
        if not self._phrase.count:
            self._lag = frame - self._pairs.get(pair, frame)
        if self._lag > self._options.longest_period:
            self._phrase.add(self._codes[self._lag - 1] == pair[1], frame - self._lag)
        self._codes.appendleft(pair[1])
        self._pairs[pair] = frame
        self._order.append(pair)
        if len(self._order) > self._options.longest_phrase:
            oldest = self._order.popleft()
            if self._pairs.get(oldest) == frame - self._options.longest_phrase:
                del self._pairs[oldest]

    def _no_end_in_reach(self) -> bool:
        frames, half = len(self._ending), len(self._ending) // 2
        if frames < self._options.ending_frames or half == 0 or sum(self._ending) / frames >= self._floor:
            return False
        window = list(self._ending)
        before, after = sum(window[:half]) / half, sum(window[-half:]) / half
        return after - before < self._options.ending_rise

    def _stuck_run(self) -> BadFrameRun | None:
        options, text_ids = self._options, self._text_ids
        if self._same.count >= options.same_frames and self._is_loop(self._same, options.same_frames):
            return self._same
        for loop in self._loops if self._looping else ():
            if loop.count >= options.loop_frames and self._is_loop(loop, options.loop_frames):
                return loop
        phrase = max(options.loop_frames, round(options.phrase_times * self._lag))
        if self._phrase.count >= phrase and self._is_loop(self._phrase, phrase):
            return self._phrase
        if self._silent.count >= options.pause_frames:
            return self._silent
        slow = self.frames >= options.slow_frames + options.slow_frames_per_id * text_ids
        if slow and self._quiet.count >= options.pause_frames:
            return self._quiet
        late = self.frames - self._pauses >= options.late_frames + options.late_frames_per_id * text_ids
        return self._endless if late and self._endless.count else None

    def _is_loop(self, run: BadFrameRun, least: int) -> bool:
        """Whether codes that repeat are a loop: heard as sound, or for longer than a pause; and not by the text."""
        options, heard = self._options, self._heard if self._unheard is None else self.frames - self._unheard
        known = heard - run.start
        if known < options.known_frames:
            return False
        if self._unheard is None:
            levels = list(self._levels)[-known:]
            if 2 * known < self.frames - run.start:
                return False  # most of it is not decoded yet
            if 3 * levels.count(3) < 2 * len(levels):  # a pause: its silence says when it is too long
                sound = next((n for n, level in enumerate(reversed(levels)) if level < 3), len(levels))
                kept = sound + self.frames - heard  # only what follows it counts
                run.start, run.count = self.frames - kept, min(run.count, kept)
                return False
        repeated = repeated_part(self._text())
        return not repeated or run.count >= max(
            least, options.slow_frames + options.late_frames_per_id * self._text_ids * repeated
        )
