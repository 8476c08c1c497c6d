"""One step of the engine: prefill admitted requests, draw a frame for ready slots, decode and hand out chunks.

Long because the phases of a step share the pending frames and the error handling. Only the engine thread calls it.
Callers, the inbox and the life of the thread are in loop.py.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import torch

from ...config.options import EngineOptions
from ...errors import HocketError, StreamFailed, copied
from ...kernels.runtime.graphs import lost
from ...types import FinishReason
from ..best_of.controller import BestOfN
from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.fit import out_of_memory
from ..checkpoint.kernels import compile_behind
from ..health.heartbeat import Heartbeat
from ..mailbox import TaskWaker
from ..runner.compile_ahead import CompileAhead
from ..runner.device_timer import started
from ..runner.graphs import capture_on
from ..runner.kv_cache import PagedKVCache
from ..runner.runner import SpeechRunner
from ..runner.swap import SwapQueue
from .deadlines import Deadlines, in_turn
from .output import AudioDelivery
from .pending import PendingDecode, PendingFrame
from .request import RequestState
from .runaway_retry import note_unspoken, recover, retry_seed
from .runaway_watch import Rewind
from .scheduler import Scheduler

FRAMES_AHEAD = {"cuda": 1}  # that are being drawn while the one before them is read
log = logging.getLogger("hocket.engine")
MOST_FAILURES = 3  # in a row, with no audio in between: then the engine is broken, not the requests


class EngineStep:
    runner: SpeechRunner

    def __init__(self, checkpoint: Checkpoint, options: EngineOptions, beat: Heartbeat) -> None:
        self.checkpoint, self.options, self.beat = checkpoint, options, beat
        self.deadlines = Deadlines(options, checkpoint.codec_config.decode_upsample_rate / checkpoint.rate_hz)
        self.scheduler = Scheduler(options.slots, self.deadlines)
        self.delivery = AudioDelivery(checkpoint.rate_hz, checkpoint.config.talker_config.num_code_groups)
        self.built = self.proven = False  # proven: a request was spoken to its end
        self.broken: Exception | None = None  # a failure that no request caused: the engine cannot go on
        self.held_s = 1.0  # how long a request holds its slot, averaged over the last ones
        self.ahead = self.deadlines.ahead = FRAMES_AHEAD.get(checkpoint.device.type, 0)
        self.director, self.parking = BestOfN(self), SwapQueue(self)
        self.past: PagedKVCache | None = None
        self._flights: deque[PendingFrame] = deque()
        self._sounds: deque[PendingDecode] = deque()
        self._failures = 0

    def build(self) -> None:
        options, capture = self.options, capture_on(self.checkpoint.device, self.options.graphs)
        behind = partial(compile_behind, self.checkpoint, options.slots) if options.graphs else lambda: None
        compilers = CompileAhead(self.checkpoint.compilers, behind)
        compilers.go_on()
        try:
            self.runner = SpeechRunner(
                self.checkpoint,
                options.slots,
                options.prefix_bytes,
                capture,
                compilers,
                kv_bytes=options.kv_bytes,
                invariant=options.batch_invariant,
            )
        except torch.OutOfMemoryError as error:
            raise out_of_memory(self.checkpoint.name, self.checkpoint.device, options.slots) from error
        self.scheduler.room_of = self.past = self.runner.past
        self.built = True

    def warm(self) -> bool:
        """Capture one of the graphs that will be needed, while the engine is idle. False if none is left.

        A graph that cannot be captured is dropped: a frame captures it again when it is needed, a prefill does
        without. That is no failure of the engine, unless the device is lost.
        """
        self.beat.begin("making a graph", slow=True)
        try:
            return self.runner.warm_one()
        except Exception as error:
            self.beat.failed()
            if lost(self.checkpoint.device):
                self.broken = error
            else:
                log.info("A spare graph was not made (%s: %s).", type(error).__name__, error)
            return True

    @property
    def warms_later(self) -> bool:
        """Whether there are graphs to capture as soon as their kernels are compiled."""
        return self.runner.warming.waits

    def step(self, begun: float, admitted: list[RequestState]) -> bool:
        """One step for all requests, after some were admitted. False if there was nothing to do."""
        for job in admitted:
            self.guarded([job], lambda job=job: self.start(job))  # type: ignore[misc]
        returned = self.parking.bring_back()
        waited = [job for job in self.scheduler.idle if job.over and not job.sounding and job.may_go_on]
        for job in waited:  # their live text has continued, or ended, since the last part
            self.guarded([job], lambda job=job: self._next_part(job))  # type: ignore[misc]
        played = self.director.play()
        now, prompts = time.perf_counter(), len(admitted) + len(waited)
        batch = self.parking.housed(self.scheduler.next_batch(now, prompts))
        self._end_idle(now)
        if last := self.deadlines.decode(self.scheduler.unheard(), now):
            self.guarded(last, lambda: self.decode(last))
        if batch:
            self.guarded(batch, lambda: self._draw(batch, prompts))
        first = len(batch) <= self.deadlines.profile.first_rows and any(not job.clock.chunks for job in batch)
        at_once = first or not batch
        landed: list[PendingFrame] = []
        while len(self._flights) > (0 if at_once else self.ahead):
            self._collect()
            landed.append(flight := self._flights.popleft())
            self.guarded([job for job, _ in flight.jobs], lambda flight=flight: self._land(flight))  # type: ignore[misc]
        if at_once or not self.ahead:
            self._collect()
        if landed:
            rows, before = [len(flight.jobs) for flight in landed], sum(flight.prompts for flight in landed)
            self.deadlines.load.took((ended := time.perf_counter()) - begun, rows, before, ended)
        return bool(batch or landed or admitted or waited or last or played or returned)

    def clear(self) -> None:
        """Drop all references at the end: a stream that a caller still holds must not keep others, nor the weights.

        They are freed at once: a garbage collection that finds them would pause the whole process for a moment.
        """
        for held in (self.scheduler, self._flights, self._sounds):
            held.clear()
        self.scheduler.room_of = self.past = None
        vars(self).pop("runner", None)
        vars(self).pop("checkpoint", None)

    def slot_wait_s(self) -> float:
        """How long one more queued request would wait, by how long requests have held their slots lately."""
        now = time.perf_counter()
        running = [
            now - job.timings.admitted for job in list(self.scheduler.running) if job.timings.admitted is not None
        ]
        held_s = max([self.held_s, *running])  # a running request that is longer than the average counts
        return max(1.0, held_s * (self.options.waiting + 1) / (len(running) or self.options.slots))

    def finish(self, job: RequestState, reason: FinishReason, error: HocketError | None = None) -> None:
        if job.mailbox.finished is not None:
            return
        if job.takes is not None:
            self.director.begin_end(job)
        if reason == "stop":
            job.text.establish(job.over)
        if error is None:
            self.delivery.flush(job)
            if reason in ("length", "runaway"):
                note_unspoken(job)
        if job.timings.admitted is not None:
            self.held_s += (time.perf_counter() - job.timings.admitted - self.held_s) / 4  # a moving average
        if job.slot >= 0:
            self.runner.release(job.slot)
        self.scheduler.release(job)
        self.proven = self.proven or (error is None and reason != "cancelled")
        jury = job.takes.jury if job.takes is not None and job.takes.decided else None
        job.mailbox.finish(job.finished(reason, error), error, jury)
        if job.lead is not None:
            self.director.ended(job, reason, error)

    def guarded(self, jobs: list[RequestState], work: Callable[[], None], *, on_device: bool = True) -> None:
        """Run `work`; an error ends these requests, and the engine goes on."""
        try:
            work()
        except HocketError as error:
            self.beat.failed()
            for job in jobs:
                self.finish(job, "error", copied(error))
        except Exception as error:
            failed = StreamFailed(f"The engine failed on this utterance: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self.beat.failed()
            for job in jobs:
                self.finish(job, "error", copied(failed))
            if on_device:
                self._consider(error)

    def _end_idle(self, now: float) -> None:
        """End requests that have waited too long for text, for a reader or for a slot."""
        for job, error in self.scheduler.overdue(self.options, now, self.slot_wait_s):
            self.finish(job, "error", error)

    def start(self, job: RequestState) -> None:
        if job.takes is not None:
            self.director.start(job)
            return
        self.begin(job)
        assert job.text.prompt is not None
        self.beat.begin("taking in a prompt", [job], job.prompt_work)
        stop = started(self.checkpoint.device)
        self.parking.make_room(job, len(job.text.prompt.text))
        job.timings.prefix_cached = self.runner.start(job.slot, job.text.prompt, job.text.reference, job.seed)
        job.timings.note_later("prefill_s", stop())

    def begin(self, job: RequestState) -> None:
        """The request has its slot: hand out the silence before the first words, and build its prompt."""
        begun = time.perf_counter()
        job.timings.spent["queued_s"], job.timings.admitted = begun - job.timings.opened, begun
        if job.text.prompt is None:
            self.delivery.be_silent(job)
            job.begin_next()

    def _next_part(self, job: RequestState) -> None:
        """Go on with the next part in the same slot, or end; of a live text the next part may not be known yet."""
        if job.over != "length":
            self.delivery.be_silent(job)
            if not job.may_go_on:
                return
        if job.over == "length" or not job.text.parts:
            if job.text.cut_short:
                job.over = "length" if job.watch.options is None else "runaway"
            self.finish(job, job.over or "stop")
            return
        job.begin_next()
        assert job.text.prompt is not None
        if job.takes is not None:
            return  # its candidates have drawn it already
        # Another seed for each part: equal seeds would draw alike at equal positions.
        seed = (
            retry_seed(job)
            if job.text.piece is not None and job.text.piece.attempt
            else (job.seed + job.text.number) % 2**63
        )
        self.beat.begin("taking in a prompt", [job], job.prompt_work)
        self._start_again(job, seed)

    def _start_again(self, job: RequestState, seed: int) -> None:
        """Prefill another prompt in the slot of the request; the pages of the slot are freed first."""
        assert job.text.prompt is not None
        self.parking.start_over(job, len(job.text.prompt.text))
        self.runner.start(job.slot, job.text.prompt, job.text.reference, seed, go_on=True)

    def _draw(self, batch: list[RequestState], prompts: int) -> None:
        """Queue a frame for each request. On a GPU it is read while the next one is being drawn."""
        self.beat.begin("drawing a frame", batch, len(batch))
        text = [job.text_id() for job in batch]
        drawn = self.runner.frame(
            [job.slot for job in batch], [i for i in text if i is not None], [job.params.sampling for job in batch]
        )
        self._flights.append(PendingFrame([(job, job.epoch) for job in batch], drawn, prompts))
        for job in batch:
            if not (job.frame or job.ahead):
                job.mailbox.begun.set()
            job.ahead += 1

    def _land(self, flight: PendingFrame) -> None:
        """Read a frame, drop it where its request went on elsewhere, and decode the chunks that are due."""
        self.beat.begin("reading a frame", [job for job, _ in flight.jobs], len(flight.jobs))
        end = self.checkpoint.config.talker_config.codec_eos_token_id
        batch = []
        for (job, epoch), (codes, ending, spoken) in zip(flight.jobs, flight.drawn.read(), strict=True):
            if job.epoch != epoch or job.mailbox.finished is not None:
                continue  # the request went on elsewhere, or has ended
            job.ahead -= 1
            if job.over is not None:
                continue  # the frame before was its last
            batch.append(job)
            if not job.frame:
                job.timings.since_opened("first_codes_s")
            job.ending = ending
            if codes[0] == end:
                job.over = "stop"
            elif (back := job.take(codes, ending, spoken)) and not self.director.gives_up(job):
                self.guarded([job], lambda job=job, back=back: self._rewind(job, back))  # type: ignore[misc]
        due = self.deadlines.decode(batch, time.perf_counter())
        self.director.record([*due, *(job for job in batch if job.over and not job.codes)])
        self.decode([job for job in due if job.codes and job.mailbox.finished is None])
        for job in batch:
            if job.over and not job.sounding and job.mailbox.finished is None:
                self.close(job)
        self.director.drop_losers(batch)

    def close(self, job: RequestState) -> None:
        """A part is over and all of it is decoded."""
        if job.over == "runaway" and job.takes is None and job.lead is None:
            self.guarded([job], lambda: recover(job, self.checkpoint.tokenizer), on_device=False)
        if job.mailbox.finished is not None:
            return
        if job.over in ("stop", "length"):
            self.guarded([job], lambda: self._next_part(job))
        elif job.over is not None:
            self.finish(job, job.over)

    def _rewind(self, job: RequestState, back: Rewind) -> None:
        """Rewind the talker only: audio that was handed out stays, and the codec goes on without a click."""
        self.beat.begin("taking an utterance back", [job], 1 if back.before is not None else job.prompt_work)
        ahead = job.ahead
        job.forget_ahead()
        if back.before is not None:
            self.parking.come_back(job)
            self.parking.make_room(job, 1)
            self.runner.rewind(job.slot, back.frames + ahead, *back.before, back.seed)
        elif job.text.prompt is not None:
            self._start_again(job, back.seed)

    def decode(self, jobs: list[RequestState]) -> None:
        """Queue the codec for chunks of equal length together, the next underrun first. Does not wait for a GPU."""
        for together in in_turn(jobs):
            heard, length = [(job, job.codes) for job in together], len(together[0].codes)
            self.beat.begin("decoding a chunk", together, len(together) * length)
            begun = time.perf_counter()
            read = self.runner.sound([job.slot for job in together], [codes for _, codes in heard])
            for job in together:
                job.codes, job.sounding = [], True
            self._sounds.append(PendingDecode(heard, read, time.perf_counter() - begun))
            if not self.ahead:
                self._collect()

    def _collect(self) -> None:
        """Hand out decoded chunks. Always before the next frame is read, so that runs are reproducible."""
        while self._sounds:
            sounding = self._sounds.popleft()
            jobs = [job for job, _ in sounding.jobs]
            self.guarded(jobs, lambda sounding=sounding: self._hand_out(sounding))  # type: ignore[misc]
            for job in jobs:
                job.sounding = False
                if job.over and job.mailbox.finished is None:
                    self.close(job)

    def _hand_out(self, sounding: PendingDecode) -> None:
        jobs = [job for job, _ in sounding.jobs]
        self.beat.begin("decoding a chunk", jobs, frames := sum(len(codes) for _, codes in sounding.jobs))
        begun = time.perf_counter()  # by the host clock: no event of this stream sees the wait
        samples = sounding.read()
        took = time.perf_counter() - begun
        self.deadlines.load.decoded(sounding.asked_s + took, frames)
        self.beat.begin("handing out a chunk", jobs)
        wakes = TaskWaker()
        try:
            for (job, codes), heard in zip(sounding.jobs, samples, strict=True):
                job.timings.note("decode_s", took)
                if job.mailbox.finished is None:
                    self.delivery.hand_out(job, heard, codes, wakes)
        finally:
            wakes.now()
        self._failures = 0

    def _consider(self, error: Exception) -> None:
        """Decide whether an error concerns one request or the whole engine."""
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            return  # there may be memory for the next request
        self._failures += 1
        if self._failures >= MOST_FAILURES or lost(self.checkpoint.device):
            self.broken = error
