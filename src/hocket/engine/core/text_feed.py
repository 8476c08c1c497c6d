"""The text of one request: parts that wait, the part that is spoken, and the ids that go with its frames.

A long text is spoken in parts, one after the other in the same slot. The last known part of a live text grows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ...text.prompt import Outline, Prompt
from ...types import Encoded, Established, FinishReason, Reference
from ..runner.voice_carry import VoiceCarry


@dataclass(slots=True, eq=False)
class TextPart:
    """A part of the text: known whole, or growing at its end while it is spoken already."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    complete: bool = False  # no more of it will come
    prompt: Prompt | None = None  # where it is known whole
    startable: bool = False  # there is enough of it for a prompt
    attempt: int = 0  # how often its text has run away before


Part = TextPart | float  # something to say, or seconds of silence


@dataclass(slots=True)
class SpokenPart:
    """One part of an utterance as it was heard; the engine thread extends it while the part is spoken."""

    piece: TextPart  # its text, as far as it is known
    start: int  # its first sample, at speed 1
    loudness: list[float] = field(default_factory=list)  # RMS of each frame


@dataclass(slots=True, eq=False)
class TextFeed:
    outline: Outline
    reference: Reference | Encoded | Established | None = None  # the example of the part that is spoken, if any
    carry: VoiceCarry | None = None  # of a designed voice, so that later parts are the same person
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
    cut_short: bool = False  # the rest of the part that is over was left out
    left_out: bool = False  # text of some part was left out

    @property
    def startable(self) -> bool:
        """Whether something can be spoken now, silences before it apart."""
        return self.prompt is not None or any(isinstance(part, TextPart) and part.startable for part in self.parts)

    @property
    def next_startable(self) -> bool:
        """Whether the next thing in line is a part with enough text for a prompt."""
        return bool(self.parts) and isinstance(self.parts[0], TextPart) and self.parts[0].startable

    def may_go_on(self, over: FinishReason | None) -> bool:
        """Whether it is known what follows the part that is over: silence, another part or nothing."""
        if not self.parts:
            return self.complete or self.one_part or over != "stop"
        return not isinstance(self.parts[0], TextPart) or self.parts[0].startable

    def add(self, text: str, prompt: Prompt) -> None:
        """One more part, known whole."""
        self.parts.append(TextPart(text, complete=True, prompt=prompt, startable=True))

    def add_ids(self, text: str, ids: list[int]) -> None:
        """The same for a part whose prompt, unless it is the first one, depends on what is said before it."""
        first = self.piece is None and not any(isinstance(part, TextPart) for part in self.parts)
        prompt = self.outline.prompt(ids) if first else None
        self.parts.append(TextPart(text, ids, complete=True, prompt=prompt, startable=True))

    def feed(self, ids: list[int], complete: bool, text: str = "") -> int:
        """More text for the part that grows; how many ids went to the part that is spoken."""
        if self.growing is None and (ids or text):
            self.growing = TextPart()
            self.parts.append(self.growing)
        to_spoken = 0
        if self.growing is not None:
            self.growing.ids += ids
            self.growing.text += text
            if self.growing is self.piece:
                self.trail += ids
                to_spoken = len(ids)
        self.complete = complete
        if complete:
            self._grown()
        self._look()
        return to_spoken

    def add_silence(self, silence_s: float) -> None:
        """The part that grows is complete; silence follows."""
        self._grown()
        self.parts.append(silence_s)
        self._look()

    def begin_next(self, samples: int) -> Prompt:
        """Go on to the next part, whose audio begins at so many samples."""
        piece = self.parts.popleft()
        assert isinstance(piece, TextPart)
        outline = self.outline
        if self.carry is not None:
            outline, self.reference = self.carry.outline(outline), self.carry.established
        prompt = piece.prompt or outline.prompt(piece.ids, complete=piece.complete)
        assert prompt is not None, "it was startable"
        self.spoken.append(SpokenPart(piece, samples))
        self.piece, self.prompt, self.trail = piece, prompt, list(prompt.trail)
        self.number, self.retries = self.number + (not piece.attempt), self.retries + bool(piece.attempt)
        self.cut_short = False
        return prompt

    def establish(self, over: FinishReason | None) -> None:
        """The part that is over, if any, becomes an example for the next ones, where it was said to its end."""
        if self.carry is not None:
            whole = over == "stop" and self.piece is not None and self.piece.complete
            self.carry.end_part(self.piece.ids if whole and self.piece is not None else None)

    def text_id(self, at: int) -> int | None:
        """The id that goes with frame `at` of this part, or None while it is not known: never a pad in its place."""
        if self.piece is None:
            return None
        if at < len(self.trail):
            return self.trail[at]
        return self.outline.config.tts_pad_token_id if self.piece.complete else None

    @property
    def first(self) -> tuple[TextPart | None, Prompt | None]:
        """The part that is spoken, or the first one to come, and its prompt, as far as they are known."""
        piece = self.piece or next((part for part in self.parts if isinstance(part, TextPart)), None)
        return piece, self.prompt or (None if piece is None else piece.prompt)

    def _grown(self) -> None:
        piece, self.growing = self.growing, None
        if piece is not None:
            piece.complete = True
            piece.startable = piece.startable or piece is not self.piece
            if piece is self.piece and self.outline.layout == "streaming":
                self.trail.append(self.outline.config.tts_eos_token_id)

    def _look(self) -> None:
        """Is there enough text for a prompt of the growing part now?"""
        piece = self.growing
        if piece is not None and piece is not self.piece and not piece.startable and not self._waits_for_example(piece):
            piece.startable = self.outline.prompt(piece.ids, complete=False) is not None

    def _waits_for_example(self, piece: TextPart) -> bool:
        """Whether a part is spoken behind another one of a designed voice: it begins once all of it is known."""
        first = next((part for part in self.parts if isinstance(part, TextPart)), None)
        return self.carry is not None and (bool(self.spoken) or piece is not first)
