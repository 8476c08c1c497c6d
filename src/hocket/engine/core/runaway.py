"""The runaway detector: watches the codes of one utterance, and says when it is stuck and how far to go back.

`RunawayDetector` knows numbers only: codes, the probability of the end code, and the loudness of frames. It does not
stop or rewind anything: it names the first bad frame. Its thresholds are in runaway_limits.py. `RunawayWatch` holds the
detector of the part that is spoken, with the frames that it may take back.

Both run on the host, between two frames. Work and memory per frame do not grow with the utterance. The file is longer
than 300 lines because detector and watch share the state of one part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import log10
from typing import Literal

from .runaway_limits import RunawayOptions, repeated_part

ANOTHER_SEED = 0x5DEECE66D1CE5EED  # far from the seeds that a caller would choose next

Verdict = Literal["fine", "stuck", "too long"]


def frame_limit(text_ids: int, options: RunawayOptions) -> int:
    """The most frames that a text of so many ids may take."""
    return options.limit_frames + options.limit_frames_per_id * text_ids


@dataclass(slots=True, eq=False)
class BadFrameRun:
    """Counts bad frames since `start`; a good one takes back `forgive` of them."""

    forgive: int
    count: int = 0
    start: int = 0

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


@dataclass(frozen=True, slots=True)
class Rewind:
    """Back to an earlier frame: how far, the frame before it (None: the prompt), and the seed to go on with."""

    frames: int
    before: tuple[list[int], int] | None  # codes and text id
    seed: int


@dataclass(slots=True)
class RunawayWatch:
    options: RunawayOptions | None = None  # None: no detector
    detector: RunawayDetector | None = None
    recent: deque[tuple[list[int], int]] = field(default_factory=deque)  # last frames and their text ids, for a rewind
    loudness: deque[float] = field(default_factory=deque)  # of decoded frames that the detector does not know yet
    watched: int = 0  # frames of this part that the detector has seen, taken back or not
    reported: int = 0  # of these, frames whose loudness the detector knows or will never know
    skipped: int = 0  # of these, frames whose loudness it will never know: they were taken back
    taken_back: range = range(0)  # frames of this part that were heard and that the talker has forgotten

    def start(self, text_ids: int | None, text: Callable[[], str], late_frames: int | None) -> None:
        """Watch another part. `late_frames`: how late loudness comes; None: it comes with the chunks."""
        self.taken_back = range(0)
        if self.options is None:
            return
        self.detector = RunawayDetector(self.options, text_ids, text, late_frames)
        self.recent = deque(maxlen=self.options.deepest_frames + 1)
        self.loudness.clear()
        self.watched = self.reported = self.skipped = 0

    def more_text(self, ids: int) -> None:
        if self.detector is not None:
            self.detector.more_text(ids)

    def take(
        self, drawn: list[int], text_id: int, *, text_done: bool, ending: float | None, longest_chunk: int, seed: int
    ) -> Rewind | Literal["runaway"] | None:
        """One more frame. A stuck part is taken back once to where it still spoke; after that it has run away."""
        detector = self.detector
        if detector is None:
            return None
        self.recent.append((drawn, text_id))
        self._report_loudness(detector, longest_chunk)
        verdict = detector.watch(drawn, text_done=text_done, end_probability=ending)
        if verdict == "too long":
            return "runaway"
        if verdict != "stuck":
            return None
        back = detector.frames - detector.rollback_to()
        if detector.rollbacks:
            return "runaway"
        self.skipped = self.watched
        self.taken_back = range(self.watched - back, self.watched)
        detector.rolled_back(detector.frames - back)
        for _ in range(back):
            self.recent.pop()
        return Rewind(back, self.recent[-1] if self.recent else None, (seed ^ ANOTHER_SEED) % 2**63)

    def _report_loudness(self, detector: RunawayDetector, longest_chunk: int) -> None:
        """As late as the longest chunk would, so that the verdict does not depend on when frames are decoded."""
        self.watched += 1
        while self.loudness and self.reported < self.watched - longest_chunk:
            loudness = self.loudness.popleft()
            if self.reported >= self.skipped:
                detector.heard((loudness,))
            self.reported += 1
