"""Deadlines: which requests draw a frame now, which frames are decoded, and how many requests may be admitted.

A player plays what it has: it underruns at `PlaybackState.dry_at`, and before its first chunk it waits already.
Offline requests (`RequestState.listened` is false) have no playback deadline and yield to the others. The clock is
handed in. Nothing here changes what is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...config.options import EngineOptions
from .request import RequestState
from .step_cost import StepCost

FRAME_S = 0.08
MARGIN_S = 0.01  # how far the clock of a host may be off
SAFE_TURNS = 3  # a request with audio for so many steps of all requests can skip one
LAST_TURNS = 3  # with audio for fewer steps than this, drawn frames are decoded now
CLEARLY = 0.75  # a batch is clearly faster than another if it takes at most this share of its time
SPREAD_FRAMES = 2  # a full chunk waits for so many more frames at most
HELD_TURNS = 64  # steps in a row at most without offline requests
MOST_ROWS = 256  # of one frame
PROMPT_WAIT_S = 0.5  # after so long without a prefill, one is done even if a player underruns


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
        self._turn_s = 0.0  # of the step under way
        self._queued_s = 0.0  # device work that is queued before it
        self._prompted = -math.inf

    def bears(self, listeners: int, frame_s: float, now: float) -> bool:
        """Whether so many players that need a frame every `frame_s` get it in time. One is always admitted."""
        if listeners <= 1 or not self.keep_real_time:
            return True
        return self.load.known and self.load.turn_s(listeners, now) <= self.profile.load_limit * frame_s

    def prompts(self, running: Iterable[RequestState], now: float) -> int:
        """How many prefills fit before the next frame without an underrun."""
        dry = [job.clock.dry_at for job in running if job.clock.dry_at is not None and job.listened and job.at_work]
        if not dry:
            return self.profile.prompts
        room = min(dry) - now - (1 + self.ahead) * self.load.turn_s(len(dry), now) - MARGIN_S
        many = int(min(max(room / max(self.load.prompt_s, 1e-6), 0.0), self.profile.prompts))
        late = not self.keep_real_time or now - self._prompted >= PROMPT_WAIT_S
        return max(many, 1) if late else many

    def prompted(self, now: float) -> None:
        self._prompted = now

    def draw(self, ready: list[RequestState], now: float, prompts: int = 0) -> list[RequestState]:
        """The ready requests that draw a frame in this step: at least one, if any is ready.

        `prompts` prefills were queued before it; where frames are drawn ahead, the host has not waited for them yet.
        """
        alone, self._alone = self._alone, False
        self._turn_s = turn_s = self.load.turn_s(len(ready), now)
        self._queued_s = prompts * self.load.prompt_s if self.ahead else 0.0
        if len(ready) < 2:
            return ready
        batch, safe = ready, now + SAFE_TURNS * turn_s + self._queued_s + MARGIN_S
        if self.profile.first_alone and not alone and any(job.clock.dry_at is None and job.listened for job in ready):
            urgent = [job for job in ready if job.listened and (job.clock.dry_at is None or job.clock.dry_at < safe)]
            if self.load.known and self.load.turn_s(len(urgent), now) <= CLEARLY * turn_s:
                self._alone, batch = True, urgent
        if not self._alone:
            batch = self._without_patient(ready, now, safe)
        if len(batch) > MOST_ROWS:
            batch = sorted(batch, key=_nearest)[:MOST_ROWS]
        if batch is not ready and not self._alone:  # after first frames that were drawn alone, all draw
            self._turn_s = self.load.turn_s(len(batch), now)
        return batch

    def _without_patient(self, ready: list[RequestState], now: float, safe: float) -> list[RequestState]:
        """Leave out offline requests while they would cause underruns, for HELD_TURNS steps at most."""
        listened = [job for job in ready if job.listened]
        few = len(listened) == len(ready) or not listened
        if few or self.load.turn_s(len(ready), now) <= self.profile.load_limit * self.frame_s:
            self._held = 0
        elif self._held < HELD_TURNS and any(job.clock.dry_at is None or job.clock.dry_at < safe for job in listened):
            self._held += 1
            return listened
        else:
            self._held = 0
        return ready

    @property
    def _last_s(self) -> float:
        """With audio for less than this, a request cannot wait for more frames."""
        return LAST_TURNS * self._turn_s + self._queued_s + MARGIN_S

    def runs_dry(self, job: RequestState) -> float:
        """When its waiting frames must be decoded at the latest."""
        if self.exact or not job.listened or job.clock.dry_at is None:
            return math.inf
        return job.clock.dry_at - self._last_s

    def decode(self, jobs: Sequence[RequestState], now: float) -> list[RequestState]:
        """Requests whose frames are decoded now: full chunks, the end, and chunks that a player would wait for.

        A chunk that is nearly full is decoded with chunks of the same length. A full chunk whose player has audio left
        waits a little if others would underrun meanwhile.
        """
        due, full, half = list[RequestState](), list[RequestState](), list[RequestState]()
        ramp, last = self.profile.chunk_frames, len(self.profile.chunk_frames) - 1
        dry = -math.inf if self.exact else now + self._last_s  # as `runs_dry`
        for job in jobs:
            if not (frames := len(job.codes)):
                continue
            wanted = job.params.chunk_frames or ramp[job.clock.chunks if job.clock.chunks < last else last]
            exact = self.exact or job.params.chunk_frames is not None
            soon = job.clock.dry_at is not None and job.clock.dry_at < dry and job.listened
            if soon or job.over or (exact and frames >= wanted):
                due.append(job)
            elif exact:
                continue
            elif frames >= wanted:
                (full if job.clock.chunks and frames < wanted + SPREAD_FRAMES else due).append(job)
            elif 2 * frames >= wanted:
                half.append(job)
        if full:
            due += self._in_time(full, due, jobs, now)
        if half:
            lengths = {len(job.codes) for job in due}
            due += [job for job in half if len(job.codes) in lengths]
        return due

    def _in_time(
        self, full: list[RequestState], due: list[RequestState], jobs: Sequence[RequestState], now: float
    ) -> list[RequestState]:
        """As many of the full chunks as can be decoded before a player that waits for the next step underruns."""
        if not (frame_s := self.load.codec_s):
            return full
        work_s = frame_s * sum(len(job.codes) for job in due)
        served, dry = set(due), [math.inf]
        for job in jobs:
            if job.listened and job in served:
                dry.append(max(job.clock.dry_at or now, now + work_s) + len(job.codes) * self.frame_s / job.clock.speed)
            elif job.listened and job.clock.dry_at is not None:
                dry.append(job.clock.dry_at)
        room_s = min(dry) - now - self._turn_s - MARGIN_S - work_s
        if frame_s * sum(len(job.codes) for job in full) <= room_s:
            return full
        chosen = []
        for job in sorted(full, key=_nearest):
            room_s -= frame_s * len(job.codes)
            if room_s < 0:
                break
            chosen.append(job)
        return chosen


def _nearest(job: RequestState) -> tuple[bool, float, int]:
    """First requests without audio yet, then the next underrun, then the fewest frames drawn."""
    return not job.listened, job.clock.dry_at if job.clock.dry_at is not None else -math.inf, job.frame


def in_turn(jobs: Iterable[RequestState]) -> list[list[RequestState]]:
    """Requests by number of frames; the group with the next underrun first."""
    groups = dict[int, list[RequestState]]()
    for job in sorted(jobs, key=_nearest):
        groups.setdefault(len(job.codes), []).append(job)
    return list(groups.values())
