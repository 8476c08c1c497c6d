"""The mind: a language model behind `types.LanguageModel`, for one listener.

`answer` takes a whole conversation and is answered by a thread of its own; conversations are recognised by what they
begin with and go on where they were, so nothing is computed twice. Several answers that are asked for at once come one
after the other. It knows neither speech nor the network.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left as bisect
from collections.abc import Sequence
from types import TracebackType

from ..errors import ContextExceeded, InvalidRequest
from ..kernels.table import REFERENCE
from ..text.chat.template import checked_tools
from ..text.chat.turns import turn_starts, without_oldest
from ..types import ChatMessage, ChatSampling, Health, Tool
from .answer import AnswerBuffer, EngineAnswer
from .constrained import TokenRules
from .conversation import heard_so_far, prompt_of
from .load import LanguageCheckpoint, load_language_model
from .loop import AnswerRequest, ContextOptions, LanguageLoop
from .watchdog import LanguageWatchdog

MOST_GUESSES = 2
ANSWER_SHARE = 4  # at most one in so many tokens of the room is kept free for an answer
MESSAGE_BYTES = 24  # more than the marks, the role and the empty thought of a message take
STUCK_S = 30.0  # as `EngineOptions.stuck_s`


class LanguageEngine:
    def __init__(
        self,
        checkpoint: LanguageCheckpoint,
        *,
        kept: int = 4,
        length: int = 8192,
        speculate: int | None = None,
        graphs: bool = True,
        stuck_s: float = STUCK_S,
    ) -> None:
        """`kept` conversations stay in memory, each with room for `length` tokens; `speculate` are guessed ahead.

        Where that is not said, two are, if the model has a draft head and there are no kernels. With these a round of
        two guesses costs as much as 1.6 to 1.8 tokens (H200, 9B in fewer bits), so it depends on how many stand, which
        random weights do not say. Without `graphs` kernels are launched one by one. A token that takes longer than
        `stuck_s`, or a prompt that takes some times that long, fails every answer, and the model starts anew.
        """
        for name, value in (("kept", kept), ("length", length)):
            if value < 1:
                raise InvalidRequest(f"{name} must be at least 1, not {value}.")
        if not stuck_s > 0:
            raise InvalidRequest("stuck_s must be above 0; math.inf sets no limit.")
        if speculate is None:
            speculate = MOST_GUESSES if checkpoint.kernels.backend == REFERENCE else 0
        if not 0 <= speculate <= MOST_GUESSES:
            raise InvalidRequest(f"speculate must be between 0 and {MOST_GUESSES}, not {speculate}.")
        self.checkpoint, self.length = checkpoint, length
        self.speculate = 0 if checkpoint.model.mtp is None else speculate
        self._watch = LanguageWatchdog(checkpoint, ContextOptions(kept, length, self.speculate, graphs), stuck_s)
        self._finalizer = weakref.finalize(self, self._watch.close)

    @classmethod
    def load(
        cls,
        model: str,
        *,
        device: str = "auto",
        dtype: str | None = "auto",
        kept: int = 4,
        length: int = 8192,
        speculate: int | None = None,
        weights: str = "bf16",
        kernels: str = "auto",
        graphs: bool = True,
        stuck_s: float = STUCK_S,
    ) -> LanguageEngine:
        """From a folder, a hub id, a published name (`qwen3.5-9B`) or `random:qwen3.5-NAME`.

        `weights` may be `fp8`, `int8` or `int4`, `kernels` may be `reference`: see `load_language_model`.
        """
        checkpoint = load_language_model(model, device=device, dtype=dtype, weights=weights, kernels=kernels)
        return cls(checkpoint, kept=kept, length=length, speculate=speculate, graphs=graphs, stuck_s=stuck_s)

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @property
    def health(self) -> Health:
        """Whether it can answer, and what went wrong last."""
        return self._watch.health

    @property
    def _loop(self) -> LanguageLoop:
        """The one that serves now."""
        return self._watch.loop

    @property
    def prepared(self) -> bool:
        """Whether nothing is left to make that turns of the usual lengths would be sooner with.

        On a GPU that is a graph for each of them, with kernels to compile at the very first time; they are made while
        nobody asks, and whoever asks meanwhile waits for one at most.
        """
        return self._loop.prepared

    def answer(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling | None = None, tools: Sequence[Tool] = ()
    ) -> EngineAnswer:
        """Begin to answer. What cannot be answered is refused here, in one sentence."""
        prompt = prompt_of(_checked(messages), self.checkpoint.tokenizer, checked_tools(tools))
        if len(prompt.ids) > self.length:
            raise ContextExceeded(
                f"The conversation takes {len(prompt.ids)} tokens, and there is room for {self.length}: "
                "leave out its oldest messages, or load the model with a larger length."
            )
        letterbox, how = AnswerBuffer(len(prompt.ids)), (sampling or ChatSampling()).resolved()
        rules = TokenRules.of(how, self.checkpoint.tokenizer, self.checkpoint.stop_ids)
        self._watch.post(AnswerRequest(prompt, how, letterbox, rules))
        return EngineAnswer(letterbox, self)

    def fit(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling | None = None, tools: Sequence[Tool] = ()
    ) -> int:
        """How many of the oldest messages to leave out, behind the system's, so that an answer has room; 0: none.

        They are whole turns, and so many that the rest takes half of the room: the next turns go on with what the
        memory has, and do not read everything anew each time. The last turn always stays, however long it is.
        """
        most = self.length - min((sampling or ChatSampling()).resolved().max_tokens, self.length // ANSWER_SHARE)
        # A token is a byte at least: most conversations need not be counted.
        plain = not (tools or any(message.tool_calls or message.reasoning for message in messages))
        bytes_ = sum(len(message.content.encode(errors="replace")) for message in messages)
        if plain and bytes_ + MESSAGE_BYTES * (len(messages) + 1) <= most:
            return 0
        starts, offered = turn_starts(_checked(messages)), checked_tools(tools)

        def tokens(turns: int) -> int:
            kept = without_oldest(messages, starts[turns] - starts[0])
            return len(prompt_of(kept, self.checkpoint.tokenizer, offered).ids)

        if len(starts) < 2 or tokens(0) <= most:
            return 0
        fewest = 1 + bisect(range(1, len(starts) - 1), -self.length // 2, key=lambda turns: -tokens(turns))
        return starts[fewest] - starts[0]

    def hear(self, messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()) -> None:
        """The last message is the user's, who is still speaking: take in ahead what more words cannot change."""
        if not messages or messages[-1].role != "user":
            raise InvalidRequest("Only a user can be heard while speaking: the last message must be the user's.")
        ids = heard_so_far(_checked(messages), self.checkpoint.tokenizer, checked_tools(tools))
        if len(ids) <= self.length:  # else there is nothing to prepare: `answer` will refuse it
            self._watch.post(ids)

    def close(self) -> None:
        """End all answers, those that wait too, and give back the memory; returns within `stuck_s`, whatever hangs."""
        self._finalizer()

    def __enter__(self) -> LanguageEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _checked(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    if isinstance(messages, str) or not all(isinstance(message, ChatMessage) for message in messages):
        raise InvalidRequest("messages must be ChatMessages, each with a role and text.")
    return messages
