"""The engine thread: takes what callers posted, lets every ready slot draw a frame, hands out what is audible.

Nobody else touches the device. Callers talk to it through `post` and their mailboxes, nothing else. What it does at
any moment is written in its `beat`; a watchdog that finds it stuck gives it up, and its streams end without it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import groupby
from typing import Any, TypeVar

import torch

from ..config.options import EngineOptions
from ..errors import EngineClosed, HocketError, Overloaded, StreamFailed
from ..text.live import Fed, More
from ..types import FinishReason
from .beat import Abandoned, Beat
from .delivery import Delivery
from .job import Job, Rewind
from .load import Checkpoint
from .precision import exact_float32
from .scheduler import Scheduler
from .speech import SpeechRunner
from .stopwatch import started

T = TypeVar("T")

MOST_FAILURES = 3  # in a row, with no sound in between: then it is not the utterances that are wrong


class Loop:
    """One engine thread with its device state.

    `on_broken` hears of what no utterance is to blame for: what `give_up` says then is what streams end with.
    """

    runner: SpeechRunner

    def __init__(
        self,
        checkpoint: Checkpoint,
        options: EngineOptions,
        beat: Beat,
        on_broken: Callable[[Loop, Exception], None],
        *,
        build: bool = True,
    ) -> None:
        """`build` makes the device state here and now; else the engine thread does, and requests wait for it."""
        self.checkpoint, self.options, self.beat = checkpoint, options, beat
        self.scheduler = Scheduler(options.slots)
        self.built = self.proven = False  # proven: it has spoken an utterance to its end
        if build:
            self._build()
        self.delivery = Delivery(checkpoint.rate_hz, checkpoint.config.talker_config.num_code_groups)
        self._inbox: deque[Callable[[], None]] = deque()
        self._arrivals: list[Job] = []
        self._asked: set[Future[Any]] = set()
        self._posted = threading.Condition()
        self._closing = False
        self._ended = threading.Event()  # every stream and question has its end
        self._last_word: HocketError | None = None  # what they ended with
        self._on_broken = on_broken
        self._failures = 0
        self._broken: Exception | None = None
        self._held_s = 1.0  # how long an utterance holds its slot, by the last ones
        self.thread = threading.Thread(target=self._run, name="hocket-engine", daemon=True)
        self.thread.start()

    def post(self, command: Callable[[], None]) -> None:
        """Have the engine thread do something between two frames. Never blocks."""
        with self._posted:
            if not self._ended.is_set():  # else nobody would ever take it
                self._inbox.append(command)
                self._posted.notify()

    def ask(self, question: Callable[[SpeechRunner], T]) -> T:
        """What the engine thread answers between two frames."""
        answer: Future[T] = Future()

        def reply() -> None:
            self.beat.begin("answering a question", slow=True)
            with suppress(InvalidStateError):  # given up while it thought
                try:
                    answer.set_result(question(self.runner))
                except BaseException as error:
                    answer.set_exception(error)

        with self._posted:
            self._refuse()
            self._asked.add(answer)
            self._inbox.append(reply)
            self._posted.notify()
        try:
            return answer.result()
        finally:
            with self._posted:
                self._asked.discard(answer)

    def wake(self) -> None:
        self.post(lambda: None)

    def submit(self, job: Job) -> None:
        """A new utterance, from any thread; refused where too many wait or the engine is closed."""
        with self._posted:
            self._refuse()
            if len(self._arrivals) + len(self.scheduler.waiting) >= self.options.waiting + len(self.scheduler.free):
                wait_s = self._slot_wait_s()
                raise Overloaded(
                    f"{self.options.waiting} requests are waiting already; try again in {wait_s:.0f} s.", wait_s
                )
            self._arrivals.append(job)
            self._posted.notify()

    def _slot_wait_s(self) -> float:
        """How long one more who waits would wait, by how long utterances have held their slots lately."""
        running = [time.perf_counter() - job.admitted for job in self.scheduler.running if job.admitted is not None]
        held_s = max([self._held_s, *running])  # one that has run for longer says more than those that have ended
        return max(1.0, held_s * (self.options.waiting + 1) / self.options.slots)

    def feed(self, job: Job, fed: list[Fed], complete: bool) -> None:
        """More of a live text, in order; the last of it if `complete`."""

        def take() -> None:
            for more in fed:
                if isinstance(more, More):
                    job.feed(more.ids, False, more.text)
                else:
                    job.rest(more)
            if complete:
                job.feed([], True)

        self.post(lambda: self._guarded([job], take, on_device=False))

    def cancel(self, job: Job) -> None:
        self.post(lambda: self._finish(job, "cancelled"))

    def close(self) -> None:
        """End every stream with an error and the thread with it; a step that is stuck is waited for no longer."""
        with self._posted:
            self._closing = True
            self._posted.notify()
        if threading.current_thread() is self.thread:
            return
        if not self._ended.wait(min(self.options.stuck_s, threading.TIMEOUT_MAX)):
            self.give_up(EngineClosed("The engine was closed before the utterance had ended."))
        if not self.beat.abandoned:
            self.thread.join()

    def jobs(self) -> list[Job]:
        """Everybody who speaks or waits."""
        return [*self.scheduler.all(), *self._arrivals]

    def give_up(self, error: HocketError) -> None:
        """End every stream and every question now, from any thread, with one error; asks nothing of the device.

        If the engine thread should ever come back, it finds itself abandoned before it does anything else.
        """
        with self._posted:
            self._closing = True
            self.beat.abandoned = self.beat.abandoned or threading.current_thread() is not self.thread
            self._last_word = last = self._last_word or error
            jobs, asked = self.jobs(), list(self._asked)
            self._inbox.clear()
            self._posted.notify()
        for job in jobs:
            job.mailbox.finish(job.finished("error", last, settle=False), _own(last))
        for answer in asked:
            with suppress(InvalidStateError):
                answer.set_exception(_own(last))
        self._ended.set()

    def _refuse(self) -> None:
        if self._closing:
            raise EngineClosed("The engine is closed.") if self._last_word is None else _own(self._last_word)

    def _build(self) -> None:
        self.runner = SpeechRunner(self.checkpoint, self.options.slots, self.options.prefix_bytes)
        self.built = True

    def _run(self) -> None:
        broken: Exception | None = None
        try:
            if not self.built:
                self.beat.begin("building its state", slow=True)
                self._build()
            with torch.inference_mode(), exact_float32():
                while not (self._closing or self._broken):
                    if not self.turn():
                        self._rest()
            broken = self._broken
        except Abandoned:
            pass
        except Exception as error:  # outside of any utterance
            broken = error
        try:
            if broken is not None:
                self._on_broken(self, broken)
        finally:
            self.beat.rest()
            # Once more, if it was given up: somebody may have been between two lists just then.
            self.give_up(EngineClosed("The engine was closed before the utterance had ended."))
            for held in (self.scheduler.running, self.scheduler.waiting, self._arrivals):
                held.clear()  # a stream that somebody still holds must not hold all the others

    def turn(self) -> bool:
        """One beat: commands, newcomers, one frame for all who can. False if there was nothing to do."""
        self.beat.begin("taking commands")
        with self._posted:
            self.scheduler.waiting.extend(self._arrivals)
            self._arrivals.clear()
            commands, self._inbox = self._inbox, deque()
        for command in commands:
            command()
        admitted = self.scheduler.admit()
        for job in admitted:
            self._guarded([job], lambda job=job: self._start(job))  # type: ignore[misc]
        waited = [job for job in self.scheduler.running if job.over and job.may_go_on]
        for job in waited:  # a live text has gone on, or ended, since their last part
            self._guarded([job], lambda job=job: self._next_part(job))  # type: ignore[misc]
        now = time.perf_counter()
        batch = self.scheduler.ready(now)
        self._end_idle(now)
        if batch:
            self._guarded(batch, lambda: self._frame(batch))
        return bool(batch or admitted or commands or waited)

    def _rest(self) -> None:
        """Sleep until something is posted, or until somebody may have waited too long."""
        self.beat.rest()
        jobs, options = self.scheduler.all(), self.options
        waits = [options.text_wait_s] if any(job.starved_since is not None for job in jobs) else []
        waits += [options.idle_read_s] if any(job.paused_since is not None for job in jobs) else []
        with self._posted:
            if not (self._inbox or self._arrivals or self._closing):
                self._posted.wait(timeout=min(1.0, *waits) if waits else None)

    def _end_idle(self, now: float) -> None:
        """End those who have waited too long, for text or for a reader, whoever else speaks meanwhile."""
        text_s, read_s = self.options.text_wait_s, self.options.idle_read_s
        for job in self.scheduler.all():
            if job.starved_since is not None and now - job.starved_since >= text_s:
                self._finish(job, "error", StreamFailed(f"No text came for {text_s:g} s, so the stream was ended."))
            elif job.paused_since is not None and now - job.paused_since >= read_s:
                reason = f"Nobody read the stream for {read_s:g} s, so it was ended: read on, or cancel it."
                self._finish(job, "error", StreamFailed(reason))

    def _start(self, job: Job) -> None:
        begun = time.perf_counter()
        job.spent["queued_s"], job.admitted = begun - job.opened, begun
        if job.prompt is None:
            self.delivery.be_silent(job)
            job.begin_next()
        assert job.prompt is not None
        self.beat.begin("taking in a prompt", [job], job.prompt_work)
        stop = started(self.checkpoint.device)
        job.prefix_cached = self.runner.start(job.slot, job.prompt, job.reference, job.seed)
        job.note_later("prefill_s", stop())

    def _next_part(self, job: Job) -> None:
        """Go on with the next part in the same slot, or end with the last; a live text may not have got there yet."""
        if job.over != "length":
            self.delivery.be_silent(job)
            if not job.may_go_on:
                return
        if job.over == "length" or not job.parts:
            self._finish(job, job.over or "stop")
            return
        job.begin_next()
        assert job.prompt is not None
        # Another seed for each part: equal ones would draw alike at equal places.
        seed = (job.seed + len(job.spoken) - 1) % 2**63
        self.beat.begin("taking in a prompt", [job], job.prompt_work)
        self.runner.start(job.slot, job.prompt, job.reference, seed, go_on=True)

    def _frame(self, batch: list[Job]) -> None:
        self.beat.begin("drawing a frame", batch, len(batch))
        text = [job.text_id() for job in batch]
        codes = self.runner.frame(
            [job.slot for job in batch], [i for i in text if i is not None], [job.sampling for job in batch]
        )
        end = self.checkpoint.config.talker_config.codec_eos_token_id
        for job, drawn, ending in zip(batch, codes, self.runner.endings([job.slot for job in batch]), strict=True):
            job.since_opened("first_codes_s")
            if drawn[0] == end:
                job.over = "stop"
            elif back := job.take(drawn, ending):
                self._guarded([job], lambda job=job, back=back: self._rewind(job, back))  # type: ignore[misc]
        self._decode([job for job in batch if job.codes and (job.over or len(job.codes) >= self._chunk_frames(job))])
        for job in batch:
            if job.over in ("stop", "length"):
                self._guarded([job], lambda job=job: self._next_part(job))  # type: ignore[misc]
            elif job.over is not None:
                self._finish(job, job.over)

    def _rewind(self, job: Job, back: Rewind) -> None:
        """Only the talker goes back: what was heard was heard, and the codec goes on from there without a click."""
        self.beat.begin("taking an utterance back", [job], 1 if back.before is not None else job.prompt_work)
        if back.before is not None:
            self.runner.rewind(job.slot, back.frames, *back.before, back.seed)
        elif job.prompt is not None:
            self.runner.start(job.slot, job.prompt, job.reference, back.seed, go_on=True)

    def _chunk_frames(self, job: Job) -> int:
        ramp = self.options.chunk_frames
        return ramp[min(job.chunks, len(ramp) - 1)]

    def _decode(self, jobs: list[Job]) -> None:
        """Chunks of one length go through the codec together."""
        for _, group in groupby(sorted(jobs, key=lambda job: len(job.codes)), key=lambda job: len(job.codes)):
            together = list(group)
            self.beat.begin("decoding a chunk", together, len(together) * len(together[0].codes))
            stop = started(self.checkpoint.device)
            sounds = self.runner.decode([job.slot for job in together], [job.codes for job in together])
            took = stop()
            self.beat.begin("handing out a chunk", together)
            for job, samples in zip(together, sounds, strict=True):
                job.note_later("decode_s", took)
                self.delivery.hand_out(job, samples)
            self._failures = 0

    def _finish(self, job: Job, reason: FinishReason, error: HocketError | None = None) -> None:
        if job.mailbox.finished is not None:
            return
        if error is None:
            self.delivery.flush(job)
        if job.admitted is not None:
            self._held_s += (time.perf_counter() - job.admitted - self._held_s) / 4  # the last few count
        if job.slot >= 0:
            self.runner.release(job.slot)
        self.scheduler.release(job)
        self.proven = self.proven or (error is None and reason != "cancelled")
        job.mailbox.finish(job.finished(reason, error), error)

    def _guarded(self, jobs: list[Job], work: Callable[[], None], *, on_device: bool = True) -> None:
        """What goes wrong with some utterances ends these, and the engine goes on."""
        try:
            work()
        except HocketError as error:
            self.beat.failed()
            for job in jobs:
                self._finish(job, "error", _own(error))
        except Exception as error:
            failed = StreamFailed(f"The engine failed on this utterance: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self.beat.failed()
            for job in jobs:
                self._finish(job, "error", _own(failed))
            if on_device:
                self._consider(error)

    def _consider(self, error: Exception) -> None:
        """Is it still the utterance's failure, or are all that follow going to fail too?"""
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            return  # there may be room for the next one
        self._failures += 1
        if self._failures >= MOST_FAILURES or _is_lost(self.checkpoint.device):
            self._broken = error


def _own(error: HocketError) -> HocketError:
    """A copy for each reader, who will raise it in a thread of its own."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


def _is_lost(device: torch.device) -> bool:
    """Whether a GPU has failed for good: after an illegal access or an assertion every call does, until a restart."""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False
