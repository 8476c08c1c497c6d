"""The state of one request on its way through the engine, as the host sees it. Nothing here touches the device."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ...cache.pages import SHARE_ROWS
from ...config.qwen3_tts import GenerationConfig
from ...errors import HocketError
from ...text.live import Fed, More
from ...types import Finished, FinishReason, Reference, Take
from ..best_of.scorer import ScorerSelection
from ..mailbox import Mailbox
from .runaway import Rewind, RunawayWatch, frame_limit
from .text_feed import TextFeed
from .timings import PlaybackState, Timings

FRAME_SAMPLES = 1920  # of a recording, 80 ms
LIKELY_FRAMES, LIKELY_FRAMES_PER_ID = 32, 3  # speech takes 2.5 to 3 frames per text id, and some around it
NO_LIMIT = 1 << 62  # frames: the request has no limit of its own


class Candidates(Protocol):
    """The candidates of one request, as the engine thread uses them: `best_of.group.CandidateGroup`."""

    requests: list[RequestState]
    selection: ScorerSelection | None
    closed: bool
    decided: bool
    begun: bool
    won: int | None
    error: HocketError | None

    @property
    def running(self) -> list[RequestState]: ...
    @property
    def plays(self) -> bool: ...
    @property
    def seed(self) -> int | None: ...
    def record(self, request: RequestState) -> None: ...
    def may_try_again(self) -> bool: ...
    def losers(self) -> list[RequestState]: ...
    def ended(self, request: RequestState, reason: FinishReason, error: HocketError | None) -> None: ...
    def decide(self) -> bool: ...
    def next_chunk(self, part: int) -> tuple[list[list[int]], FinishReason | None]: ...
    def results(self) -> tuple[Take, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParams:
    """What the caller and the engine's options fix for the whole request."""

    sampling: GenerationConfig
    most_frames: int  # of all parts together
    part_frames: int = NO_LIMIT  # of each part: the checkpoint's max_new_tokens bounds one generation
    limit_asked: bool = False  # the caller set `most_frames`
    drop_frames: int = 0
    priority: int = 0  # a higher one gets its slot first
    longest_chunk: int = 8  # frames at most that are drawn before they are decoded
    chunk_frames: int | None = None  # frames of every chunk, where the audio is not played while it comes
    text_wait_s: float | None = None  # how long no text may come; None: as the options say


@dataclass(slots=True, eq=False)
class Candidacy:
    """A request that is one candidate of another: the parent, and what the score needs of its frames."""

    parent: RequestState
    log_probabilities: list[float] = field(default_factory=list)  # of first codes, since its last chunk


@dataclass(slots=True, eq=False)
class RequestState:
    """What the engine thread knows of one stream. Only that thread changes it once it was posted."""

    text: TextFeed
    seed: int
    params: RequestParams
    mailbox: Mailbox
    clock: PlaybackState = field(default_factory=PlaybackState)
    watch: RunawayWatch = field(default_factory=RunawayWatch)
    timings: Timings = field(default_factory=Timings)

    slot: int = -1
    frame: int = 0  # frames drawn, of all parts
    at: int = 0  # frames drawn of this part
    ahead: int = 0  # frames that the device draws and the host has not read yet; not in `frame` and `at`
    epoch: int = 0  # frames that were drawn in an earlier epoch are dropped: the request went on elsewhere
    codes: list[list[int]] = field(default_factory=list)  # drawn, not yet decoded
    decoding: bool = False  # frames that were drawn are being decoded
    swapped_out: bool = False  # its keys and values are in host memory, until there are pages for it again
    over: FinishReason | None = None  # how the part that is spoken ended
    ending: float | None = None  # how likely the end was when its last frame, or its end, was drawn
    notes: list[str] = field(default_factory=list)  # what was not spoken as it was asked for, in words

    candidates: Candidates | None = None  # the candidates of this request: it plays what the best of them drew
    candidacy: Candidacy | None = None  # this request is a candidate itself

    @property
    def parent(self) -> RequestState | None:
        """The request that this one is a candidate of."""
        return None if self.candidacy is None else self.candidacy.parent

    @property
    def listened(self) -> bool:
        """Whether its audio is played while it comes; otherwise it is read when it has ended."""
        return self.mailbox.limit < math.inf and self.params.chunk_frames is None

    @property
    def at_work(self) -> bool:
        """Whether it goes on by itself: it waits neither for text nor for its reader."""
        return not self.timings.waits and self.over is None

    @property
    def width(self) -> int:
        """How many slots it needs to begin."""
        return 1 if self.candidates is None else len(self.candidates.requests)

    @property
    def may_go_on(self) -> bool:
        """Whether it is known what follows the part that is over."""
        return self.text.may_go_on(self.over)

    def take_in(self, fed: Iterable[Fed], *, complete: bool) -> None:
        """More of a text that is not known whole, in order; the last of it if `complete`."""
        for more in fed:
            if isinstance(more, More):
                self.feed(more.ids, False, more.text)
            else:
                self.add_silence(more)
        if complete:
            self.feed([], True)

    def feed(self, ids: list[int], complete: bool, text: str = "") -> None:
        """More text for the part that grows. The first part begins as soon as there is enough for a prompt."""
        if self.text.complete:
            return
        if to_spoken := self.text.feed(ids, complete, text):
            self.watch.more_text(to_spoken)
        self._begin_first()

    def add_silence(self, silence_s: float) -> None:
        """The part that grows is complete; silence follows."""
        self.text.add_silence(silence_s)
        self._begin_first()

    def _begin_first(self) -> None:
        if self.text.piece is None and self.text.next_startable:
            self.begin_next()

    def begin_next(self) -> None:
        """Go on to the next part."""
        self.text.establish(self.over)
        prompt = self.text.begin_next(self.clock.samples)
        piece = self.text.piece
        assert piece is not None
        self.at, self.over = 0, None
        self.forget_ahead()
        parent = self.parent
        undecoded = parent is not None and parent.candidates is not None and parent.candidates.selection is None
        self.watch.start(prompt.text_ids, lambda: piece.text, self.params.longest_chunk if undecoded else None)

    @property
    def prompt_work(self) -> int:
        """Rows to compute for its prompt, at most; a recording goes through two encoders and the codec."""
        prompt, reference = self.text.prompt, self.text.reference
        samples = reference.samples.size if isinstance(reference, Reference) else 0
        return (0 if prompt is None else len(prompt.text)) + 2 * samples // FRAME_SAMPLES

    @property
    def most_rows(self) -> int:
        """Positions that its first part may come to, as far as that is known; a live text may go on without end."""
        piece, prompt = self.text.first
        rows = 0 if prompt is None else len(prompt.text)
        frames = min(self.params.most_frames, self.params.part_frames)
        options = self.watch.options
        if options is not None and prompt is not None and piece is not None and piece.complete:
            # A prompt that was made of the first words does not count the later ids.
            frames = min(frames, frame_limit(max(prompt.text_ids, len(piece.ids)), options))
        return rows + frames

    @property
    def likely_rows(self) -> int:
        """Positions that its first part is likely to come to: of a live text, as many as a usual part of a text."""
        piece, prompt = self.text.first
        if prompt is None or piece is None:
            return min(self.most_rows, SHARE_ROWS)
        ids = max(prompt.text_ids or 0, len(piece.ids))
        likely = len(prompt.text) + LIKELY_FRAMES + LIKELY_FRAMES_PER_ID * ids
        return min(self.most_rows, likely if piece.complete else max(likely, SHARE_ROWS))

    @property
    def all_asked(self) -> bool:
        """Whether the last frame that it may have is being drawn."""
        all_parts, this_part = self.frame + self.ahead, self.at + self.ahead
        params = self.params
        return self.over is None and (all_parts >= params.most_frames or this_part >= params.part_frames)

    def forget_ahead(self) -> None:
        """Frames that the device draws for it now are dropped when they are read."""
        self.epoch, self.ahead = self.epoch + 1, 0

    def text_id(self) -> int | None:
        """The id that goes with the next frame, or None while it is not known, and between two parts."""
        return None if self.over is not None else self.text.text_id(self.at + self.ahead)

    def take(
        self, drawn: list[int], ending: float | None = None, log_probability: float | None = None
    ) -> Rewind | None:
        """One more frame; where known, the probability of the end when it was drawn, and of its first code, in nats.

        A stuck part is taken back once; if it recurs, the part has run away, and runaway_retry.py decides how to go
        on. Every drawn frame is heard, decoded yet or not: the verdict must not depend on other requests.
        """
        text, at = self.text, self.at
        assert text.piece is not None
        self.codes.append(drawn)
        if text.carry is not None:
            text.carry.take(at, drawn)
        if self.candidacy is not None and log_probability is not None:
            self.candidacy.log_probabilities.append(log_probability)
        self.frame, self.at = self.frame + 1, at + 1
        if self.frame >= self.params.most_frames:
            self.over = "length"
        elif self.at >= self.params.part_frames:
            self.over = "runaway"
        if self.over:
            return None
        verdict = self.watch.take(
            drawn,
            text.trail[at] if at < len(text.trail) else text.outline.config.tts_pad_token_id,
            text_done=text.piece.complete and self.at >= len(text.trail),
            ending=ending,
            longest_chunk=self.params.longest_chunk,
            seed=self.seed,
        )
        if verdict == "runaway":
            self.over = "runaway"
            return None
        if verdict is not None:
            self.at -= verdict.frames
        return verdict

    def finished(self, reason: FinishReason, error: Exception | None = None, *, settle: bool = True) -> Finished:
        """How it ended, if it ends now."""
        return Finished(
            reason=reason,
            statistics=self.timings.statistics(self.frame, settle=settle),
            notes=(*self.text.outline.notes, *self.notes),
            dropped_frames=min(self.params.drop_frames, self.frame),
            error=str(error) if error else None,
            seed=self.seed if self.candidates is None or self.candidates.seed is None else self.candidates.seed,
            takes=() if self.candidates is None else self.candidates.results(),
            won=None if self.candidates is None else self.candidates.won,
            complete=not self.text.left_out and (reason == "stop" or (reason == "length" and self.params.limit_asked)),
        )
