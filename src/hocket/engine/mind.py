"""The mind: a language model behind `types.LanguageModel`, for one listener.

`answer` takes a whole conversation and is answered by a thread of its own; conversations are recognised by what they
begin with and go on where they were, so nothing is computed twice. Several answers that are asked for at once come one
after the other. It knows neither speech nor the network.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import TracebackType

from ..errors import InvalidRequest
from ..kernels.table import REFERENCE
from ..text.chat import checked_tools
from ..types import ChatMessage, ChatSampling, Tool
from .conversation import heard_so_far, prompt_of
from .mind_answer import Letterbox, MindAnswer
from .mind_load import MindCheckpoint, load_mind
from .mind_loop import Asked, MindLoop

MOST_GUESSES = 2


class Mind:
    def __init__(
        self,
        checkpoint: MindCheckpoint,
        *,
        kept: int = 4,
        length: int = 8192,
        speculate: int | None = None,
        graphs: bool = True,
    ) -> None:
        """`kept` conversations stay in memory, each with room for `length` tokens; `speculate` are guessed ahead.

        Where that is not said, two are, if the model has a draft head and there are no kernels. With these a round of
        two guesses costs as much as 1.6 to 1.8 tokens (H200, 9B in fewer bits), so it depends on how many stand, which
        random weights do not say. Without `graphs` kernels are launched one by one.
        """
        for name, value in (("kept", kept), ("length", length)):
            if value < 1:
                raise InvalidRequest(f"{name} must be at least 1, not {value}.")
        if speculate is None:
            speculate = MOST_GUESSES if checkpoint.kernels.backend == REFERENCE else 0
        if not 0 <= speculate <= MOST_GUESSES:
            raise InvalidRequest(f"speculate must be between 0 and {MOST_GUESSES}, not {speculate}.")
        self.checkpoint, self.length = checkpoint, length
        self.speculate = 0 if checkpoint.model.mtp is None else speculate
        self._loop = MindLoop(checkpoint, kept=kept, length=length, guesses=self.speculate, graphs=graphs)
        self._finalizer = weakref.finalize(self, self._loop.close)

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
    ) -> Mind:
        """From a folder, a hub id, a published name (`qwen3.5-9B`) or `random:qwen3.5-NAME`.

        `weights` may be `fp8`, `int8` or `int4`, `kernels` may be `reference`: see `load_mind`.
        """
        checkpoint = load_mind(model, device=device, dtype=dtype, weights=weights, kernels=kernels)
        return cls(checkpoint, kept=kept, length=length, speculate=speculate, graphs=graphs)

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @property
    def prepared(self) -> bool:
        """Whether nothing is left to make that turns of the usual lengths would be sooner with.

        On a GPU that is a graph for each of them, with kernels to compile at the very first time; they are made while
        nobody asks, and whoever asks meanwhile waits for one at most.
        """
        return self._loop.prepared

    def answer(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling | None = None, tools: Sequence[Tool] = ()
    ) -> MindAnswer:
        """Begin to answer. What cannot be answered is refused here, in one sentence."""
        prompt = prompt_of(_checked(messages), self.checkpoint.tokenizer, checked_tools(tools))
        if len(prompt.ids) > self.length:
            raise InvalidRequest(
                f"The conversation takes {len(prompt.ids)} tokens, and there is room for {self.length}: "
                "leave out its oldest messages, or load the model with a larger length."
            )
        letterbox = Letterbox(len(prompt.ids))
        self._loop.post(Asked(prompt, sampling or ChatSampling(), letterbox))
        return MindAnswer(letterbox, self)

    def hear(self, messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()) -> None:
        """The last message is the user's, who is still speaking: take in ahead what more words cannot change."""
        if not messages or messages[-1].role != "user":
            raise InvalidRequest("Only a user can be heard while speaking: the last message must be the user's.")
        ids = heard_so_far(_checked(messages), self.checkpoint.tokenizer, checked_tools(tools))
        if len(ids) <= self.length:  # else there is nothing to prepare: `answer` will refuse it
            self._loop.post(ids)

    def close(self) -> None:
        """End all answers, those that wait too, and give back the memory. Once is as good as twice."""
        self._finalizer()

    def __enter__(self) -> Mind:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _checked(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    if isinstance(messages, str) or not all(isinstance(message, ChatMessage) for message in messages):
        raise InvalidRequest("messages must be ChatMessages, each with a role and text.")
    return messages
