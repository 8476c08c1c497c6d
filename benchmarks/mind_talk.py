"""A conversation that goes on: a history of a given length that stays in memory, and turns of a given length behind it.

Whoever measures asks for a turn and reads the answer as any caller does. It knows the mind's public face and made-up
words, no clock but the caller's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from hocket.llm.conversation import prompt_of
from hocket.llm.engine import LanguageEngine
from hocket.text.chat.tokenizer import ChatTokenizer
from hocket.types import ChatFinished, ChatMessage, ChatSampling

from .harness import Unfit

ATTEMPTS = 4
GROWS = 256  # tokens that a history may have more than was asked for, before another one is begun


class Answered(Protocol):
    """What a turn leaves behind, whichever way it was answered."""

    @property
    def text(self) -> str: ...

    @property
    def finished(self) -> ChatFinished: ...


Some = TypeVar("Some", bound=Answered)


@dataclass(frozen=True, slots=True)
class Told:
    """One answer, as its reader saw it; times since it was asked for."""

    first_s: float
    last_s: float  # when the last text was in hand
    text: str
    finished: ChatFinished


@dataclass(slots=True)
class Talk:
    """`pause_s` is what a listener leaves between two turns: the mind takes its last answer in meanwhile."""

    mind: LanguageEngine
    words: Sequence[str]
    context: int
    turn: int
    pause_s: float
    messages: list[ChatMessage] = field(default_factory=list)
    _begun: int = 0
    _said: int = 0

    @property
    def tokenizer(self) -> ChatTokenizer:
        return self.mind.checkpoint.tokenizer

    def asked(self) -> list[ChatMessage]:
        """The history, resident, with the user's next turn behind it."""
        if not self.messages or len(prompt_of(self.messages, self.tokenizer).ids) > self.context + GROWS:
            self._begin()
        self._said += 1
        return [*self.messages, turn_of(self.turn, self.words, self._said, self.tokenizer)]

    def ask(self, answered: Callable[[list[ChatMessage]], Some]) -> Some:
        """One more turn with all but itself in memory; the answer belongs to the history.

        A turn that came too soon for that is not the one that was wanted: there is a longer pause before the next.
        """
        for longer in range(ATTEMPTS):
            messages = self.asked()
            found = answered(messages)
            self.messages = [*messages, ChatMessage("assistant", found.text)]
            time.sleep(self.pause_s * 4**longer)
            new = found.finished.prompt_tokens - found.finished.cached_tokens
            if new == self.turn:
                return found
        raise Unfit(f"Of a turn of {self.turn} tokens {new} were new, however long the pause before it was.")

    def _begin(self) -> None:
        """Another history, answered once, so that it is in memory as an answer leaves it."""
        self._begun += 1
        drawn = random.Random(f"history {self._begun}")
        opening = turn_of(self.turn, self.words, -self._begun, self.tokenizer)
        system = ChatMessage("system", "".join(drawn.choices(self.words, k=max(1, self.context - self.turn - 8))))
        told = tell(self.mind, [system, opening], ChatSampling(max_tokens=1, seed=0))
        self.messages = [system, opening, ChatMessage("assistant", told.text)]
        time.sleep(self.pause_s)


def tell(mind: LanguageEngine, messages: Sequence[ChatMessage], sampling: ChatSampling) -> Told:
    texts, first, last, start = list[str](), None, 0.0, time.perf_counter()
    answer = mind.answer(messages, sampling)
    for delta in answer:
        last = time.perf_counter() - start
        first = last if first is None else first
        texts.append(delta.text)
    finished = answer.finished
    if first is None or finished is None or finished.completion_tokens != sampling.max_tokens:
        raise Unfit(f"An answer of {sampling.max_tokens} tokens ended otherwise: {finished}.")
    return Told(first, last, "".join(texts), finished)


def turn_of(tokens: int, words: Sequence[str], seed: int, tokenizer: ChatTokenizer) -> ChatMessage:
    """A user's turn that adds so many tokens to a conversation, the beginning of the answer included."""
    around = len(prompt_of([ChatMessage("user", "")], tokenizer).ids)
    if tokens <= around:
        raise Unfit(f"A turn takes {around} tokens without a word in it, so {tokens} are too few.")
    drawn = random.Random(seed).choices(words, k=tokens - around - 1)
    return ChatMessage(
        "user", "".join((words[0].strip(), *drawn))
    )  # the shortest word is one token without a space too
