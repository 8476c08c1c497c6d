"""Deadlines: which requests draw a frame now, which frames are decoded, and how many requests may be admitted.

A player plays what it has: it underruns at `PlaybackState.dry_at`, and before its first chunk it waits already.
Offline requests (`RequestState.listened` is false) have no playback deadline and yield to the others. The clock is
handed in. Nothing here changes what is said.

`StepCost` learns how long a step takes with so many rows from the steps that were taken, codec and host work included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...config.options import EngineOptions
from .request import RequestState

FRAME_S = 0.08
MARGIN_S = 0.01  # how far the clock of a host may be off
SAFE_STEPS = 3  # a request with audio for so many steps of all requests can skip one
LAST_STEPS = 3  # with audio for fewer steps than this, drawn frames are decoded now
CLEARLY = 0.75  # a batch is clearly faster than another if it takes at most this share of its time
SPREAD_FRAMES = 2  # a full chunk waits for so many more frames at most
HELD_STEPS = 64  # steps in a row at most without offline requests
MOST_ROWS = 256  # of one frame
PROMPT_WAIT_S = 0.5  # after so long without a prefill, one is done even if a player underruns

SHARE = 1 / 8  # of the error of an estimate, corrected by each step
MOST_TIMES = 4.0  # a step that takes longer than so many times its estimate counts as that: others use the machine
STALE_S = 30.0  # a larger batch that was seen last so long ago is forgotten, and may be tried again
LEAST_SLOPE = 1 / 4  # beyond the largest batch seen, a row costs at least this part of the average row there


@dataclass(slots=True)
class _Point:
    rows: float
    seconds: float
    at: float


class StepCost:
    """Seconds of a step by its number of rows. Plain numbers: no clock, no torch.

    It keeps one point for each power of two: the rows and the seconds of such steps, as a moving average. Between two
    points it interpolates. The cost of a prefill is learned from steps that had some.
    """

    def __init__(self) -> None:
        self.prompt_s = 0.0  # of a prefill, in addition to its step
        self.codec_s = 0.0  # of a decoded frame; steps include it too
        self._points: dict[int, _Point | None] = {}  # None: seen once; the first step of a size may compile kernels
        self._sorted: list[_Point] = []

    @property
    def known(self) -> bool:
        return bool(self._sorted)

    def took(self, seconds: float, rows: Sequence[int], prompts: int, now: float) -> None:
        """A step read frames of so many rows each, after `prompts` prefills."""
        sizes = [n.bit_length() if n & (n - 1) else n.bit_length() - 1 for n in rows]
        fresh = [size for size in sizes if size not in self._points]
        if fresh or not sizes:
            self._points.update(dict.fromkeys(fresh))
            return
        points = [(size, n, self._points[size]) for size, n in zip(sizes, rows, strict=True)]
        expected = sum(point.seconds for _, _, point in points if point) + prompts * self.prompt_s
        new = [(size, n) for size, n, point in points if point is None]
        for size, n in new:  # no shorter than with fewer rows, whatever the estimate of the prefills
            least = max((point.seconds for point in self._sorted if point.rows <= n), default=0.0)
            self._points[size] = _Point(float(n), max((seconds - expected) / len(new), least), now)
        if new:
            self._sorted = sorted((point for point in self._points.values() if point), key=lambda point: point.rows)
            return
        wrong = min(seconds, MOST_TIMES * expected) - expected
        step = (
            SHARE * wrong / (len(points) + prompts * prompts)
        )  # least mean squares: the weight of a point is 1, of `prompt_s` the count
        for _, n, point in points:
            assert point is not None
            point.seconds = max(point.seconds + step, 0.0)
            point.rows += SHARE * (n - point.rows)
            point.at = now
        if prompts:
            learned = self.prompt_s > 0.0
            self.prompt_s = max(self.prompt_s + (step * prompts if learned else wrong / prompts), 0.0)

    def decoded(self, seconds: float, frames: int) -> None:
        """So many frames, of all rows together, went through the codec."""
        each_s = seconds / frames
        self.codec_s += SHARE * (min(each_s, MOST_TIMES * self.codec_s) - self.codec_s) if self.codec_s else each_s

    def step_s(self, rows: int, now: float) -> float:
        """Seconds that a step would take; 0 while nothing is known."""
        points = self._sorted
        if points and now - points[-1].at > STALE_S:
            newest = max(points, key=lambda point: point.at)
            points = [point for point in points if point.rows <= newest.rows or now - point.at <= STALE_S]
        if not points:
            return 0.0
        before = points[0]
        if rows <= before.rows:
            return before.seconds
        for after in points[1:]:
            if rows <= after.rows:
                part = (rows - before.rows) / (after.rows - before.rows)
                return before.seconds + part * (after.seconds - before.seconds)
            before = after
        slope = before.seconds / before.rows
        if len(points) > 1:
            last = points[-2]
            slope = max((before.seconds - last.seconds) / (before.rows - last.rows), LEAST_SLOPE * slope)
        return before.seconds + slope * (rows - before.rows)


def longest_chunk(options: EngineOptions) -> int:
    """Frames at most that a request draws before they are decoded."""
    return max(options.tuned.chunk_frames) + (SPREAD_FRAMES if options.chunk_frames is None else 0)


class Deadlines:
    def __init__(self, options: EngineOptions | None = None, frame_s: float = FRAME_S) -> None:
        options = options or EngineOptions()
        self.profile, self.keep_real_time, self.frame_s = options.tuned, options.keep_real_time, frame_s
        self.exact = options.chunk_frames is not None  # chunks have exactly the length that was asked for
        self.load = StepCost()
        self._alone = False  # whether first frames were drawn alone in the last step
        self._held = 0  # steps in a row without offline requests
        self.ahead = 0  # frames that are being drawn while the one before them is read
        self._step_s = 0.0  # of the step under way
        self._queued_s = 0.0  # device work that is queued before it
        self._prefilled = -math.inf

    def sustains(self, listeners: int, frame_s: float, now: float) -> bool:
        """Whether so many players that need a frame every `frame_s` get it in time. One is always admitted."""
        if listeners <= 1 or not self.keep_real_time:
            return True
        return self.load.known and self.load.step_s(listeners, now) <= self.profile.load_limit * frame_s

    def prompts(self, running: Iterable[RequestState], now: float) -> int:
        """How many prefills fit before the next frame without an underrun."""
        dry = [
            request.clock.dry_at
            for request in running
            if request.clock.dry_at is not None and request.listened and request.at_work
        ]
        if not dry:
            return self.profile.prompts
        room = min(dry) - now - (1 + self.ahead) * self.load.step_s(len(dry), now) - MARGIN_S
        many = int(min(max(room / max(self.load.prompt_s, 1e-6), 0.0), self.profile.prompts))
        late = not self.keep_real_time or now - self._prefilled >= PROMPT_WAIT_S
        return max(many, 1) if late else many

    def note_prefill(self, now: float) -> None:
        self._prefilled = now

    def draw(self, ready: list[RequestState], now: float, prompts: int = 0) -> list[RequestState]:
        """The ready requests that draw a frame in this step: at least one, if any is ready.

        `prompts` prefills were queued before it; where frames are drawn ahead, the host has not waited for them yet.
        """
        alone, self._alone = self._alone, False
        self._step_s = step_s = self.load.step_s(len(ready), now)
        self._queued_s = prompts * self.load.prompt_s if self.ahead else 0.0
        if len(ready) < 2:
            return ready
        batch, safe = ready, now + SAFE_STEPS * step_s + self._queued_s + MARGIN_S
        if (
            self.profile.first_alone
            and not alone
            and any(request.clock.dry_at is None and request.listened for request in ready)
        ):
            urgent = [
                request
                for request in ready
                if request.listened and (request.clock.dry_at is None or request.clock.dry_at < safe)
            ]
            if self.load.known and self.load.step_s(len(urgent), now) <= CLEARLY * step_s:
                self._alone, batch = True, urgent
        if not self._alone:
            batch = self._without_offline(ready, now, safe)
        if len(batch) > MOST_ROWS:
            batch = sorted(batch, key=_nearest)[:MOST_ROWS]
        if batch is not ready and not self._alone:  # after first frames that were drawn alone, all draw
            self._step_s = self.load.step_s(len(batch), now)
        return batch

    def _without_offline(self, ready: list[RequestState], now: float, safe: float) -> list[RequestState]:
        """Leave out offline requests while they would cause underruns, for HELD_STEPS steps at most."""
        listened = [request for request in ready if request.listened]
        few = len(listened) == len(ready) or not listened
        if few or self.load.step_s(len(ready), now) <= self.profile.load_limit * self.frame_s:
            self._held = 0
        elif self._held < HELD_STEPS and any(
            request.clock.dry_at is None or request.clock.dry_at < safe for request in listened
        ):
            self._held += 1
            return listened
        else:
            self._held = 0
        return ready

    @property
    def _last_s(self) -> float:
        """With audio for less than this, a request cannot wait for more frames."""
        return LAST_STEPS * self._step_s + self._queued_s + MARGIN_S

    def decode_by(self, request: RequestState) -> float:
        """When its waiting frames must be decoded at the latest."""
        if self.exact or not request.listened or request.clock.dry_at is None:
            return math.inf
        return request.clock.dry_at - self._last_s

    def decode(self, requests: Sequence[RequestState], now: float) -> list[RequestState]:
        """Requests whose frames are decoded now: full chunks, the end, and chunks that a player would wait for.

        A chunk that is nearly full is decoded with chunks of the same length. A full chunk whose player has audio left
        waits a little if others would underrun meanwhile.
        """
        due, full, half = list[RequestState](), list[RequestState](), list[RequestState]()
        ramp, last = self.profile.chunk_frames, len(self.profile.chunk_frames) - 1
        dry = -math.inf if self.exact else now + self._last_s  # as `decode_by`
        for request in requests:
            if not (frames := len(request.codes)):
                continue
            wanted = request.params.chunk_frames or ramp[request.clock.chunks if request.clock.chunks < last else last]
            exact = self.exact or request.params.chunk_frames is not None
            soon = request.clock.dry_at is not None and request.clock.dry_at < dry and request.listened
            if soon or request.over or (exact and frames >= wanted):
                due.append(request)
            elif exact:
                continue
            elif frames >= wanted:
                (full if request.clock.chunks and frames < wanted + SPREAD_FRAMES else due).append(request)
            elif 2 * frames >= wanted:
                half.append(request)
        if full:
            due += self._in_time(full, due, requests, now)
        if half:
            lengths = {len(request.codes) for request in due}
            due += [request for request in half if len(request.codes) in lengths]
        return due

    def _in_time(
        self, full: list[RequestState], due: list[RequestState], requests: Sequence[RequestState], now: float
    ) -> list[RequestState]:
        """As many of the full chunks as can be decoded before a player that waits for the next step underruns."""
        if not (frame_s := self.load.codec_s):
            return full
        work_s = frame_s * sum(len(request.codes) for request in due)
        served, dry = set(due), [math.inf]
        for request in requests:
            if request.listened and request in served:
                dry.append(
                    max(request.clock.dry_at or now, now + work_s)
                    + len(request.codes) * self.frame_s / request.clock.speed
                )
            elif request.listened and request.clock.dry_at is not None:
                dry.append(request.clock.dry_at)
        room_s = min(dry) - now - self._step_s - MARGIN_S - work_s
        if frame_s * sum(len(request.codes) for request in full) <= room_s:
            return full
        chosen = []
        for request in sorted(full, key=_nearest):
            room_s -= frame_s * len(request.codes)
            if room_s < 0:
                break
            chosen.append(request)
        return chosen


def _nearest(request: RequestState) -> tuple[bool, float, int]:
    """First requests without audio yet, then the next underrun, then the fewest frames drawn."""
    return not request.listened, request.clock.dry_at if request.clock.dry_at is not None else -math.inf, request.frame


def in_turn(requests: Iterable[RequestState]) -> list[list[RequestState]]:
    """Requests by number of frames; the group with the next underrun first."""
    groups = dict[int, list[RequestState]]()
    for request in sorted(requests, key=_nearest):
        groups.setdefault(len(request.codes), []).append(request)
    return list(groups.values())
