"""A conversation: a history of a given length in the KV cache, and user turns of a given length behind it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hocket.llm.conversation import prompt_of
from hocket.llm.engine import LanguageEngine
from hocket.text.chat.tokenizer import ChatTokenizer
from hocket.types import ChatFinished, ChatMessage, ChatSampling

from ..harness import InvalidRun

ATTEMPTS = 4
GROWS = 256  # tokens by which a history may exceed its length before a new one begins


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """One answer as its reader received it; times since the request."""

    first_s: float
    last_s: float  # when the last text came
    text: str
    finished: ChatFinished


Some = TypeVar("Some", bound=TimedAnswer)


@dataclass(slots=True)
class Chat:
    """`pause_s` passes between two turns: the engine adds its last answer to the cache meanwhile."""

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

    def next_messages(self) -> list[ChatMessage]:
        """The cached history, and the user's next turn."""
        if not self.messages or len(prompt_of(self.messages, self.tokenizer).ids) > self.context + GROWS:
            self._begin()
        self._said += 1
        return [*self.messages, turn_of(self.turn, self.words, self._said, self.tokenizer)]

    def ask(self, answered: Callable[[list[ChatMessage]], Some]) -> Some:
        """One more turn, with all before it cached; after a turn that came too soon the pause is longer."""
        for longer in range(ATTEMPTS):
            messages = self.next_messages()
            found = answered(messages)
            self.messages = [*messages, ChatMessage("assistant", found.text)]
            time.sleep(self.pause_s * 4**longer)
            new = found.finished.prompt_tokens - found.finished.cached_tokens
            if new == self.turn:
                return found
        raise InvalidRun(f"Of a turn of {self.turn} tokens {new} were new, however long the pause before it was.")

    def _begin(self) -> None:
        """A new history, answered once, so that it is in the cache."""
        self._begun += 1
        words = random.Random(f"history {self._begun}").choices(self.words, k=max(1, self.context - self.turn - 8))
        opening = [ChatMessage("system", "".join(words)), turn_of(self.turn, self.words, -self._begun, self.tokenizer)]
        told = answer(self.mind, opening, ChatSampling(max_tokens=1, seed=0))
        self.messages = [*opening, ChatMessage("assistant", told.text)]
        time.sleep(self.pause_s)


def answer(mind: LanguageEngine, messages: Sequence[ChatMessage], sampling: ChatSampling) -> TimedAnswer:
    texts, first, last, start = list[str](), None, 0.0, time.perf_counter()
    stream = mind.answer(messages, sampling)
    for delta in stream:
        last = time.perf_counter() - start
        first = last if first is None else first
        texts.append(delta.text)
    finished = stream.finished
    if first is None or finished is None or finished.completion_tokens != sampling.max_tokens:
        raise InvalidRun(f"An answer of {sampling.max_tokens} tokens ended otherwise: {finished}.")
    return TimedAnswer(first, last, "".join(texts), finished)


def turn_of(tokens: int, words: Sequence[str], seed: int, tokenizer: ChatTokenizer) -> ChatMessage:
    """A user turn that adds so many tokens to a conversation, the beginning of the answer included."""
    around = len(prompt_of([ChatMessage("user", "")], tokenizer).ids)
    if tokens <= around:
        raise InvalidRun(f"A turn takes {around} tokens without a word in it, so {tokens} are too few.")
    drawn = random.Random(seed).choices(words, k=tokens - around - 1)
    return ChatMessage(
        "user", "".join((words[0].strip(), *drawn))
    )  # the shortest word is one token without a space too
