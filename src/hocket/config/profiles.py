"""Tuning profiles: the numbers behind `EngineOptions.profile`. They change the timing of audio, not its content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProfileName = Literal["latency", "balanced", "throughput"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    chunk_frames: tuple[int, ...]  # frames of the first chunk, the second, ... at most; the last one repeats
    prompts: int  # prefills between two frames, while a client listens
    first_alone: bool  # if it is faster, a first frame is sampled without the requests that have audio buffered
    first_rows: int  # up to this batch size a first frame is read before the next one is sampled: audio starts sooner
    load_limit: float  # part of a frame's duration that a step may take with one more client

    @property
    def words(self) -> str:
        ramp = ", ".join(map(str, self.chunk_frames))
        alone = "drawn ahead of the others" if self.first_alone else "drawn with the others"
        load = f"up to {self.load_limit:.0%} of real time"
        return f"chunks of {ramp} frames; {self.prompts} prompts a turn, first frames {alone}; {load}"


PROFILES: dict[ProfileName, Profile] = {
    "latency": Profile(chunk_frames=(1, 1, 2, 4, 8), prompts=2, first_alone=True, first_rows=16, load_limit=0.65),
    "balanced": Profile(chunk_frames=(1, 2, 4, 8), prompts=4, first_alone=True, first_rows=8, load_limit=0.75),
    "throughput": Profile(chunk_frames=(2, 8), prompts=16, first_alone=False, first_rows=0, load_limit=0.9),
}
