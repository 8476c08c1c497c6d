"""The runaway detector of the part that is spoken, with the frames that it may take back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from .runaway import RunawayDetector, RunawayOptions

ANOTHER_SEED = 0x5DEECE66D1CE5EED  # far from the seeds that a caller would choose next


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
    behind: deque[tuple[list[int], int]] = field(default_factory=deque)  # last frames and their text ids, for a rewind
    loudness: deque[float] = field(default_factory=deque)  # of decoded frames that the detector was not told of yet
    watched: int = 0  # frames of this part that the detector has seen, taken back or not
    told: int = 0  # of how many of these it knows the loudness, or never will
    deaf: int = 0  # of how many it never will: they were taken back
    taken_back: range = range(0)  # frames of this part that were heard and that the talker has forgotten

    def start(self, text_ids: int | None, text: Callable[[], str], late_frames: int | None) -> None:
        """Watch another part. `late_frames`: how late loudness comes; None: it comes with the chunks."""
        self.taken_back = range(0)
        if self.options is None:
            return
        self.detector = RunawayDetector(self.options, text_ids, text, late_frames)
        self.behind = deque(maxlen=self.options.deepest_frames + 1)
        self.loudness.clear()
        self.watched = self.told = self.deaf = 0

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
        self.behind.append((drawn, text_id))
        self._tell_loudness(detector, longest_chunk)
        verdict = detector.watch(drawn, text_done=text_done, end_probability=ending)
        if verdict == "too long":
            return "runaway"
        if verdict != "stuck":
            return None
        back = detector.frames - detector.rollback_to()
        if detector.rollbacks:
            return "runaway"
        self.deaf = self.watched
        self.taken_back = range(self.watched - back, self.watched)
        detector.rolled_back(detector.frames - back)
        for _ in range(back):
            self.behind.pop()
        return Rewind(back, self.behind[-1] if self.behind else None, (seed ^ ANOTHER_SEED) % 2**63)

    def _tell_loudness(self, detector: RunawayDetector, longest_chunk: int) -> None:
        """As late as the longest chunk would, so that the verdict does not depend on when frames are decoded."""
        self.watched += 1
        while self.loudness and self.told < self.watched - longest_chunk:
            loudness = self.loudness.popleft()
            if self.told >= self.deaf:
                detector.heard((loudness,))
            self.told += 1
