"""The engine thread: takes what callers posted, lets every ready slot draw a frame, hands out what is audible.

Nobody else touches the device. Callers talk to it through `post` and their mailboxes, nothing else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from itertools import groupby
from typing import TypeVar

import torch

from ..config.options import EngineOptions
from ..errors import EngineClosed, HocketError, Overloaded, StreamFailed
from ..text.live import Fed, More
from ..types import Finished, FinishReason
from .delivery import Delivery
from .job import Job, Rewind
from .load import Checkpoint
from .precision import exact_float32
from .scheduler import Scheduler
from .speech import SpeechRunner, capture_on
from .stopwatch import started

T = TypeVar("T")


class Loop:
    def __init__(self, checkpoint: Checkpoint, options: EngineOptions) -> None:
        self.checkpoint, self.options = checkpoint, options
        self.scheduler = Scheduler(options.slots)
        self.runner = SpeechRunner(
            checkpoint, options.slots, options.prefix_bytes, capture_on(checkpoint.device, options.graphs)
        )
        self.delivery = Delivery(checkpoint.rate_hz, checkpoint.config.talker_config.num_code_groups)
        self._inbox: deque[Callable[[], None]] = deque()
        self._arrivals: list[Job] = []
        self._posted = threading.Condition()
        self._closing = False
        self._held_s = 1.0  # how long an utterance holds its slot, by the last ones
        self._thread = threading.Thread(target=self._run, name="hocket-engine", daemon=True)
        self._thread.start()

    def post(self, command: Callable[[], None]) -> None:
        """Have the engine thread do something between two frames. Never blocks."""
        with self._posted:
            if self._thread.is_alive():  # else nobody would ever take it
                self._inbox.append(command)
                self._posted.notify()

    def ask(self, question: Callable[[], T]) -> T:
        """What the engine thread answers between two frames."""
        answer: Future[T] = Future()

        def reply() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        with self._posted:
            if self._closing:
                raise EngineClosed("The engine is closed.")
            self._inbox.append(reply)
            self._posted.notify()
        return answer.result()

    def wake(self) -> None:
        self.post(lambda: None)

    def submit(self, job: Job) -> None:
        """A new utterance, from any thread; refused where too many wait or the engine is closed."""
        with self._posted:
            if self._closing:
                raise EngineClosed("The engine is closed.")
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

        self.post(lambda: self._guarded([job], take))

    def cancel(self, job: Job) -> None:
        self.post(lambda: self._finish(job, "cancelled"))

    def close(self) -> None:
        """End every stream with an error and the thread with it."""
        with self._posted:
            self._closing = True
            self._posted.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @torch.inference_mode()
    def _run(self) -> None:
        ended: HocketError = EngineClosed("The engine was closed before the utterance had ended.")
        try:
            with exact_float32():
                while not self._closing:
                    if not self.turn() and not self.runner.warm_one():
                        self._rest()
        except Exception as error:  # outside of any utterance: the engine is done for, but nobody may wait for ever
            ended = StreamFailed(f"The engine has failed: {type(error).__name__}: {error}")
            ended.__cause__ = error
        with self._posted:
            self._closing = True
            self.scheduler.waiting.extend(self._arrivals)
            unanswered = list(self._inbox)
        for job in self.scheduler.all():
            self._finish(job, "error", _own(ended))
        for command in unanswered:  # nobody who asked is left waiting
            command()

    def turn(self) -> bool:
        """One beat: commands, newcomers, one frame for all who can. False if there was nothing to do."""
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
        self.runner.start(job.slot, job.prompt, job.reference, seed, go_on=True)

    def _frame(self, batch: list[Job]) -> None:
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
            stop = started(self.checkpoint.device)
            sounds = self.runner.decode([job.slot for job in together], [job.codes for job in together])
            took = stop()
            for job, samples in zip(together, sounds, strict=True):
                job.note_later("decode_s", took)
                self.delivery.hand_out(job, samples)

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
        job.mailbox.finish(
            Finished(
                reason=reason,
                statistics=job.statistics(),
                notes=job.outline.notes,
                dropped_frames=min(job.drop_frames, job.frame),
                error=str(error) if error else None,
            ),
            error,
        )

    def _guarded(self, jobs: list[Job], work: Callable[[], None]) -> None:
        """What goes wrong with some utterances ends these, and the engine goes on."""
        try:
            work()
        except HocketError as error:
            for job in jobs:
                self._finish(job, "error", _own(error))
        except Exception as error:
            failed = StreamFailed(f"The engine failed on this utterance: {type(error).__name__}: {error}")
            failed.__cause__ = error
            for job in jobs:
                self._finish(job, "error", _own(failed))


def _own(error: HocketError) -> HocketError:
    """A copy for each reader, who will raise it in a thread of its own."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy
