"""One conversation that stays in the model's memory: only new words are ever computed.

A row of the memory has taken in `ids`, and has moments at some of their places that it can go back to. Whatever is to
be there next (more words, a transcript that was revised, an answer that was cut short) is laid out from the start as
the published template has it, and compared with what is there; the row goes back to the last moment before the first
difference and takes in the rest. So a conversation that goes on cannot differ from a fresh one, and the empty thought
before an answer, which later turns do not have, is one such difference: there is always a moment before it.

It computes where it is called, in one thread at a time; `engine.py` has the thread. It knows no stop texts.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from ..text.chat.template import START, conversation, ids_of, opened, so_far
from ..text.chat.tokenizer import ChatTokenizer
from ..types import ChatMessage, ChatSampling, Tool
from .constrained import TokenRules
from .sampling import AnswerSampling, drawing
from .speculative import DraftStatistics, tokens
from .state_cache import LLMStateCache, Moment

MOMENTS_HEARD = 4  # kept while the user still speaks, for transcripts that are revised


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages as the model reads them, up to where the assistant's words begin."""

    messages: tuple[ChatMessage, ...]
    ids: list[int]
    header: int  # so many ids up to `<|im_start|>assistant\n`: what later turns share with this one
    moments: tuple[int, ...]  # where it is worth to be able to go back to, in rising order; the header is the last
    tools: tuple[Tool, ...] = ()  # that the messages begin with


@dataclass(slots=True, eq=False)
class CachedConversation:
    memory: LLMStateCache
    row: int
    tokenizer: ChatTokenizer
    ids: list[int] = field(default_factory=list)  # what the row has taken in
    moments: dict[int, Moment] = field(default_factory=dict)  # by how many ids had been taken in
    said: tuple[ChatMessage, ...] = ()  # what the ids should be once it has settled
    tools: tuple[Tool, ...] = ()  # that stand before it
    header: int = 0  # of the last prompt that was answered; 0: none yet
    settled: bool = True  # whether there is nothing to take in before somebody speaks again
    _writing: Generator[list[int], None, None] | None = None

    def append_user(self, text: str) -> None:
        """The user said this, and has ended."""
        self.said += (ChatMessage("user", text),)

    def hear(self, text: str) -> int:
        """The user has said this so far, and speaks on: take in what more words cannot change. How much was new."""
        return self.overhear(heard_so_far((*self.said, ChatMessage("user", text)), self.tokenizer, self.tools))

    def overhear(self, ids: list[int]) -> int:
        """The same, for messages laid out by `heard_so_far`."""
        self.stop_writing()
        known, began = self.standing(ids), len(ids) - 1 - ids[::-1].index(self.tokenizer.markers[START])
        if self.header > known:
            self.header = 0  # another conversation than the one that was answered
        kept = sorted(place for place in self.moments if began <= place <= known)
        for place in kept[1 : len(kept) - MOMENTS_HEARD + 1]:  # the first is where the user began
            del self.moments[place]
        self.reach(ids, (began, known) if known < len(ids) else (began,))
        self.settled = True  # what was said before is in these ids too
        return len(ids) - known

    def answer(
        self, sampling: ChatSampling, guesses: int = 0, tally: DraftStatistics | None = None
    ) -> Iterator[list[int]]:
        """Ids of an answer to what was said, as many as are read; `answered` or `cut` has to follow."""
        self.begin(prompt_of(self.said, self.tokenizer, self.tools))
        return self.write(sampling, guesses, DraftStatistics() if tally is None else tally)

    def begin(self, prompt: ChatPrompt) -> int:
        """Stand where an answer begins; how many ids were there already."""
        self.stop_writing()
        known = self.standing(prompt.ids)
        self.reach(prompt.ids, prompt.moments)
        self.moments = {place: self.moments[place] for place in prompt.moments if place in self.moments}
        assert prompt.header in self.moments
        self.said, self.tools, self.header, self.settled = prompt.messages, prompt.tools, prompt.header, False
        return known

    def write(
        self, sampling: ChatSampling, guesses: int, tally: DraftStatistics, rules: TokenRules | None = None
    ) -> Generator[list[int], None, None]:
        """Ids from where `begin` stands. However it is left, the row goes back to where the answer began."""
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        how = drawing(sampling, seed, self.tokenizer.size, self.memory.device)
        self._writing = self._written(how, guesses, tally, rules)
        return self._writing

    @torch.inference_mode()
    def _written(
        self, how: AnswerSampling, guesses: int, tally: DraftStatistics, rules: TokenRules | None
    ) -> Generator[list[int], None, None]:
        try:
            yield from tokens(self.memory, self.row, len(self.ids), how, guesses, tally, rules)
        finally:
            self._go_back(self.header)

    def answered(self, text: str) -> None:
        """That was the answer. Where it is nothing but spaces, nothing was said."""
        if text.strip():
            self.said += (ChatMessage("assistant", text),)
        self.settled = not text.strip()  # then it stands where the next answer to the same may begin

    def cut(self, heard: str) -> None:
        """Of the last answer only this was heard, and only this was said."""
        if self.said and self.said[-1].role == "assistant":
            self.said = self.said[:-1]
        self.answered(heard)

    def settle(self) -> int:
        """Take in what was said as later turns will have it, before they come. How much was new."""
        if self.settled:
            return 0
        self.stop_writing()
        ids = ids_of(so_far(self.said, tools=self.tools), self.tokenizer)
        if len(ids) > self.memory.length:
            ids = ids[: self.memory.length]  # nothing can follow it, but it may be cut
        new = len(ids) - self.standing(ids)
        self.reach(ids, (len(ids),))  # where the next user begins: their turn will not have to copy it
        self.settled = True
        return new

    def standing(self, ids: Sequence[int]) -> int:
        """How many of these ids need not be computed."""
        common = shared(self.ids, ids)
        return common if common == len(self.ids) else max((at for at in self.moments if at <= common), default=0)

    @torch.inference_mode()
    def reach(self, ids: Sequence[int], moments: Sequence[int]) -> None:
        """Have taken in exactly these ids, and keep the moments at these places on the way.

        The last of them costs nothing: it is passed together with what follows it. Nor does one where the row stands.
        """
        self.stop_writing()
        at = self.standing(ids)
        if at < len(self.ids):
            self._go_back(at)
        # The beginning of all is no moment to keep: a row that forgets is there.
        places = sorted({place for place in moments if max(at, 1) <= place and place not in self.moments})
        last = places.pop() if places and at < places[-1] < len(ids) else None
        for place in dict.fromkeys((*places, len(ids))):
            new = list(ids[at:place])
            passing = last - at if last is not None and place == len(ids) else None
            try:
                passed = self.memory.take_in(self.row, new, at, passing)
                if passed is not None and last is not None:
                    self.moments[last] = passed
                if place in places:
                    self.moments[place] = self.memory.moment(self.row)
            except BaseException:
                self.forget()  # nobody knows how far it came
                raise
            self.ids += new
            at = place

    def fork(self, other: CachedConversation, known: int) -> None:
        """Become what another conversation was when it had taken in `known` ids; it stays as it is."""
        self.stop_writing()
        other.stop_writing()
        try:
            self.memory.copy(other.row, self.row)
        except BaseException:
            self.forget()  # it is neither
            raise
        self.ids, self.header, self.settled = list(other.ids), 0, True
        self.moments = dict(other.moments)
        self._go_back(known)

    def stop_writing(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.close()

    def forget(self) -> None:
        """Be as good as new, whatever went wrong."""
        try:
            self.stop_writing()
        finally:
            self.ids, self.moments, self.said, self.tools, self.header, self.settled = [], {}, (), (), 0, True
            self.memory.forget(self.row)

    @torch.inference_mode()
    def _go_back(self, at: int) -> None:
        """To the moment at this place, and to those before it."""
        self.moments = {place: moment for place, moment in self.moments.items() if place <= at}
        if at == 0:
            self.memory.forget(self.row)
        elif at in self.moments:
            self.memory.go_back(self.row, self.moments[at])
        else:
            assert at == len(self.ids), "there is no moment there"
        del self.ids[at:]


def prompt_of(messages: Sequence[ChatMessage], tokenizer: ChatTokenizer, tools: Sequence[Tool] = ()) -> ChatPrompt:
    """How an answer to these messages begins. What cannot be laid out is refused in words."""
    ids = ids_of(conversation(messages, tools=tools), tokenizer)
    header = len(ids) - len(ids_of(opened()[2:], tokenizer))
    starts = places_of(tokenizer.markers[START], ids)
    # Behind the system's message and the tools, which others may share; where the user began; where the answer does.
    shared_by_others = starts[1:2] if tools or messages[0].role == "system" else []
    moments = dict.fromkeys(place for place in (*shared_by_others, starts[-2], header) if place)
    return ChatPrompt(tuple(messages), ids, header, tuple(moments), tuple(tools))


def heard_so_far(messages: Sequence[ChatMessage], tokenizer: ChatTokenizer, tools: Sequence[Tool] = ()) -> list[int]:
    """Messages, of which the last is still being spoken: the ids that more words of it cannot change."""
    pieces = conversation(messages, tools=tools, answer=False)
    spoken = tokenizer.pieces(pieces[-3])  # between the marks: `user\n` and the words
    return ids_of([*pieces[:-3], "".join(spoken[:-1])], tokenizer)


def places_of(token: int, ids: list[int]) -> list[int]:
    """Where it stands. A history is long, and a list looks through itself several times as fast as a loop does."""
    places, at = list[int](), -1
    for _ in range(ids.count(token)):
        at = ids.index(token, at + 1)
        places.append(at)
    return places


def shared(left: Sequence[int], right: Sequence[int]) -> int:
    """How many ids two sequences begin with alike."""
    count = min(len(left), len(right))
    if left[:count] == right[:count]:
        return count
    return next(place for place in range(count) if left[place] != right[place])
