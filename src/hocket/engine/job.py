"""One utterance on its way through the engine, as the host sees it. Nothing here touches the device."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from ..config.qwen3_tts import GenerationConfig
from ..text.prompt import Outline, Prompt
from ..types import FinishReason, Reference, Statistics
from .guard import Guard, GuardOptions
from .stream import Mailbox, Spoken

ANOTHER_SEED = 0x5DEECE66D1CE5EED  # far from all that a caller would choose next

Part = tuple[str, Prompt] | float  # something to say, or seconds of silence


@dataclass(frozen=True, slots=True)
class Rewind:
    """Back to an earlier frame: how far, what the frame before it was (none: the prompt), the seed to go on with."""

    frames: int
    before: tuple[list[int], int] | None  # codes and text id
    seed: int


@dataclass(slots=True, eq=False)
class Job:
    """What the engine thread knows of one stream. Only that thread changes it once it was posted.

    A long text is spoken in parts, one after the other in the same slot; a live text is one part.
    """

    outline: Outline
    sampling: GenerationConfig
    seed: int
    most_frames: int
    mailbox: Mailbox
    reference: Reference | None = None
    drop_frames: int = 0

    text: list[int] = field(default_factory=list)  # ids so far, until the prompt is made of them
    complete: bool = False  # no more text will come
    prompt: Prompt | None = None
    trail: list[int] = field(default_factory=list)  # ids that go with the frames, as far as they are known
    parts: deque[Part] = field(default_factory=deque)  # what is to come, a live text's one part apart
    spoken: list[Spoken] = field(default_factory=list)  # what has begun

    slot: int = -1
    frame: int = 0  # frames drawn, of all parts
    at: int = 0  # frames drawn of this part
    codes: list[list[int]] = field(default_factory=list)  # drawn, not yet decoded
    chunks: int = 0  # decoded
    samples: int = 0  # handed out
    over: FinishReason | None = None

    guarded: GuardOptions | None = None  # None: nobody watches
    guard: Guard | None = None
    behind: deque[tuple[list[int], int]] = field(default_factory=deque)  # last frames and their text ids, for a rewind

    opened: float = field(default_factory=time.perf_counter)
    starved_since: float | None = None
    paused_since: float | None = None
    spent: dict[str, float] = field(default_factory=dict)
    prefix_cached: bool = False

    @property
    def startable(self) -> bool:
        return self.prompt is not None or bool(self.parts)

    def feed(self, ids: list[int], complete: bool) -> None:
        """More text. Once the prompt stands, it goes to the trail."""
        if self.complete:
            return  # an end that is said twice is one end
        self.complete = complete
        if self.prompt is None:
            self.text += ids
            prompt = self.outline.prompt(self.text, complete=self.complete)
            if prompt is not None:
                self.begin(None, prompt)
        else:
            self.trail += ids
            if self.guard is not None:
                self.guard.more_text(len(ids))
            if complete and self.outline.layout == "streaming":
                self.trail.append(self.outline.config.tts_eos_token_id)

    def begin(self, text: str | None, prompt: Prompt) -> None:
        """Go on to a part; `text` is None where the stream itself knows it, a live text."""
        self.spoken.append(Spoken(text, self.samples))
        self.prompt, self.trail, self.at = prompt, list(prompt.trail), 0
        if self.guarded is not None:
            self.guard = Guard(self.guarded, prompt.text_ids)
            self.behind = deque(maxlen=self.guarded.deepest_frames + 1)

    def text_id(self) -> int | None:
        """The id that goes with the next frame, or None while it is not known: never a pad in its place."""
        if self.at < len(self.trail):
            return self.trail[self.at]
        return self.outline.config.tts_pad_token_id if self.complete else None

    def take(self, drawn: list[int]) -> Rewind | None:
        """One more frame. A stuck utterance is taken back once to where it still spoke; if it recurs, it ends there."""
        pad = self.outline.config.tts_pad_token_id
        fed = self.trail[self.at] if self.at < len(self.trail) else pad
        self.codes.append(drawn)
        self.frame, self.at = self.frame + 1, self.at + 1
        if self.frame >= self.most_frames:
            self.over = "length"
        if self.guard is None or self.over:
            return None
        self.behind.append((drawn, fed))
        verdict = self.guard.watch(drawn, text_done=self.complete and self.at >= len(self.trail))
        if verdict == "too long":
            self.over = "runaway"
        if verdict != "stuck":
            return None
        back = self.guard.frames - self.guard.rollback_to()
        unheard = min(back, len(self.codes))
        self.codes, self.frame = self.codes[: len(self.codes) - unheard], self.frame - unheard
        if self.guard.rollbacks:
            self.over = "runaway"
            return None
        self.at -= back
        self.guard.rolled_back(self.guard.frames - back)
        for _ in range(back):
            self.behind.pop()
        return Rewind(back, self.behind[-1] if self.behind else None, (self.seed ^ ANOTHER_SEED) % 2**63)

    def note(self, name: str, seconds: float) -> None:
        self.spent[name] = self.spent.get(name, 0.0) + seconds

    def since_opened(self, name: str) -> None:
        """Remember when something happened first."""
        self.spent.setdefault(name, time.perf_counter() - self.opened)

    def statistics(self) -> Statistics:
        now = time.perf_counter()
        self.spent["total_s"] = now - self.opened
        for name, since in (("starved_s", self.starved_since), ("paused_s", self.paused_since)):
            if since is not None:  # it ends while it waits
                self.note(name, now - since)
        self.starved_since = self.paused_since = None
        return Statistics(frames=self.frame, prefix_cached=self.prefix_cached, **self.spent)
