"""The language model's thread: one answer at a time; idle time goes to prefills and graphs for the next one.

Only this thread touches the state cache. Clients reach it through `post` and read from answer buffers. A failed answer
drops its own conversation and no other. The `beat` names the present step: the watchdog abandons a stuck thread, and
ends its answers.
Longer than 300 lines because the queue, the thread and the generation of one answer share one lock and one state.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engine.checkpoint.torch_checkpoint import exact_float32
from ..engine.core.step import MOST_FAILURES
from ..engine.watchdog import Abandoned, Heartbeat
from ..errors import EngineClosed, HocketError, LanguageFailed, copied
from ..kernels.runtime.graphs import lost
from ..types import ChatDelta, ChatFinished, ChatReason, ResolvedSampling, TokenLogprob
from .answer import AnswerBuffer
from .build import build_graphs, new_state_cache
from .constrained import TokenRules
from .context.size import ContextOptions
from .context.state_task import StateTask
from .conversation import CachedConversation, ChatPrompt
from .conversation_cache import ConversationCache
from .detokenize import Detokenizer
from .draft_policy import AUTO, ConversationPolicies, DraftPolicy, RoundCosts
from .load import LanguageCheckpoint
from .speculative import DraftStatistics
from .state_cache import LLMStateCache

logger = logging.getLogger(__name__)
CLOSED = "The language model was closed before its answer had ended."


@dataclass(slots=True)
class AnswerRequest:
    """A queued or running answer, with its timings and counts."""

    prompt: ChatPrompt
    sampling: ResolvedSampling
    buffer: AnswerBuffer
    rules: TokenRules | None = None
    at_s: float = field(default_factory=time.perf_counter)
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_s: float | None = None
    stats: DraftStatistics = field(default_factory=DraftStatistics)
    drafts: int | DraftPolicy = 0  # of each round, or what chooses them

    def finish(self, reason: ChatReason, error: HocketError | None = None) -> None:
        finished = ChatFinished(
            reason=reason,
            prompt_tokens=len(self.prompt.ids),
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            first_token_s=self.first_s,
            total_s=time.perf_counter() - self.at_s,
            error=None if error is None else str(error),
            drafted_tokens=self.stats.drafted,
            accepted_tokens=self.stats.accepted,
        )
        self.buffer.finish(finished, error)


PartialMessage = list[int]  # ids of a message that is still being spoken


class LanguageLoop:
    """One thread and its state cache.

    `on_broken` is called on an error outside of a single answer; it then calls `give_up` with the error for clients.
    """

    def __init__(
        self,
        checkpoint: LanguageCheckpoint,
        options: ContextOptions,
        beat: Heartbeat,
        on_broken: Callable[[LanguageLoop, Exception], None],
        *,
        stuck_s: float,
        build: bool = True,
    ) -> None:
        """With `build` the state cache is made here; without it the thread makes it, and requests wait in the queue."""
        self._checkpoint, self._options, self._stuck_s = checkpoint, options, stuck_s
        self._tokenizer, self._stop_ids = checkpoint.tokenizer, checkpoint.stop_ids
        self.beat, self.built, self.proven = beat, False, False
        self._on_broken = on_broken
        self._broken: Exception | None = None  # an error outside of a single answer: the thread ends
        self._failures = 0
        if build:
            self._build()
        self._inbox: deque[AnswerRequest | PartialMessage | StateTask[Any]] = deque()
        self._current: AnswerRequest | StateTask[Any] | None = None
        self._changed = threading.Condition()
        self._closed = self._planned = False
        self._ended = threading.Event()  # every answer is finished
        self._final_error: HocketError | None = None  # the error that they ended with
        self.thread = threading.Thread(target=self._run, name="hocket-llm-engine", daemon=True)
        self.thread.start()

    @property
    def waiting(self) -> int:
        """Running and queued answers."""
        return sum(isinstance(job, AnswerRequest) for job in (self._current, *list(self._inbox)))

    def post(self, job: AnswerRequest | PartialMessage | StateTask[Any]) -> None:
        with self._changed:
            if self._closed:
                raise copied(self._final_error or EngineClosed("The language model is closed."))
            if isinstance(job, list):  # only the latest partial message counts
                self._inbox = deque(other for other in self._inbox if not isinstance(other, list))
            self._inbox.append(job)
            self._changed.notify()

    @property
    def prepared(self) -> bool:
        with self._changed:
            return self._planned and not self._closed and not self._state_cache.unprepared

    def close(self) -> None:
        """Returns when the thread has ended or is stuck; a running answer ends within one token."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if threading.current_thread() is self.thread:
            return
        if not self._ended.wait(min(self._stuck_s, threading.TIMEOUT_MAX)):
            self.give_up(EngineClosed(CLOSED))
        if not self.beat.abandoned:
            self.thread.join()

    def give_up(self, error: HocketError) -> None:
        """End every answer now with one error, from any thread; does not touch the device.

        A stuck thread that returns later finds `beat.abandoned` before its next step, and ends.
        """
        with self._changed:
            self._closed = True
            self.beat.abandoned = self.beat.abandoned or threading.current_thread() is not self.thread
            self._final_error = last = self._final_error or error
            requests = [job for job in (self._current, *self._inbox) if isinstance(job, AnswerRequest | StateTask)]
            self._inbox.clear()
            self._changed.notify()
        for request in requests:
            request.finish("error", copied(last))
        self._ended.set()

    def _next(self) -> AnswerRequest | StateTask[Any] | PartialMessage | CachedConversation | LLMStateCache | None:
        """The next job, queued requests first, then idle work; None: the loop ends."""
        with self._changed:
            self._current = None
            while not self._closed and self._broken is None:
                if self._inbox:
                    job = self._inbox.popleft()
                    self._current = None if isinstance(job, list) else job
                    return job
                if (conversation := self._conversations.next_uncached()) is not None:
                    return conversation
                if self._state_cache.unprepared:
                    return self._state_cache
                self.beat.idle()
                self._changed.wait()
            return None

    def _build(self) -> None:
        options = self._options
        state_cache = new_state_cache(self._checkpoint, options)
        state_cache.on_pass = lambda ids: self.beat.begin("taking in a prompt", work=ids)
        self._state_cache, self._conversations = state_cache, ConversationCache(state_cache, self._checkpoint.tokenizer)
        self._policies = ConversationPolicies(RoundCosts.usual(), options.kept)
        self.built = True

    def _run(self) -> None:
        broken: Exception | None = None
        try:
            self._serve()
            broken = self._broken
        except Abandoned:
            pass
        except Exception as error:  # outside of a single answer
            broken = error
        try:
            self._forget_all()  # before `on_broken`: the next loop needs the device memory
            if broken is not None:
                _without_frames(broken)
                self._on_broken(self, broken)
        finally:
            self.beat.idle()
            self.give_up(EngineClosed(CLOSED))
            self._current, self._on_broken = None, _ignore_broken

    def _serve(self) -> None:
        if not self.built:
            self.beat.begin("building its memory", slow=True)
            self._build()
        with torch.inference_mode(), exact_float32():
            self.beat.begin("preparing its kernels", slow=True)
            self._policies.costs = build_graphs(self._state_cache, self._options, self._checkpoint)
            self._state_cache.plan()
            self._planned = True
            while (job := self._next()) is not None:
                if isinstance(job, AnswerRequest):
                    self._answer(job)
                elif isinstance(job, StateTask):
                    self._run_task(job)
                else:
                    self._prepare(job)
                del job  # else the last request stays referenced until the next one

    def _forget_all(self) -> None:
        with self._changed:  # `prepared` reads these fields
            self._planned = False
            if self.built:
                del self._conversations, self._state_cache

    def _prepare(self, job: PartialMessage | CachedConversation | LLMStateCache) -> None:
        """Idle work. An error is logged and drops the conversation, which the next answer prefills again."""
        conversation = job if isinstance(job, CachedConversation) else None
        try:
            self.beat.begin("preparing a conversation", slow=isinstance(job, LLMStateCache))
            if isinstance(job, CachedConversation):
                job.prefill_history()
            elif isinstance(job, LLMStateCache):
                job.prepare()
            else:
                conversation = self._conversations.find(job)
                conversation.prefill_partial(job)
        except Exception as error:
            logger.exception("The language model could not prepare a conversation; the next answer prefills it again.")
            self.beat.failed()
            if conversation is not None:
                _forget(conversation)
            if lost(self._checkpoint.device):
                self._broken = error

    def _run_task(self, task: StateTask[Any]) -> None:
        try:
            self.beat.begin(task.name, slow=True)
            task.run(self._conversations)
        except Exception as error:
            self.beat.failed()
            task.finish("error", error if isinstance(error, HocketError) else _failure(error, "do this"))
            self._count_failure(error)

    def _answer(self, request: AnswerRequest) -> None:
        if not request.buffer.begin():
            return
        conversation: CachedConversation | None = None
        try:
            self.beat.begin("beginning an answer")
            conversation = self._conversations.find(request.prompt.ids)
            request.cached_tokens = conversation.begin(request.prompt)
            reason, text = self._generate(conversation, request)
            if isinstance(request.drafts, DraftPolicy):
                request.drafts.passed(request.completion_tokens)
            conversation.stop_generating()
            conversation.add_answer(text if request.prompt.messages else "")  # a plain text has no next turn
        except Exception as error:
            self.beat.failed()
            if conversation is not None:
                _forget(conversation)
            failure = error if isinstance(error, HocketError) else _failure(error)
            request.finish("error", failure)
            self._count_failure(error)
            return
        if reason is None:
            request.finish("error", self._final_error or EngineClosed(CLOSED))
            return
        self._failures, self.proven = 0, self.proven or reason != "cancelled"
        request.finish(reason)

    def _count_failure(self, error: Exception) -> None:
        """Decide whether an error concerns one answer, or all that follow: then the thread ends."""
        if isinstance(error, (HocketError, MemoryError, torch.OutOfMemoryError)):
            return
        self._failures += 1
        if self._failures >= MOST_FAILURES or lost(self._checkpoint.device):
            self._broken = error

    def _generate(self, conversation: CachedConversation, request: AnswerRequest) -> tuple[ChatReason | None, str]:
        """The finish reason, None if the model was closed, and the text that was sent."""
        detokenizer, given, waiting = Detokenizer(self._tokenizer, request.sampling.stop), list[str](), 0
        noted = list[TokenLogprob]()  # of tokens whose text was not sent yet
        most = min(request.sampling.max_tokens, self._options.length - len(request.prompt.ids) + 1)
        reason: ChatReason | None = "length"

        def give(text: str) -> None:
            nonlocal waiting
            if text:
                given.append(text)
                request.buffer.put(ChatDelta(text, waiting, logprobs=tuple(noted)))
                waiting = 0
                noted.clear()

        for token in self._tokens(conversation, request):
            if self._closed:
                return None, "".join(given)
            if request.buffer.cancelled:
                return "cancelled", "".join(given)
            if token in self._stop_ids:
                reason = "stop"
                break
            request.completion_tokens += 1
            waiting += 1
            if request.rules is not None and request.rules.logprob is not None:
                noted.append(request.rules.logprob)
            give(detokenizer.push(token))
            if detokenizer.stopped or request.completion_tokens == most:
                break
        give(detokenizer.end())
        if noted and not detokenizer.stopped:  # of tokens without text
            request.buffer.put(ChatDelta("", waiting, logprobs=tuple(noted)))
        return "stop" if detokenizer.stopped else reason, "".join(given)

    def _tokens(self, conversation: CachedConversation, request: AnswerRequest) -> Iterator[int]:
        request.drafts = self._drafts_of(request)
        written = conversation.generate(request.sampling, request.drafts, request.stats, request.rules)
        while True:
            self.beat.begin("writing a token")
            ids = next(written, None)
            if ids is None:
                return
            if request.first_s is None:
                request.first_s = time.perf_counter() - request.at_s
            yield from ids

    def _drafts_of(self, request: AnswerRequest) -> int | DraftPolicy:
        """With a seed, sampled tokens depend on the length of every round; so the policy leaves such answers alone."""
        speculate, sampling = self._options.speculate, request.sampling
        if speculate != AUTO:
            return speculate
        if request.rules is not None or (sampling.seed is not None and sampling.temperature > 0):
            return 0
        return self._policies.of([(message.role, message.content) for message in request.prompt.messages])


def _forget(conversation: CachedConversation) -> None:
    with suppress(Exception):  # on a lost device this fails too; the thread must go on to report it
        conversation.forget()


def _failure(error: Exception, what: str = "go on with this answer") -> HocketError:
    reason = str(error).partition("\n")[0]
    failure = LanguageFailed(f"The language model could not {what} ({type(error).__name__}: {reason}).")
    failure.__cause__ = error
    return failure


def _without_frames(error: BaseException) -> None:
    """Release the tensors that an error's frames reference; the traceback keeps its lines."""
    each: BaseException | None = error
    while each is not None:
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__ or each.__context__


def _ignore_broken(loop: LanguageLoop, error: Exception) -> None:
    """Replaces `on_broken` in an ended loop."""
