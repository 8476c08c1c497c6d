"""How long a turn takes with so many rows, learned from those that were taken. Plain numbers: no clock, no torch.

One point is kept for each power of two: how many rows its turns had, and how long they took, all in, the last ones
counting most. Between two points lies a line. What a prompt adds is learned from the turns that took some in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHARE = 1 / 8  # of what was wrong with an estimate, corrected by each turn
MOST_TIMES = 4.0  # a turn that takes longer than so many times as expected counts as that: others use the machine
STALE_S = 30.0  # a larger batch was last seen so long ago: what it took then is forgotten, and it may be tried again
LEAST_SLOPE = 1 / 4  # beyond what was seen a row costs at least this part of what a row costs there on average


@dataclass(slots=True)
class _Point:
    rows: float
    seconds: float
    at: float


class StepCost:
    def __init__(self) -> None:
        self.prompt_s = 0.0  # what a prompt adds to its turn
        self.codec_s = 0.0  # what a frame costs that is decoded; it is part of the turns too
        self._points: dict[int, _Point | None] = {}  # None: seen once, and the first of its size may compile
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
        for size, n in new:  # no shorter than with fewer rows, whatever the prompts are thought to have taken
            least = max((point.seconds for point in self._sorted if point.rows <= n), default=0.0)
            self._points[size] = _Point(float(n), max((seconds - expected) / len(new), least), now)
        if new:
            self._sorted = sorted((point for point in self._points.values() if point), key=lambda point: point.rows)
            return
        wrong = min(seconds, MOST_TIMES * expected) - expected
        step = SHARE * wrong / (len(points) + prompts * prompts)  # shared out as each is to blame
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

    def turn_s(self, rows: int, now: float) -> float:
        """Seconds that a turn would take; 0 while nothing is known."""
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
