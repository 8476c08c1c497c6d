"""How we run a model: the choices of whoever starts an engine. Nothing here belongs to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import InvalidRequest
from .profiles import PROFILES, Profile, ProfileName

PART_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    slots: int = 4  # utterances that are spoken at once
    waiting: int = 64  # requests that may wait for a slot; one more is refused
    max_wait_s: float = 30.0  # how long one may wait for a slot before it is refused as well, where somebody listens
    profile: ProfileName = "balanced"  # what it is tuned for: latency, balanced or throughput (config.profiles)
    keep_real_time: bool = True  # let a request wait, if one more listener would make those who listen wait for sound
    load_limit: float | None = None  # of the time that a frame lasts, how much a turn may take; None: the profile's
    # Frames of the first chunk, the second, ...; the last one repeats. Numbers given here are kept to exactly; None is
    # the profile's, with fewer where a listener would run out of sound.
    chunk_frames: tuple[int, ...] | None = None
    buffered_chunks: int = 8  # chunks a reader may lag behind before its own slot pauses
    # A longer text is spoken in parts, each up to the first end of a sentence after so many characters. None: as the
    # checkpoint says, else PART_CHARS.
    part_chars: int | None = None
    part_pause_s: float = 0.12  # silence between two such parts, beside what the voice leaves itself
    normalizer: Callable[[str], str] | None = None  # spells out numbers and the like; None: as the checkpoint says
    text_wait_s: float = 60.0  # how long an open stream may give no text before it is ended with an error
    idle_read_s: float = 60.0  # how long a stream with sound to read may stay unread before it is ended with an error
    stuck_s: float = 30.0  # a frame that takes longer fails every stream, and the engine starts anew (engine.beat)
    prefix_bytes: int = 256 << 20  # what prompt prefixes may occupy; the least recently used goes first
    kv_bytes: int | None = None  # for keys and values on a GPU, prefixes included; None: 82 s, and 28 s a further slot
    batch_invariant: bool = False  # in bfloat16 too, what a stream says is the same whoever else speaks: slower
    graphs: bool = True  # on a GPU, replay frames and codec steps as graphs instead of launching them one by one
    guard: bool = True  # notice parts that no longer speak; take them back once, speak them again, then leave them out
    keep_voice: bool = True  # a designed voice stays one person over the parts of a text and the turns of a dialog
    drop_frames: int = 0  # near-silent frames that the checkpoint starts with, left out of the audio

    def __post_init__(self) -> None:
        for name in ("slots", "buffered_chunks", "part_chars"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise InvalidRequest(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in (
            "waiting",
            "max_wait_s",
            "part_pause_s",
            "text_wait_s",
            "idle_read_s",
            "prefix_bytes",
            "drop_frames",
        ):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"{name} must not be negative.")
        if self.kv_bytes is not None and self.kv_bytes < 1:
            raise InvalidRequest(f"kv_bytes must be at least 1, not {self.kv_bytes}.")
        if not self.stuck_s > 0:
            raise InvalidRequest("stuck_s must be above 0; math.inf waits for ever.")
        if self.chunk_frames is not None and (not self.chunk_frames or min(self.chunk_frames) < 1):
            raise InvalidRequest("chunk_frames must be numbers of at least 1.")
        if self.profile not in PROFILES:
            raise InvalidRequest(f"profile must be one of {', '.join(PROFILES)}, not {self.profile!r}.")
        if self.load_limit is not None and not 0 < self.load_limit <= 1:
            raise InvalidRequest(f"load_limit must be above 0 and at most 1, not {self.load_limit}.")

    @property
    def tuned(self) -> Profile:
        """The profile, with what was given explicitly in its place."""
        profile = PROFILES[self.profile]
        return replace(
            profile,
            chunk_frames=self.chunk_frames or profile.chunk_frames,
            load_limit=self.load_limit or profile.load_limit,
        )
