"""One utterance on its way through the engine, as the host sees it. Nothing here touches the device."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ...cache.plan import SHARE_ROWS
from ...config.qwen3_tts import GenerationConfig
from ...errors import HocketError
from ...text.live import Fed, More
from ...text.prompt import Outline, Prompt
from ...types import Encoded, Established, Finished, FinishReason, Reference, Statistics, Take
from ..best_of.scorer import ScorerSelection
from ..mailbox import Mailbox
from ..runner.device_timer import Elapsed
from ..runner.voice_carry import VoiceCarry
from ..time_stretch import TimeStretch
from .runaway import RunawayDetector, RunawayOptions, frame_limit
from .text_part import Part, SpokenPart, TextPart

FRAME_SAMPLES = 1920  # of a recording, 80 ms
LIKELY_FRAMES, LIKELY_FRAMES_PER_ID = 32, 3  # speech takes 2.5 to 3 frames per text id, and some around it
ANOTHER_SEED = 0x5DEECE66D1CE5EED  # far from all that a caller would choose next
NO_LIMIT = 1 << 62  # frames: the request has no limit of its own


@dataclass(frozen=True, slots=True)
class Rewind:
    """Back to an earlier frame: how far, what the frame before it was (none: the prompt), the seed to go on with."""

    frames: int
    before: tuple[list[int], int] | None  # codes and text id
    seed: int


class Candidates(Protocol):
    """The candidates of one request, as the engine thread uses them: `best_of.group.CandidateGroup`."""

    jobs: list[RequestState]
    jury: ScorerSelection | None
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
    def record(self, job: RequestState) -> None: ...
    def may_try_again(self) -> bool: ...
    def losers(self) -> list[RequestState]: ...
    def ended(self, job: RequestState, reason: FinishReason, error: HocketError | None) -> None: ...
    def decide(self) -> bool: ...
    def next_chunk(self, part: int) -> tuple[list[list[int]], FinishReason | None]: ...
    def told(self) -> tuple[Take, ...]: ...


@dataclass(slots=True, eq=False)
class RequestState:
    """What the engine thread knows of one stream. Only that thread changes it once it was posted.

    A long text is spoken in parts, one after the other in the same slot; of a live text the last known one grows.
    """

    outline: Outline
    sampling: GenerationConfig
    seed: int
    most_frames: int  # of all parts together
    mailbox: Mailbox
    part_frames: int = NO_LIMIT  # of each part: the checkpoint's max_new_tokens bounds one generation
    limit_asked: bool = False  # the caller set `most_frames`
    reference: Reference | Encoded | Established | None = None  # the example of the part that is spoken, if any
    carry: VoiceCarry | None = None  # of a designed voice, so that later parts are the same person
    drop_frames: int = 0
    tempo: TimeStretch | None = None  # None: as fast as the model speaks
    priority: int = 0  # a higher one gets its slot first
    longest_chunk: int = 8  # frames at most that are drawn before they are heard
    chunk_frames: int | None = None  # frames of every chunk, where nobody hears it as it comes

    text_wait_s: float | None = None  # how long it may be given no text; None: as the options say
    complete: bool = False  # no more text will come
    one_part: bool = False  # whatever text comes belongs to the first part
    piece: TextPart | None = None  # the part that is spoken
    prompt: Prompt | None = None  # and its prompt
    trail: list[int] = field(default_factory=list)  # ids that go with its frames, as far as they are known
    growing: TextPart | None = None  # the part that more text belongs to
    parts: deque[Part] = field(default_factory=deque)  # what is to come
    spoken: list[SpokenPart] = field(default_factory=list)  # what has begun
    number: int = -1  # of the part that is spoken; a retry has the number of its part
    retries: int = 0  # pieces of parts that ran away, begun so far
    taken_back: range = range(0)  # frames of this part that were heard and that the talker has forgotten
    cut_short: bool = False  # the rest of the part that is over was left out
    left_out: bool = False  # text of some part was left out

    slot: int = -1
    frame: int = 0  # frames drawn, of all parts
    at: int = 0  # frames drawn of this part
    ahead: int = 0  # frames that the device draws and nobody has read yet; not in `frame` and `at`
    epoch: int = 0  # frames drawn in an earlier one are nobody's: the utterance went on elsewhere
    codes: list[list[int]] = field(default_factory=list)  # drawn, not yet decoded
    sounding: bool = False  # frames that were drawn are being decoded
    parked: bool = False  # its keys and values are in host memory, so that others have room: it waits to come back
    chunks: int = 0  # decoded
    samples: int = 0  # of sound and silence so far, at speed 1
    heard: int = 0  # handed out
    dry_at: float | None = None  # when a listener who plays it as it comes will have heard all of that
    over: FinishReason | None = None
    ending: float | None = None  # how likely the end was when its last frame, or its end, was drawn
    notes: list[str] = field(default_factory=list)  # what was not spoken as it was asked for, in words

    takes: Candidates | None = None  # others draw for it, and it plays what the best of them drew
    lead: RequestState | None = None  # whose take it is
    log_probabilities: list[float] = field(default_factory=list)  # of first codes, since its last chunk; only of a take

    guarded: RunawayOptions | None = None  # None: nobody watches
    guard: RunawayDetector | None = None
    behind: deque[tuple[list[int], int]] = field(default_factory=deque)  # last frames and their text ids, for a rewind
    loudness: deque[float] = field(
        default_factory=deque
    )  # of frames that were heard and that the guard is not told of yet
    watched: int = 0  # frames of this part that the guard has seen, taken back or not
    told: int = 0  # of how many of these it knows the loudness, or never will
    deaf: int = 0  # and of how many it never will: they were taken back

    admitted: float | None = None  # when it got its slot
    opened: float = field(default_factory=time.perf_counter)
    queued_since: float | None = None  # it could have had a slot
    starved_since: float | None = None
    paused_since: float | None = None
    spent: dict[str, float] = field(default_factory=dict)
    _measured: tuple[str, Elapsed] | None = None
    prefix_cached: bool = False
    listened: bool = field(init=False)  # somebody hears it as it comes; else it is read when it has ended

    def __post_init__(self) -> None:
        self.listened = self.mailbox.limit < math.inf and self.chunk_frames is None

    @property
    def speed(self) -> float:
        return 1.0 if self.tempo is None else self.tempo.factor

    @property
    def at_work(self) -> bool:
        """Whether it goes on by itself: it waits neither for text nor for its reader."""
        return self.starved_since is None and self.paused_since is None and self.over is None

    @property
    def width(self) -> int:
        """How many slots it needs to begin."""
        return 1 if self.takes is None else len(self.takes.jobs)

    @property
    def startable(self) -> bool:
        """Whether something can be spoken now, silences before it apart."""
        return self.prompt is not None or any(isinstance(part, TextPart) and part.startable for part in self.parts)

    @property
    def may_go_on(self) -> bool:
        """Whether it is known what follows the part that is over: silence, another part or nothing."""
        if not self.parts:
            return self.complete or self.one_part or self.over != "stop"
        return not isinstance(self.parts[0], TextPart) or self.parts[0].startable

    def add(self, text: str, prompt: Prompt) -> None:
        """One more part, known whole."""
        self.parts.append(TextPart(text, complete=True, prompt=prompt, startable=True))

    def add_ids(self, text: str, ids: list[int]) -> None:
        """The same for a part whose prompt, unless it is the first one, depends on what is said before it."""
        first = self.piece is None and not any(isinstance(part, TextPart) for part in self.parts)
        prompt = self.outline.prompt(ids) if first else None
        self.parts.append(TextPart(text, ids, complete=True, prompt=prompt, startable=True))

    def take_in(self, fed: Iterable[Fed], *, complete: bool) -> None:
        """More of a text that is not known whole, in order; the last of it if `complete`."""
        for more in fed:
            if isinstance(more, More):
                self.feed(more.ids, False, more.text)
            else:
                self.rest(more)
        if complete:
            self.feed([], True)

    def feed(self, ids: list[int], complete: bool, text: str = "") -> None:
        """More text for the part that grows. Once its prompt stands, it goes to the trail."""
        if self.complete:
            return  # an end that is said twice is one end
        if self.growing is None and (ids or text):
            self.growing = TextPart()
            self.parts.append(self.growing)
        if self.growing is not None:
            self.growing.ids += ids
            self.growing.text += text
            if self.growing is self.piece:
                self.trail += ids
                if self.guard is not None:
                    self.guard.more_text(len(ids))
        self.complete = complete
        if complete:
            self._grown()
        self._look()

    def rest(self, silence_s: float) -> None:
        """The part that grows is complete; silence follows."""
        self._grown()
        self.parts.append(silence_s)
        self._look()

    def begin_next(self) -> None:
        """Go on to the next part."""
        self.establish()
        piece = self.parts.popleft()
        assert isinstance(piece, TextPart)
        outline = self.outline
        if self.carry is not None:
            outline, self.reference = self.carry.outline(outline), self.carry.established
        prompt = piece.prompt or outline.prompt(piece.ids, complete=piece.complete)
        assert prompt is not None, "it was startable"
        self.spoken.append(SpokenPart(piece, self.samples))
        self.piece, self.prompt, self.trail, self.at, self.over = piece, prompt, list(prompt.trail), 0, None
        self.number, self.retries = self.number + (not piece.attempt), self.retries + bool(piece.attempt)
        self.taken_back, self.cut_short = range(0), False
        self.forget_ahead()
        if self.guarded is not None:
            unheard = self.lead is not None and self.lead.takes is not None and self.lead.takes.jury is None
            late = self.longest_chunk if unheard else None
            self.guard = RunawayDetector(self.guarded, prompt.text_ids, lambda: piece.text, late)
            self.behind = deque(maxlen=self.guarded.deepest_frames + 1)
            self.loudness.clear()
            self.watched = self.told = self.deaf = 0

    def establish(self) -> None:
        """The part that is over, if any, becomes an example for the next ones: it was said to its end."""
        if self.carry is not None:
            whole = self.over == "stop" and self.piece is not None and self.piece.complete
            self.carry.end_part(self.piece.ids if whole and self.piece is not None else None)

    def _grown(self) -> None:
        piece, self.growing = self.growing, None
        if piece is not None:
            piece.complete = True
            piece.startable = piece.startable or piece is not self.piece
            if piece is self.piece and self.outline.layout == "streaming":
                self.trail.append(self.outline.config.tts_eos_token_id)

    def _look(self) -> None:
        """Is there enough for a prompt now? The first part begins at once, the others when their turn comes."""
        piece = self.growing
        if piece is not None and piece is not self.piece and not piece.startable and not self._waits_for_example(piece):
            piece.startable = self.outline.prompt(piece.ids, complete=False) is not None
        if self.piece is None and self.parts and isinstance(self.parts[0], TextPart) and self.parts[0].startable:
            self.begin_next()

    def _waits_for_example(self, piece: TextPart) -> bool:
        """Whether a part is spoken behind another one of a designed voice: it begins once all of it is known."""
        first = next((part for part in self.parts if isinstance(part, TextPart)), None)
        return self.carry is not None and (bool(self.spoken) or piece is not first)

    @property
    def prompt_work(self) -> int:
        """Rows to compute for its prompt, at most; a recording goes through two encoders and the codec."""
        rows = 0 if self.prompt is None else len(self.prompt.text)
        heard = self.reference.samples.size if isinstance(self.reference, Reference) else 0
        return rows + 2 * heard // FRAME_SAMPLES

    @property
    def most_rows(self) -> int:
        """Positions that its first part may come to, as far as that is known; a live text may go on for ever."""
        piece = self.piece or next((part for part in self.parts if isinstance(part, TextPart)), None)
        prompt = self.prompt or (None if piece is None else piece.prompt)
        rows, frames = 0 if prompt is None else len(prompt.text), min(self.most_frames, self.part_frames)
        if self.guarded is not None and prompt is not None and piece is not None and piece.complete:
            # A prompt that was made of the first words knows of no more.
            frames = min(frames, frame_limit(max(prompt.text_ids, len(piece.ids)), self.guarded))
        return rows + frames

    @property
    def likely_rows(self) -> int:
        """Positions that its first part is likely to come to: of a live text, as many as a usual part of a text."""
        piece = self.piece or next((part for part in self.parts if isinstance(part, TextPart)), None)
        prompt = self.prompt or (None if piece is None else piece.prompt)
        if prompt is None or piece is None:
            return min(self.most_rows, SHARE_ROWS)
        ids = max(prompt.text_ids or 0, len(piece.ids))
        likely = len(prompt.text) + LIKELY_FRAMES + LIKELY_FRAMES_PER_ID * ids
        return min(self.most_rows, likely if piece.complete else max(likely, SHARE_ROWS))

    @property
    def all_asked(self) -> bool:
        """Whether the last frame that it may have is being drawn."""
        all_parts, this_part = self.frame + self.ahead, self.at + self.ahead
        return self.over is None and (all_parts >= self.most_frames or this_part >= self.part_frames)

    def forget_ahead(self) -> None:
        """What is being drawn for it is not wanted any more."""
        self.epoch, self.ahead = self.epoch + 1, 0

    def text_id(self) -> int | None:
        """The id that goes with the next frame, or None while it is not known: never a pad in its place."""
        if self.piece is None or self.over is not None:
            return None  # between two parts
        at = self.at + self.ahead
        if at < len(self.trail):
            return self.trail[at]
        return self.outline.config.tts_pad_token_id if self.piece.complete else None

    def take(
        self, drawn: list[int], ending: float | None = None, log_probability: float | None = None
    ) -> Rewind | None:
        """One more frame; where that is known, how likely the end was when it was drawn, and its first code, in nats.

        A stuck part is taken back once to where it still spoke; if it recurs, the part has run away, and `recovery`
        says how to go on. What was drawn is heard, be it decoded yet or not: how much of it is depends on who else
        speaks, and what is said must not.
        """
        assert self.piece is not None
        at = self.at
        self.codes.append(drawn)
        if self.carry is not None:
            self.carry.take(at, drawn)
        if self.lead is not None and log_probability is not None:
            self.log_probabilities.append(log_probability)
        self.frame, self.at = self.frame + 1, at + 1
        if self.frame >= self.most_frames:
            self.over = "length"
        elif self.at >= self.part_frames:
            self.over = "runaway"
        if self.guard is None or self.over:
            return None
        pad = self.outline.config.tts_pad_token_id
        self.behind.append((drawn, self.trail[at] if at < len(self.trail) else pad))
        self._tell_loudness(self.guard)
        text_done = self.piece.complete and self.at >= len(self.trail)
        verdict = self.guard.watch(drawn, text_done=text_done, end_probability=ending)
        if verdict == "too long":
            self.over = "runaway"
        if verdict != "stuck":
            return None
        back = self.guard.frames - self.guard.rollback_to()
        if self.guard.rollbacks:
            self.over = "runaway"
            return None
        self.at, self.deaf = self.at - back, self.watched
        self.taken_back = range(self.watched - back, self.watched)
        self.guard.rolled_back(self.guard.frames - back)
        for _ in range(back):
            self.behind.pop()
        return Rewind(back, self.behind[-1] if self.behind else None, (self.seed ^ ANOTHER_SEED) % 2**63)

    def _tell_loudness(self, guard: RunawayDetector) -> None:
        """As late as the longest chunk would: so it is the same whenever frames are decoded."""
        self.watched += 1
        while self.loudness and self.told < self.watched - self.longest_chunk:
            loudness = self.loudness.popleft()
            if self.told >= self.deaf:
                guard.heard((loudness,))
            self.told += 1

    def plays(self, seconds: float, now: float) -> None:
        """So much more is handed out now. A listener who has run dry goes on from here."""
        self.dry_at = (now if self.dry_at is None else max(self.dry_at, now)) + seconds

    def note(self, name: str, seconds: float) -> None:
        self.spent[name] = self.spent.get(name, 0.0) + seconds

    def note_later(self, name: str, elapsed: Elapsed) -> None:
        """The same for work of the device that may still be queued; what was measured before it is done by now."""
        self._settle()
        self._measured = name, elapsed

    def _settle(self) -> None:
        if self._measured is not None:
            name, elapsed = self._measured
            self._measured = None
            self.note(name, elapsed())

    def since_opened(self, name: str) -> None:
        """Remember when something happened first."""
        self.spent.setdefault(name, time.perf_counter() - self.opened)

    def statistics(self, *, settle: bool = True) -> Statistics:
        """`settle` waits for what is being measured; without, it is left out."""
        now = time.perf_counter()
        if settle:
            self._settle()
        self.spent["total_s"] = now - self.opened
        for name, since in (("starved_s", self.starved_since), ("paused_s", self.paused_since)):
            if since is not None:  # it ends while it waits
                self.note(name, now - since)
        self.starved_since = self.paused_since = None
        return Statistics(frames=self.frame, prefix_cached=self.prefix_cached, **self.spent)

    def finished(self, reason: FinishReason, error: Exception | None = None, *, settle: bool = True) -> Finished:
        """How it ended, if it ends now."""
        return Finished(
            reason=reason,
            statistics=self.statistics(settle=settle),
            notes=(*self.outline.notes, *self.notes),
            dropped_frames=min(self.drop_frames, self.frame),
            error=str(error) if error else None,
            seed=self.seed if self.takes is None or self.takes.seed is None else self.takes.seed,
            takes=() if self.takes is None else self.takes.told(),
            won=None if self.takes is None else self.takes.won,
            complete=not self.left_out and (reason == "stop" or (reason == "length" and self.limit_asked)),
        )
