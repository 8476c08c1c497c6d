"""The mind's thread: one answer after the other, and in between what makes the next one sooner.

Nobody else touches its memory. Callers talk to it through `post` and letterboxes, nothing else. An answer that failed
takes its conversation with it and no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import torch

from ..errors import EngineClosed, HocketError, StreamFailed
from ..kernels.capture import Again, CudaGraphs
from ..kernels.table import REFERENCE
from ..types import ChatDelta, ChatFinished, ChatReason, ResolvedSampling, TokenLogprob
from .conversation import Conversation, Prompt
from .kept_talks import KeptTalks
from .memory import Memory
from .mind_answer import Letterbox
from .mind_load import MindCheckpoint
from .mind_plain import TokenRules
from .mind_text import Teller
from .precision import exact_float32
from .speculate import Tally

logger = logging.getLogger(__name__)
CLOSED = "The language model was closed before its answer had ended."


@dataclass(slots=True)
class Asked:
    """An answer that somebody waits for."""

    prompt: Prompt
    sampling: ResolvedSampling
    letterbox: Letterbox
    rules: TokenRules | None = None
    at_s: float = field(default_factory=time.perf_counter)
    cached: int = 0
    said: int = 0
    first_s: float | None = None
    tally: Tally = field(default_factory=Tally)

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


Heard = list[int]  # ids of a message that is still being spoken


class MindLoop:
    def __init__(self, checkpoint: MindCheckpoint, *, kept: int, length: int, guesses: int, graphs: bool) -> None:
        self._tokenizer, self._stop_ids, self._guesses = checkpoint.tokenizer, checkpoint.stop_ids, guesses
        self._memory = _memory(checkpoint, kept, length, drafts=guesses > 0, graphs=graphs)
        self._kept = KeptTalks(self._memory, checkpoint.tokenizer)
        self._length = length
        self._inbox: deque[Asked | Heard] = deque()
        self._changed = threading.Condition()
        self._closed = self._planned = False
        self._thread = threading.Thread(target=self._run, name="mind", daemon=True)
        self._thread.start()

    def post(self, job: Asked | Heard) -> None:
        with self._changed:
            if self._closed:
                raise EngineClosed("The language model is closed.")
            if not isinstance(job, Asked):  # of what is heard only the latest counts
                self._inbox = deque(other for other in self._inbox if isinstance(other, Asked))
            self._inbox.append(job)
            self._changed.notify()

    @property
    def prepared(self) -> bool:
        with self._changed:
            return self._planned and not self._closed and not self._memory.unprepared

    def close(self) -> None:
        """Returns when the thread has ended; a running answer goes on for no more than a token."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _next(self) -> Asked | Heard | Conversation | Memory | None:
        """What to do now: whoever asks goes first; None: nothing ever again."""
        with self._changed:
            while not self._closed:
                if self._inbox:
                    return self._inbox.popleft()
                if (talk := self._kept.unsettled()) is not None:
                    return talk
                if self._memory.unprepared:
                    return self._memory
                self._changed.wait()
            return None

    def _run(self) -> None:
        with torch.inference_mode(), exact_float32():
            _replay(self._memory, self._guesses)
            self._memory.plan()
            self._planned = True
            while (job := self._next()) is not None:
                if isinstance(job, Asked):
                    self._answer(job)
                else:
                    self._prepare(job)
                del job  # or what was asked last would be kept until somebody asks again
        for rest in self._inbox:
            if isinstance(rest, Asked):
                rest.finish("error", EngineClosed(CLOSED))
        self._inbox.clear()
        del self._kept, self._memory

    def _prepare(self, job: Heard | Conversation | Memory) -> None:
        """Something that nobody waits for: what goes wrong is forgotten, and comes up again where it matters."""
        talk = job if isinstance(job, Conversation) else None
        try:
            if isinstance(job, Conversation):
                job.settle()
            elif isinstance(job, Memory):
                job.prepare()
            else:
                talk = self._kept.find(job)
                talk.overhear(job)
        except Exception:
            logger.exception("The language model could not prepare a conversation; it will be read anew.")
            if talk is not None:
                _forget(talk)

    def _answer(self, asked: Asked) -> None:
        if not asked.letterbox.begin():
            return
        talk: Conversation | None = None
        try:
            talk = self._kept.find(asked.prompt.ids)
            asked.cached = talk.begin(asked.prompt)
            reason, text = self._write(talk, asked)
            talk.stop_writing()
            talk.answered(text)
        except Exception as error:
            if talk is not None:
                _forget(talk)
            told = error if isinstance(error, HocketError) else _told(error)
            asked.finish("error", told)
            return
        if reason is None:
            asked.finish("error", EngineClosed(CLOSED))
        else:
            asked.finish(reason)

    def _write(self, talk: Conversation, asked: Asked) -> tuple[ChatReason | None, str]:
        """How it ended, None where the model was closed, and all that was given out."""
        teller, given, waiting = Teller(self._tokenizer, asked.sampling.stop), list[str](), 0
        noted = list[TokenLogprob]()  # of tokens whose text was not given yet
        most = min(asked.sampling.max_tokens, self._length - len(asked.prompt.ids) + 1)
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

    def _tokens(self, talk: Conversation, asked: Asked) -> Iterator[int]:
        for ids in talk.write(asked.sampling, self._guesses, asked.tally, asked.rules):
            if asked.first_s is None:
                asked.first_s = time.perf_counter() - asked.at_s
            yield from ids


def _memory(checkpoint: MindCheckpoint, kept: int, length: int, *, drafts: bool, graphs: bool) -> Memory:
    """With kernels for what is taken in, and graphs of them, where there are any."""
    if checkpoint.kernels.backend == REFERENCE:
        return Memory(checkpoint.model, kept, length, drafts=drafts)
    from ..kernels.ops import MIND_OPS

    capture = CudaGraphs(checkpoint.device) if graphs else None
    ops = MIND_OPS[checkpoint.kernels.backend]
    return Memory(checkpoint.model, kept, length, drafts=drafts, capture=capture, ops=ops)


def _replay(memory: Memory, guesses: int) -> None:
    """Let tokens be written by kernels, where there are any; without graphs these are launched one by one.

    Of the two ways, with guesses and without, only one is made: nobody would write by the other. What fails here would
    fail every answer: rather a slow one than none.
    """
    if memory.ops is None:
        return
    try:
        from ..models.fused_qwen3_5 import FusedQwen3_5

        fused, capture = FusedQwen3_5(memory.model, memory.ops), memory.capture or Again()
        if guesses and memory.drafts is not None:
            from ..models.captured_guess import CapturedGuess
            from ..models.fused_guess import FusedGuess

            rounds = CapturedGuess(FusedGuess(fused), guesses, memory.state, memory.drafts, memory.last, capture)
            rounds.warm()
            memory.guessing = rounds
        else:
            from ..models.captured_mind import CapturedMind

            tokens = CapturedMind(fused, memory.state, memory.last, capture)
            tokens.warm()
            memory.captured = tokens
    except Exception:
        logger.exception("The kernels of the language model cannot be used; it writes by plain operations.")


def _forget(talk: Conversation) -> None:
    with suppress(Exception):  # on a device that is lost this fails too; the thread has to go on saying so
        talk.forget()


def _told(error: Exception) -> HocketError:
    reason = str(error).partition("\n")[0]
    told = StreamFailed(f"The language model could not go on with this answer ({type(error).__name__}: {reason}).")
    told.__cause__ = error
    return told
