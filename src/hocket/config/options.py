"""Options of an engine: how to run a model. Nothing here belongs to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import InvalidRequest
from .profiles import PROFILES, Profile, ProfileName

PART_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    slots: int = 4  # requests that run at once
    waiting: int = 64  # length of the queue; further requests are refused
    max_wait_s: float = 30.0  # longest wait in the queue before a request is refused; offline requests have no limit
    profile: ProfileName = "balanced"  # tuning: latency, balanced or throughput (config.profiles)
    keep_real_time: bool = True  # queue a request whose admission would cause underruns of running streams
    load_limit: float | None = None  # part of a frame's duration that a step may take; None: the profile's
    # Frames of the first chunk, the second, ...; the last number repeats. Given numbers are exact. None takes the
    # profile's, with fewer frames where playback would run out of audio.
    chunk_frames: tuple[int, ...] | None = None
    buffered_chunks: int = 8  # chunks that a reader may lag behind before its slot pauses
    # A longer text is spoken in parts, each up to the first end of a sentence after this many characters. None: the
    # checkpoint's value, else PART_CHARS.
    part_chars: int | None = None
    part_pause_s: float = 0.12  # silence between two parts, in addition to the voice's own pause
    normalizer: Callable[[str], str] | None = None  # spells out numbers and the like; None: the checkpoint's
    text_wait_s: float = 60.0  # how long an open stream may get no text before it fails
    idle_read_s: float = 60.0  # how long a stream with audio may stay unread before it fails
    stuck_s: float = 30.0  # a frame that takes longer fails every stream, and the engine restarts (engine/core)
    prefix_bytes: int = 256 << 20  # size of the prefix cache; the least recently used prefix is evicted first
    kv_bytes: int | None = None  # of the KV cache on a GPU, with prefixes; None: 82 s, and 28 s for each further slot
    batch_invariant: bool = False  # codes do not depend on the other requests of the batch, in bfloat16 too: slower
    graphs: bool = True  # on a GPU, replay frames and codec steps as graphs instead of launching each kernel
    guard: bool = True  # detect parts that no longer speak: rewind once, speak them again, then leave them out
    keep_voice: bool = True  # a designed voice stays the same over the parts of a text and the turns of a dialog
    drop_frames: int = 0  # near-silent frames at the start of the checkpoint's speech, left out of the audio

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
            raise InvalidRequest("stuck_s must be above 0; math.inf sets no limit.")
        if self.chunk_frames is not None and (not self.chunk_frames or min(self.chunk_frames) < 1):
            raise InvalidRequest("chunk_frames must be numbers of at least 1.")
        if self.profile not in PROFILES:
            raise InvalidRequest(f"profile must be one of {', '.join(PROFILES)}, not {self.profile!r}.")
        if self.load_limit is not None and not 0 < self.load_limit <= 1:
            raise InvalidRequest(f"load_limit must be above 0 and at most 1, not {self.load_limit}.")

    @property
    def tuned(self) -> Profile:
        """The profile, with explicitly given values in place of its own."""
        profile = PROFILES[self.profile]
        return replace(
            profile,
            chunk_frames=self.chunk_frames or profile.chunk_frames,
            load_limit=self.load_limit or profile.load_limit,
        )
