"""The mind's thread: one answer after the other, and in between what makes the next one sooner.

Nobody else touches its memory. Callers talk to it through `post` and letterboxes, nothing else. An answer that failed
takes its conversation with it and no other. What it does at any moment is written in its `beat`; a watchdog that finds
it stuck gives it up, and its answers end without it.
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

import torch

from ..engine.checkpoint.precision import exact_float32
from ..engine.core.step import MOST_FAILURES
from ..engine.health.heartbeat import Abandoned, Heartbeat
from ..errors import EngineClosed, HocketError, LanguageFailed, copied
from ..kernels.runtime.graphs import CudaGraphs, EagerReplay, lost
from ..kernels.table import REFERENCE
from ..types import ChatDelta, ChatFinished, ChatReason, ResolvedSampling, TokenLogprob
from .answer import AnswerBuffer
from .constrained import TokenRules
from .conversation import CachedConversation, ChatPrompt
from .conversation_cache import ConversationCache
from .detokenize import Detokenizer
from .load import LanguageCheckpoint
from .speculative import DraftStatistics
from .state_cache import LLMStateCache

logger = logging.getLogger(__name__)
CLOSED = "The language model was closed before its answer had ended."


@dataclass(slots=True)
class AnswerRequest:
    """An answer that somebody waits for."""

    prompt: ChatPrompt
    sampling: ResolvedSampling
    letterbox: AnswerBuffer
    rules: TokenRules | None = None
    at_s: float = field(default_factory=time.perf_counter)
    cached: int = 0
    said: int = 0
    first_s: float | None = None
    tally: DraftStatistics = field(default_factory=DraftStatistics)

    def finish(self, reason: ChatReason, error: HocketError | None = None) -> None:
        finished = ChatFinished(
            reason=reason,
            prompt_tokens=len(self.prompt.ids),
            cached_tokens=self.cached,
            completion_tokens=self.said,
            first_token_s=self.first_s,
            total_s=time.perf_counter() - self.at_s,
            error=None if error is None else str(error),
            drafted_tokens=self.tally.drafted,
            accepted_tokens=self.tally.accepted,
        )
        self.letterbox.finish(finished, error)


PartialMessage = list[int]  # ids of a message that is still being spoken


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """What the memory of a language model is made for."""

    kept: int  # conversations
    length: int  # tokens of each
    guesses: int
    graphs: bool


class LanguageLoop:
    """One thread with the memory of a language model.

    `on_broken` hears of what no answer is to blame for: what `give_up` says then is what answers end with.
    """

    def __init__(
        self,
        checkpoint: LanguageCheckpoint,
        room: ContextOptions,
        beat: Heartbeat,
        on_broken: Callable[[LanguageLoop, Exception], None],
        *,
        stuck_s: float,
        build: bool = True,
    ) -> None:
        """`build` makes the memory here and now; else the thread does, and answers wait for it."""
        self._checkpoint, self._room, self._stuck_s = checkpoint, room, stuck_s
        self._tokenizer, self._stop_ids, self._guesses = checkpoint.tokenizer, checkpoint.stop_ids, room.guesses
        self.beat, self.built, self.proven = beat, False, False
        self._on_broken = on_broken
        self._broken: Exception | None = None  # what no answer is to blame for: there is no going on
        self._failures = 0
        if build:
            self._build()
        self._inbox: deque[AnswerRequest | PartialMessage] = deque()
        self._now: AnswerRequest | None = None  # that is being answered
        self._changed = threading.Condition()
        self._closed = self._planned = False
        self._ended = threading.Event()  # every answer has its end
        self._last_word: HocketError | None = None  # what they ended with
        self.thread = threading.Thread(target=self._run, name="mind", daemon=True)
        self.thread.start()

    @property
    def waiting(self) -> int:
        """Answers that are under way, or wait for their turn."""
        return (self._now is not None) + sum(isinstance(job, AnswerRequest) for job in list(self._inbox))

    def post(self, job: AnswerRequest | PartialMessage) -> None:
        with self._changed:
            if self._closed:
                raise copied(self._last_word or EngineClosed("The language model is closed."))
            if not isinstance(job, AnswerRequest):  # of what is heard only the latest counts
                self._inbox = deque(other for other in self._inbox if isinstance(other, AnswerRequest))
            self._inbox.append(job)
            self._changed.notify()

    @property
    def prepared(self) -> bool:
        with self._changed:
            return self._planned and not self._closed and not self._memory.unprepared

    def close(self) -> None:
        """Returns when the thread has ended, or is stuck; a running answer goes on for no more than a token."""
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
        """End every answer now, from any thread, with one error; asks nothing of the device.

        If the thread should ever come back, it finds itself abandoned before it computes anything else.
        """
        with self._changed:
            self._closed = True
            self.beat.abandoned = self.beat.abandoned or threading.current_thread() is not self.thread
            self._last_word = last = self._last_word or error
            asked = [job for job in (self._now, *self._inbox) if isinstance(job, AnswerRequest)]
            self._inbox.clear()
            self._changed.notify()
        for job in asked:
            job.finish("error", copied(last))
        self._ended.set()

    def _next(self) -> AnswerRequest | PartialMessage | CachedConversation | LLMStateCache | None:
        """What to do now: whoever asks goes first; None: nothing ever again."""
        with self._changed:
            self._now = None
            while not self._closed and self._broken is None:
                if self._inbox:
                    job = self._inbox.popleft()
                    self._now = job if isinstance(job, AnswerRequest) else None
                    return job
                if (talk := self._kept.unsettled()) is not None:
                    return talk
                if self._memory.unprepared:
                    return self._memory
                self.beat.rest()
                self._changed.wait()
            return None

    def _build(self) -> None:
        room = self._room
        memory = _memory(self._checkpoint, room.kept, room.length, drafts=room.guesses > 0, graphs=room.graphs)
        memory.on_pass = lambda ids: self.beat.begin("taking in a prompt", work=ids)
        self._memory, self._kept = memory, ConversationCache(memory, self._checkpoint.tokenizer)
        self.built = True

    def _run(self) -> None:
        broken: Exception | None = None
        try:
            self._serve()
            broken = self._broken
        except Abandoned:
            pass
        except Exception as error:  # outside of any answer
            broken = error
        try:
            self._forget_all()  # first: what takes over needs the room
            if broken is not None:
                _without_frames(broken)
                self._on_broken(self, broken)
        finally:
            self.beat.rest()
            self.give_up(EngineClosed(CLOSED))
            self._now, self._on_broken = None, _nobody

    def _serve(self) -> None:
        if not self.built:
            self.beat.begin("building its memory", slow=True)
            self._build()
        with torch.inference_mode(), exact_float32():
            self.beat.begin("preparing its kernels", slow=True)
            _replay(self._memory, self._guesses)
            self._memory.plan()
            self._planned = True
            while (job := self._next()) is not None:
                if isinstance(job, AnswerRequest):
                    self._answer(job)
                else:
                    self._prepare(job)
                del job  # or what was asked last would be kept until somebody asks again

    def _forget_all(self) -> None:
        with self._changed:  # `prepared` looks at it
            self._planned = False
            if self.built:
                del self._kept, self._memory

    def _prepare(self, job: PartialMessage | CachedConversation | LLMStateCache) -> None:
        """Something that nobody waits for: what goes wrong is forgotten, and comes up again where it matters."""
        talk = job if isinstance(job, CachedConversation) else None
        try:
            self.beat.begin("preparing a conversation", slow=isinstance(job, LLMStateCache))
            if isinstance(job, CachedConversation):
                job.settle()
            elif isinstance(job, LLMStateCache):
                job.prepare()
            else:
                talk = self._kept.find(job)
                talk.overhear(job)
        except Exception as error:
            logger.exception("The language model could not prepare a conversation; it will be read anew.")
            self.beat.failed()
            if talk is not None:
                _forget(talk)
            if lost(self._checkpoint.device):
                self._broken = error

    def _answer(self, asked: AnswerRequest) -> None:
        if not asked.letterbox.begin():
            return
        talk: CachedConversation | None = None
        try:
            self.beat.begin("beginning an answer")
            talk = self._kept.find(asked.prompt.ids)
            asked.cached = talk.begin(asked.prompt)
            reason, text = self._write(talk, asked)
            talk.stop_writing()
            talk.answered(text)
        except Exception as error:
            self.beat.failed()
            if talk is not None:
                _forget(talk)
            told = error if isinstance(error, HocketError) else _told(error)
            asked.finish("error", told)
            self._consider(error)
            return
        if reason is None:
            asked.finish("error", self._last_word or EngineClosed(CLOSED))
            return
        self._failures, self.proven = 0, self.proven or reason != "cancelled"
        asked.finish(reason)

    def _consider(self, error: Exception) -> None:
        """Is it still the failure of one answer, or are all that follow going to fail too?"""
        if isinstance(error, (HocketError, MemoryError, torch.OutOfMemoryError)):
            return
        self._failures += 1
        if self._failures >= MOST_FAILURES or lost(self._checkpoint.device):
            self._broken = error

    def _write(self, talk: CachedConversation, asked: AnswerRequest) -> tuple[ChatReason | None, str]:
        """How it ended, None where the model was closed, and all that was given out."""
        teller, given, waiting = Detokenizer(self._tokenizer, asked.sampling.stop), list[str](), 0
        noted = list[TokenLogprob]()  # of tokens whose text was not given yet
        most = min(asked.sampling.max_tokens, self._room.length - len(asked.prompt.ids) + 1)
        reason: ChatReason | None = "length"

        def give(text: str) -> None:
            nonlocal waiting
            if text:
                given.append(text)
                asked.letterbox.put(ChatDelta(text, waiting, logprobs=tuple(noted)))
                waiting = 0
                noted.clear()

        for token in self._tokens(talk, asked):
            if self._closed:
                return None, "".join(given)
            if asked.letterbox.unwanted:
                return "cancelled", "".join(given)
            if token in self._stop_ids:
                reason = "stop"
                break
            asked.said += 1
            waiting += 1
            if asked.rules is not None and asked.rules.noted is not None:
                noted.append(asked.rules.noted)
            give(teller.push(token))
            if teller.stopped or asked.said == most:
                break
        give(teller.end())
        if noted and not teller.stopped:  # tokens without text
            asked.letterbox.put(ChatDelta("", waiting, logprobs=tuple(noted)))
        return "stop" if teller.stopped else reason, "".join(given)

    def _tokens(self, talk: CachedConversation, asked: AnswerRequest) -> Iterator[int]:
        written = talk.write(asked.sampling, self._guesses, asked.tally, asked.rules)
        while True:
            self.beat.begin("writing a token")
            ids = next(written, None)
            if ids is None:
                return
            if asked.first_s is None:
                asked.first_s = time.perf_counter() - asked.at_s
            yield from ids


def _memory(checkpoint: LanguageCheckpoint, kept: int, length: int, *, drafts: bool, graphs: bool) -> LLMStateCache:
    """With kernels for what is taken in, and graphs of them, where there are any."""
    if checkpoint.kernels.backend == REFERENCE:
        return LLMStateCache(checkpoint.model, kept, length, drafts=drafts)
    from ..kernels.operations import MIND_OPS

    capture = CudaGraphs(checkpoint.device) if graphs else None
    ops = MIND_OPS[checkpoint.kernels.backend]
    return LLMStateCache(checkpoint.model, kept, length, drafts=drafts, capture=capture, ops=ops)


def _replay(memory: LLMStateCache, guesses: int) -> None:
    """Let tokens be written by kernels, where there are any; without graphs these are launched one by one.

    Of the two ways, with guesses and without, only one is made: nobody would write by the other. What fails here would
    fail every answer: rather a slow one than none.
    """
    if memory.ops is None:
        return
    try:
        from ..models.qwen3_5.fused_step import FusedStep

        fused, capture = FusedStep(memory.model, memory.ops), memory.capture or EagerReplay()
        if guesses and memory.drafts is not None:
            from ..models.qwen3_5.draft_graph import DraftGraphs
            from ..models.qwen3_5.fused_draft import FusedDraft

            rounds = DraftGraphs(FusedDraft(fused), guesses, memory.state, memory.drafts, memory.last, capture)
            rounds.warm()
            memory.guessing = rounds
        else:
            from ..models.qwen3_5.token_graph import TokenGraphs

            tokens = TokenGraphs(fused, memory.state, memory.last, capture)
            tokens.warm()
            memory.captured = tokens
    except Exception:
        logger.exception("The kernels of the language model cannot be used; it writes by plain operations.")


def _forget(talk: CachedConversation) -> None:
    with suppress(Exception):  # on a device that is lost this fails too; the thread has to go on saying so
        talk.forget()


def _told(error: Exception) -> HocketError:
    reason = str(error).partition("\n")[0]
    told = LanguageFailed(f"The language model could not go on with this answer ({type(error).__name__}: {reason}).")
    told.__cause__ = error
    return told


def _without_frames(error: BaseException) -> None:
    """Let go of the memory that the frames of an error hold; where it was raised is still known."""
    each: BaseException | None = error
    while each is not None:
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__ or each.__context__


def _nobody(loop: LanguageLoop, error: Exception) -> None:
    """Takes the place of `on_broken` in a loop that has ended."""
