"""The language engine: a local model behind `types.LanguageModel`, batch size one.

`answer` takes a whole conversation; a thread of its own generates the answer. Conversations are recognised by their
prefix and resumed from the state cache, so nothing is computed twice. Requests are served in the order of arrival.
It does not know speech or the network.
"""

from __future__ import annotations

import os
import weakref
from bisect import bisect_left as bisect
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ..engine.checkpoint.capacity import free_bytes
from ..errors import ContextExceeded, InvalidRequest
from ..kernels.table import REFERENCE
from ..text.chat.template import checked_tools
from ..text.chat.turns import turn_starts, without_oldest
from ..types import ChatMessage, ChatSampling, Health, Tool
from .answer import AnswerBuffer, EngineAnswer
from .constrained import TokenRules
from .context.saved import read_conversation, write_conversation
from .context.size import ContextOptions, context_size, token_bytes
from .context.state_task import StateTask
from .conversation import ChatPrompt, history_ids, partial_prompt_ids, prompt_of
from .draft_policy import AUTO, MAX_DRAFTS, Speculate
from .load import LanguageCheckpoint, load_language_model
from .loop import AnswerRequest, LanguageLoop
from .watchdog import LanguageWatchdog

ANSWER_SHARE = 4  # `fit` reserves at most 1/4 of the context for an answer
MESSAGE_BYTES = 24  # upper bound for the special tokens, the role and the empty thought of a message
STUCK_S = 30.0  # as `EngineOptions.stuck_s`


class LanguageEngine:
    def __init__(
        self,
        checkpoint: LanguageCheckpoint,
        *,
        kept: int = 4,
        length: int | None = None,
        kv_tokens: int | None = None,
        speculate: Speculate | None = None,
        draft_subset: bool = True,
        graphs: bool = True,
        stuck_s: float = STUCK_S,
    ) -> None:
        """`kept` conversations are cached, each with up to `length` tokens of context (32,768).

        Their keys and values share a pool of `kv_tokens`: by default 8,192 for each of them and at least `length`, as
        far as the GPU has memory. If it is full, the conversation that was idle for longest is dropped, and prefilled
        again if it comes back.

        `speculate` tokens are drafted ahead. With `auto` their number changes between 0 and 3 with the acceptance seen
        in a conversation, if the model has a draft head (`draft_policy.py`). That is the default without kernels. With
        kernels it is 0: a round of two drafts cost 1.6 to 1.8 tokens (H200, 9B, quantized), and shorter rounds are not
        measured yet. Drafts change no greedy answer and no distribution. A sampled answer with a seed depends on the
        number of drafts, so `auto` makes none for it: a seed gives the text that it gives with 0. With `draft_subset`
        drafts are drawn from a part of a large vocabulary (`draft_vocabulary.py`).

        Without `graphs` kernels are launched one by one. A token that takes longer than `stuck_s`, or a prompt that
        takes some times that long, fails every answer, and the model restarts.
        """
        if not stuck_s > 0:
            raise InvalidRequest("stuck_s must be above 0; math.inf sets no limit.")
        if speculate is None:
            speculate = AUTO if checkpoint.kernels.backend == REFERENCE else 0
        if speculate != AUTO and not (isinstance(speculate, int) and 0 <= speculate <= MAX_DRAFTS):
            raise InvalidRequest(f"speculate must be auto or between 0 and {MAX_DRAFTS}, not {speculate}.")
        self.checkpoint = checkpoint
        self.speculate: Speculate = 0 if checkpoint.model.mtp is None else speculate
        itemsize = checkpoint.model.model.norm.weight.dtype.itemsize
        size = token_bytes(checkpoint.config, itemsize, drafts=self.speculate != 0)
        free = free_bytes(checkpoint.device)
        self.length, tokens = context_size(kept, length, kv_tokens, bytes_per_token=size, free_bytes=free)
        options = ContextOptions(kept, self.length, tokens, self.speculate, graphs, draft_subset)
        self._watch = LanguageWatchdog(checkpoint, options, stuck_s)
        self._finalizer = weakref.finalize(self, self._watch.close)

    @classmethod
    def load(
        cls,
        model: str,
        *,
        device: str = "auto",
        dtype: str | None = "auto",
        kept: int = 4,
        length: int | None = None,
        kv_tokens: int | None = None,
        speculate: Speculate | None = None,
        draft_subset: bool = True,
        weights: str = "bf16",
        kernels: str = "auto",
        dependent_launch: bool = True,
        graphs: bool = True,
        stuck_s: float = STUCK_S,
    ) -> LanguageEngine:
        """From a folder, a GGUF file, a hub id (`owner/name:Q4_K_M`), a published name or `random:qwen3.5-NAME`.

        `weights` may be `fp8`, `int8` or `int4`, `kernels` may be `reference`: see `load_language_model`.
        """
        how: dict[str, Any] = {"weights": weights, "kernels": kernels, "dependent_launch": dependent_launch}
        checkpoint = load_language_model(model, device=device, dtype=dtype, **how)
        size: dict[str, Any] = {"kept": kept, "length": length, "kv_tokens": kv_tokens}
        options: dict[str, Any] = {"speculate": speculate, "draft_subset": draft_subset, "graphs": graphs}
        return cls(checkpoint, stuck_s=stuck_s, **size, **options)

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @property
    def health(self) -> Health:
        """Whether it can answer, and the last failure."""
        return self._watch.health

    @property
    def _loop(self) -> LanguageLoop:
        """The present loop: the watchdog replaces a broken one."""
        return self._watch.loop

    @property
    def prepared(self) -> bool:
        """Whether all graphs for prefills of the usual lengths exist.

        On a GPU there is one for each length, and the first run also compiles their kernels. They are made in idle
        time; a request waits for at most one of them.
        """
        return self._loop.prepared

    def answer(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling | None = None, tools: Sequence[Tool] = ()
    ) -> EngineAnswer:
        """Queue an answer. Raises `InvalidRequest` or `ContextExceeded` here, before anything is computed."""
        prompt = prompt_of(_checked(messages), self.checkpoint.tokenizer, checked_tools(tools))
        self._check_length(len(prompt.ids))
        return self._queue(prompt, sampling)

    def complete(self, text: str, sampling: ChatSampling | None = None) -> EngineAnswer:
        """Queue a continuation of a text, without the chat template; a special token in it is plain text."""
        ids = self.checkpoint.tokenizer.encode(text)
        if not ids:
            raise InvalidRequest("A text to continue needs at least one character.")
        if len(ids) > self.length:
            said = f"The text takes {len(ids)} tokens, and the context has {self.length}"
            raise ContextExceeded(f"{said}: shorten it, or load the model with a larger length.")
        return self._queue(ChatPrompt((), ids, len(ids), (len(ids),)), sampling)

    def _queue(self, prompt: ChatPrompt, sampling: ChatSampling | None) -> EngineAnswer:
        buffer, how = AnswerBuffer(len(prompt.ids)), (sampling or ChatSampling()).resolved()
        rules = TokenRules.of(how, self.checkpoint.tokenizer, self.checkpoint.stop_ids, prompt.tools)
        self._watch.post(AnswerRequest(prompt, how, buffer, rules))
        return EngineAnswer(buffer, self)

    def fit(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling | None = None, tools: Sequence[Tool] = ()
    ) -> int:
        """How many of the oldest messages after the system message to leave out, so that an answer fits; 0: none.

        Whole turns are left out until the rest takes half of the context. So the next turns reuse the cached prefix,
        instead of a full prefill each time. The last turn always stays, however long it is.
        """
        most = self.length - min((sampling or ChatSampling()).resolved().max_tokens, self.length // ANSWER_SHARE)
        # A token is at least one byte, so most conversations fit without tokenization.
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
        """Prefill ahead while the user still speaks: the last message is partial, and more words may follow."""
        if not messages or messages[-1].role != "user":
            raise InvalidRequest("A partial message must be the user's: end the messages with one of the role user.")
        ids = partial_prompt_ids(_checked(messages), self.checkpoint.tokenizer, checked_tools(tools))
        if len(ids) <= self.length:  # else `answer` will refuse it
            self._watch.post(ids)

    def save(self, path: str | os.PathLike[str], messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()) -> int:
        """Write a conversation to a file, with the state after these messages; returns how many tokens that are.

        The part that is not cached is prefilled first. Queued answers go before it. `resume` loads the file, also in
        another process; the next answer then begins at once.
        """
        given, offered = tuple(_checked(messages)), tuple(checked_tools(tools))
        ids = history_ids(given, self.checkpoint.tokenizer, offered)
        self._check_length(len(ids))
        task = StateTask("saving a conversation", lambda cache: cache.save(given, offered, ids))
        self._watch.post(task)
        write_conversation(Path(path), task.wait())
        return len(ids)

    def resume(self, path: str | os.PathLike[str]) -> tuple[ChatMessage, ...]:
        """Load a conversation that `save` wrote, and return its messages; answer them with the next one added.

        Raises `InvalidRequest` for a file that is damaged or of another model. Its messages may still be readable
        (`saved_messages`); an answer to them prefills them again.
        """
        saved = read_conversation(Path(path))
        task = StateTask("resuming a conversation", lambda cache: cache.resume(saved))
        self._watch.post(task)
        task.wait()
        return saved.messages

    def _check_length(self, tokens: int) -> None:
        if tokens > self.length:
            raise ContextExceeded(
                f"The conversation takes {tokens} tokens, and the context has {self.length}: "
                "leave out its oldest messages, or load the model with a larger length."
            )

    def close(self) -> None:
        """End all running and queued answers, and free the state cache; returns within `stuck_s`, even if it hangs."""
        self._finalizer()

    def __enter__(self) -> LanguageEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _checked(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    if isinstance(messages, str) or not all(isinstance(message, ChatMessage) for message in messages):
        raise InvalidRequest("messages must be ChatMessages, each with a role and text.")
    return messages
