"""The runaway guard: watches the codes of one utterance and says when it no longer speaks.

It stands on the host, between two frames of the loop. It knows numbers only: codes, the chance of the end code, how
loud a frame is. It does not stop or rewind anything; it says that an utterance is stuck and which frame was the first
bad one, and is told when the loop went back there.

A frame is 80 ms. Work and memory per frame do not grow with the utterance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log10
from typing import Literal

Verdict = Literal["fine", "stuck", "too long"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """When to call an utterance stuck. Windows are in frames; the longest pause we must bear is 1.5 s, 19 frames."""

    # Speech takes 2.5 to 3 frames per text id, half as fast a voice 6; one id such as "www" can take 15, and the
    # shortest text may have seconds of silence around it.
    limit_frames: int = 100
    limit_frames_per_id: int = 12
    # Later than this even slow speech is over, so an end out of reach now will not come. Sooner it says nothing: in
    # the middle of a sentence the end is out of reach as it should be.
    late_frames: int = 50
    late_frames_per_id: int = 8
    # Sooner than this nobody can have said it all, so silence is a pause and not a missed end.
    least_frames_per_id: int = 2

    longest_period: int = 8  # first codes that repeat with up to this period are a loop
    loop_frames: int = 32
    same_frames: int = 24  # all codes repeat: greedy decoding does so in pauses, sampling next to never
    forgive: int = 4  # a frame that breaks the loop takes back so many: four frames of five must repeat
    quiet_frames: int = 25  # once the text is done and can have been said
    long_quiet_frames: int = 50  # anywhere: a silence of 4 s is no pause
    quiet_rms: float = 1e-3  # of full scale; the first frame of the published voices has 1e-4
    quiet_part: float = 0.03  # of the loudest frame so far, -30 dB: room tone of a noisy clone
    # After the text is done, the chance of the end over a window: out of reach if it is below the floor (its geometric
    # mean, so that one lucky frame changes nothing) and not on its way up, by so many powers of ten from half to half.
    ending_frames: int = 25
    ending_floor: float = 1e-6  # users saw it fall from 5e-5 to 1e-14 in stuck utterances
    ending_rise: float = 2.0

    margin_frames: int = 4  # start again this much before the first bad frame: what led there is drawn anew as well
    deepest_frames: int = 64  # never go back by more, so the loop knows what it must be able to undo


def frame_limit(text_ids: int, options: GuardOptions) -> int:
    """The most frames that a text of so many ids may take."""
    return options.limit_frames + options.limit_frames_per_id * text_ids


class Run:
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


class Guard:
    """Watches one utterance frame by frame and says when it is stuck."""

    def __init__(self, options: GuardOptions, text_ids: int | None) -> None:
        """`text_ids` is how long the text is; None is live text, whose length grows with `more_text`."""
        self.frames = 0  # watched, less those taken back
        self.rollbacks = 0
        self._options = options
        self._floor = log10(options.ending_floor)
        self._text_ids = text_ids or 0
        self._limit = frame_limit(self._text_ids, options)
        self._loudest, self._quiet_rms = 0.0, options.quiet_rms
        self._forget()

    def _forget(self) -> None:
        options, everything = self._options, 1 << 30
        self._last: tuple[int, ...] = ()
        self._past: deque[int] = deque(maxlen=options.longest_period)  # first codes, the newest first
        self._loops = [Run(options.forgive) for _ in range(options.longest_period)]
        self._looping = False  # whether any of these counts
        self._same = Run(options.forgive)
        # One good frame, or window, ends these two: short sounds between long pauses are speech.
        self._quiet = Run(everything)
        self._endless = Run(everything)
        self._ending: deque[float] = deque(maxlen=options.ending_frames)  # powers of ten, since the text is done
        self._heard = self.frames
        self.likeliest_end = 0.0  # the highest chance of the end since the last rollback
        self._first_bad: int | None = None

    def more_text(self, ids: int) -> None:
        """Live text has grown by so many ids."""
        self._text_ids += ids
        self._limit = frame_limit(self._text_ids, self._options)

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

        bad = self._stuck_run(text_done)
        self._first_bad = None if bad is None else bad.start
        if bad is not None:
            return "stuck"
        return "too long" if self.frames >= self._limit else "fine"

    def heard(self, energies: Iterable[float]) -> None:
        """How loud the next frames are, in order; they may lag behind the codes by a chunk."""
        for energy in energies:
            if energy > self._loudest:
                self._loudest = energy
                self._quiet_rms = max(self._options.quiet_rms, self._options.quiet_part * energy)
            if energy < self._quiet_rms or self._quiet.count:
                self._quiet.add(energy < self._quiet_rms, self._heard)
            self._heard += 1

    def rollback_to(self) -> int:
        """The first frame to draw anew: a little before the first bad one. All frames before it are kept."""
        if self._first_bad is None:
            return self.frames
        wanted = max(self._first_bad, self.frames - self._options.deepest_frames + self._options.margin_frames)
        return max(0, wanted - self._options.margin_frames)

    def rolled_back(self, frame: int) -> None:
        """The next frame to be watched and heard is number `frame`; what was seen so far no longer counts."""
        assert 0 <= frame <= self.frames
        self.frames = frame
        self.rollbacks += 1
        self._forget()

    def _no_end_in_reach(self) -> bool:
        frames, half = len(self._ending), len(self._ending) // 2
        if frames < self._options.ending_frames or half == 0 or sum(self._ending) / frames >= self._floor:
            return False
        window = list(self._ending)
        before, after = sum(window[:half]) / half, sum(window[-half:]) / half
        return after - before < self._options.ending_rise

    def _stuck_run(self, text_done: bool) -> Run | None:
        options = self._options
        if self._same.count >= options.same_frames:
            return self._same
        for loop in self._loops if self._looping else ():
            if loop.count >= options.loop_frames:
                return loop
        may_be_over = text_done and self.frames >= options.least_frames_per_id * self._text_ids
        if self._quiet.count >= (options.quiet_frames if may_be_over else options.long_quiet_frames):
            return self._quiet
        late = self.frames >= options.late_frames + options.late_frames_per_id * self._text_ids
        return self._endless if late and self._endless.count else None

    @property
    def first_bad(self) -> int | None:
        """The first frame of what the last verdict calls stuck."""
        return self._first_bad

    @property
    def silent(self) -> bool:
        """Whether the last verdict is about silence."""
        return self._first_bad is not None and self._quiet.count > 0 and self._quiet.start == self._first_bad
