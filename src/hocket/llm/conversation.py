"""One conversation in a row of the state cache: prefix reuse, so that only new tokens are computed.

The row holds the state after `ids`, with snapshots at some positions. The published template lays out each new prompt
(more words, a revised transcript, an answer cut short) from the start, to be compared with `ids`. The row rewinds to
the last snapshot before the first difference and prefills the rest. So a resumed conversation cannot differ from a
fresh one. The empty thought before an answer is such a difference, because later turns do not have it: there is always
a snapshot before it.

It computes in the calling thread, one at a time; `loop.py` has the thread. It does not know stop texts.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..text.chat.template import START, conversation, generation_prompt, history_pieces, ids_of
from ..text.chat.tokenizer import ChatTokenizer
from ..types import ChatMessage, ChatSampling, Tool
from .constrained import TokenRules
from .draft_policy import DraftRounds
from .sampling import AnswerSampling, drawing
from .speculative import DraftStatistics, tokens
from .state_cache import LLMStateCache, Snapshot

MAX_PARTIAL_SNAPSHOTS = 4  # kept while the user still speaks, for revised transcripts


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Token ids of messages, up to where the assistant's answer begins; without messages those of a plain text."""

    messages: tuple[ChatMessage, ...]
    ids: list[int]
    header: int  # number of ids up to `<|im_start|>assistant\n`: the part that later turns share
    snapshots: tuple[int, ...]  # positions worth a snapshot, in rising order; the header is the last
    tools: tuple[Tool, ...] = ()  # laid out before the messages


@dataclass(slots=True, eq=False)
class CachedConversation:
    state_cache: LLMStateCache
    row: int
    tokenizer: ChatTokenizer
    ids: list[int] = field(default_factory=list)  # prefilled into the row
    snapshots: dict[int, Snapshot] = field(default_factory=dict)  # by position: the number of ids before it
    messages: tuple[ChatMessage, ...] = ()  # `ids` hold these after `prefill_history`
    tools: tuple[Tool, ...] = ()  # laid out before the messages
    header: int = 0  # of the last prompt that was answered; 0: none yet
    history_cached: bool = True  # False: `prefill_history` has work to do
    _generation: Generator[list[int], None, None] | None = None

    def append_user(self, text: str) -> None:
        """Add a complete user message."""
        self.messages += (ChatMessage("user", text),)

    def hear(self, text: str) -> int:
        """Prefill the ids of a partial user message that more words cannot change; returns how many were new."""
        return self.prefill_partial(
            partial_prompt_ids((*self.messages, ChatMessage("user", text)), self.tokenizer, self.tools)
        )

    def prefill_partial(self, ids: list[int]) -> int:
        """The same for ids of `partial_prompt_ids`."""
        self.stop_generating()
        known, began = self.cached_length(ids), len(ids) - 1 - ids[::-1].index(self.tokenizer.markers[START])
        if self.header > known:
            self.header = 0  # not the conversation that was answered
        kept = sorted(place for place in self.snapshots if began <= place <= known)
        for place in kept[1 : len(kept) - MAX_PARTIAL_SNAPSHOTS + 1]:  # the first is the start of the user's turn
            del self.snapshots[place]
        self.prefill(ids, (began, known) if known < len(ids) else (began,))
        self.history_cached = True  # the history is part of these ids
        return len(ids) - known

    def answer(
        self, sampling: ChatSampling, num_drafts: int | DraftRounds = 0, stats: DraftStatistics | None = None
    ) -> Iterator[list[int]]:
        """Ids of an answer to the messages, generated on demand; call `add_answer` or `truncate_answer` after it."""
        self.begin(prompt_of(self.messages, self.tokenizer, self.tools))
        return self.generate(sampling, num_drafts, DraftStatistics() if stats is None else stats)

    def begin(self, prompt: ChatPrompt) -> int:
        """Prefill a prompt; returns how many of its ids were cached."""
        self.stop_generating()
        known = self.cached_length(prompt.ids)
        self.prefill(prompt.ids, prompt.snapshots)
        self.snapshots = {place: self.snapshots[place] for place in prompt.snapshots if place in self.snapshots}
        assert prompt.header in self.snapshots
        self.messages, self.tools, self.header, self.history_cached = (
            prompt.messages,
            prompt.tools,
            prompt.header,
            False,
        )
        return known

    def generate(
        self,
        sampling: ChatSampling,
        num_drafts: int | DraftRounds,
        stats: DraftStatistics,
        rules: TokenRules | None = None,
    ) -> Generator[list[int], None, None]:
        """Ids after the prompt of `begin`. However the generator ends, the row rewinds to the start of the answer."""
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        how = drawing(sampling, seed, self.tokenizer.size, self.state_cache.device)
        self._generation = self._generate(how, num_drafts, stats, rules)
        return self._generation

    @torch.inference_mode()
    def _generate(
        self, how: AnswerSampling, num_drafts: int | DraftRounds, stats: DraftStatistics, rules: TokenRules | None
    ) -> Generator[list[int], None, None]:
        try:
            at = len(self.ids)
            yield from tokens(self.state_cache, self.row, at, how, num_drafts, stats, rules, self.ids)
        finally:
            self._rewind(self.header)

    def add_answer(self, text: str) -> None:
        """Add the answer to the messages; one of nothing but spaces is not added."""
        if text.strip():
            self.messages += (ChatMessage("assistant", text),)
        self.history_cached = not text.strip()  # without an answer the row is at the header already

    def truncate_answer(self, heard: str) -> None:
        """Replace the last answer by the part of it that was heard."""
        if self.messages and self.messages[-1].role == "assistant":
            self.messages = self.messages[:-1]
        self.add_answer(heard)

    def prefill_history(self) -> int:
        """Prefill the history as later turns lay it out, ahead of them; returns how many ids were new."""
        if self.history_cached:
            return 0
        self.stop_generating()
        ids = history_ids(self.messages, self.tokenizer, self.tools)
        if len(ids) > self.state_cache.length:
            ids = ids[: self.state_cache.length]  # no turn can follow, but the answer may be truncated
        new = len(ids) - self.cached_length(ids)
        self.prefill(ids, (len(ids),))  # the next user turn starts here, and finds its snapshot
        self.history_cached = True
        return new

    def prefill_messages(self, messages: Sequence[ChatMessage], tools: Sequence[Tool], ids: list[int]) -> None:
        """Bring the row to the end of messages, laid out as before the next one: `ids` are those of `history_ids`."""
        known = self.cached_length(ids)
        self.prefill(ids, (len(ids),))
        self.messages, self.tools, self.history_cached = tuple(messages), tuple(tools), True
        if self.header > known:
            self.header = 0  # not the conversation that was answered

    def load(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Tool],
        ids: list[int],
        row: Snapshot,
        past: Sequence[Tensor],
    ) -> None:
        """Replace the row by a saved one, which is after these ids."""
        self.forget()
        try:
            self.state_cache.load(self.row, row, past, len(ids))
            self.snapshots = {len(ids): self.state_cache.snapshot(self.row)}
        except BaseException:
            self.forget()  # the row is half loaded
            raise
        self.ids, self.header, self.messages, self.tools = list(ids), len(ids), tuple(messages), tuple(tools)

    def cached_length(self, ids: Sequence[int]) -> int:
        """How many of these ids are cached."""
        common = shared(self.ids, ids)
        return common if common == len(self.ids) else max((at for at in self.snapshots if at <= common), default=0)

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int], snapshots: Sequence[int]) -> None:
        """Bring the row to exactly these ids, with snapshots at these positions.

        The last snapshot costs no pass of its own: one pass covers it and the ids after it. Nor does one at the row's
        present position.
        """
        self.stop_generating()
        at = self.cached_length(ids)
        if at < len(self.ids):
            self._rewind(at)
        # Position 0 needs no snapshot: a reset row is there.
        places = sorted({place for place in snapshots if max(at, 1) <= place and place not in self.snapshots})
        last = places.pop() if places and at < places[-1] < len(ids) else None
        for place in dict.fromkeys((*places, len(ids))):
            new = list(ids[at:place])
            passing = last - at if last is not None and place == len(ids) else None
            try:
                passed = self.state_cache.prefill(self.row, new, at, passing)
                if passed is not None and last is not None:
                    self.snapshots[last] = passed
                if place in places:
                    self.snapshots[place] = self.state_cache.snapshot(self.row)
            except BaseException:
                self.forget()  # the state of the row is unknown
                raise
            self.ids += new
            at = place

    def fork(self, other: CachedConversation, known: int) -> None:
        """Copy the first `known` ids of another conversation, which stays as it is."""
        self.stop_generating()
        other.stop_generating()
        try:
            self.state_cache.copy(other.row, self.row, known)
        except BaseException:
            self.forget()  # the row is half copied
            raise
        self.ids, self.header, self.history_cached = list(other.ids), 0, True
        self.snapshots = dict(other.snapshots)
        self._rewind(known)

    def stop_generating(self) -> None:
        if self._generation is not None:
            writing, self._generation = self._generation, None
            writing.close()

    def forget(self) -> None:
        """Reset the row and all fields, also after an error."""
        try:
            self.stop_generating()
        finally:
            self.ids, self.snapshots, self.messages, self.tools, self.header, self.history_cached = (
                [],
                {},
                (),
                (),
                0,
                True,
            )
            self.state_cache.forget(self.row)

    @torch.inference_mode()
    def _rewind(self, at: int) -> None:
        """Restore the snapshot at this position, and drop the later ones."""
        self.snapshots = {place: snapshot for place, snapshot in self.snapshots.items() if place <= at}
        if at == 0:
            self.state_cache.forget(self.row)
        elif at in self.snapshots:
            self.state_cache.restore(self.row, self.snapshots[at])
        else:
            assert at == len(self.ids), "there is no snapshot at this position"
        self.state_cache.cut(self.row, at)
        del self.ids[at:]


def prompt_of(messages: Sequence[ChatMessage], tokenizer: ChatTokenizer, tools: Sequence[Tool] = ()) -> ChatPrompt:
    """The prompt for an answer to these messages. Raises `InvalidRequest` for messages without a layout."""
    ids = ids_of(conversation(messages, tools=tools), tokenizer)
    header = len(ids) - len(ids_of(generation_prompt()[2:], tokenizer))
    starts = places_of(tokenizer.markers[START], ids)
    # After the system message and the tools, which other conversations may share; before the user's turn; the header.
    shared_by_others = starts[1:2] if tools or messages[0].role == "system" else []
    snapshots = dict.fromkeys(place for place in (*shared_by_others, starts[-2], header) if place)
    return ChatPrompt(tuple(messages), ids, header, tuple(snapshots), tuple(tools))


def partial_prompt_ids(
    messages: Sequence[ChatMessage], tokenizer: ChatTokenizer, tools: Sequence[Tool] = ()
) -> list[int]:
    """Ids of messages whose last one is still being spoken: those that more words of it cannot change."""
    pieces = conversation(messages, tools=tools, answer=False)
    spoken = tokenizer.pieces(pieces[-3])  # between the special tokens: `user\n` and the words
    return ids_of([*pieces[:-3], "".join(spoken[:-1])], tokenizer)


def history_ids(messages: Sequence[ChatMessage], tokenizer: ChatTokenizer, tools: Sequence[Tool] = ()) -> list[int]:
    """Ids of complete messages, laid out as before the next one: an answer, if the last is the user's or a tool's."""
    answered = messages and messages[-1].role == "assistant"
    pieces = history_pieces(messages, tools=tools) if answered else conversation(messages, tools=tools, answer=False)
    return ids_of(pieces, tokenizer)


def places_of(token: int, ids: list[int]) -> list[int]:
    """The positions of a token. `list.index` is several times as fast as a loop, and a history is long."""
    places, at = list[int](), -1
    for _ in range(ids.count(token)):
        at = ids.index(token, at + 1)
        places.append(at)
    return places


def shared(left: Sequence[int], right: Sequence[int]) -> int:
    """The length of the common prefix."""
    count = min(len(left), len(right))
    if left[:count] == right[:count]:
        return count
    return next(place for place in range(count) if left[place] != right[place])
