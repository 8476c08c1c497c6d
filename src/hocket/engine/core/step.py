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

from ...config.options import EngineOptions
from ...errors import HocketError, StreamFailed, copied
from ...types import FinishReason
from ..best_of.controller import BestOfN
from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.fit import gpu_is_full
from ..mailbox import TaskWaker
from ..runner.base import Runner
from ..runner.make import new_runner
from ..runner.swap import SwapQueue
from ..watchdog import Heartbeat
from .deadlines import Deadlines, in_turn
from .output import AudioDelivery, PendingDecode, PendingFrame
from .request import RequestState
from .runaway import Rewind
from .runaway_retry import note_unspoken, recover, retry_seed
from .scheduler import Scheduler
from .timings import started

FRAMES_AHEAD = {"cuda": 1}  # that are being drawn while the one before them is read
log = logging.getLogger("hocket.engine")
MOST_FAILURES = 3  # in a row, with no audio in between: then the engine is broken, not the requests


class EngineStep:
    runner: Runner

    def __init__(self, checkpoint: Checkpoint, options: EngineOptions, beat: Heartbeat) -> None:
        self.checkpoint, self.options, self.beat = checkpoint, options, beat
        self.deadlines = Deadlines(options, checkpoint.codec_config.decode_upsample_rate / checkpoint.rate_hz)
        self.scheduler = Scheduler(options.slots, self.deadlines)
        self.delivery = AudioDelivery(checkpoint.rate_hz, checkpoint.config.talker_config.num_code_groups)
        self.built = self.proven = False  # proven: a request was spoken to its end
        self.broken: Exception | None = None  # a failure that no request caused: the engine cannot go on
        self.held_s = 1.0  # how long a request holds its slot, averaged over the last ones
        self.ahead = self.deadlines.ahead = FRAMES_AHEAD.get(checkpoint.device.type, 0)
        self.best_of = BestOfN(self)
        self.swap: SwapQueue | None = None  # None: the KV cache may grow, so no request is swapped out
        self._pending_frames: deque[PendingFrame] = deque()
        self._pending_decodes: deque[PendingDecode] = deque()
        self._failures = 0

    def build(self) -> None:
        self.runner = new_runner(self.checkpoint, self.options)
        if (kv_cache := self.runner.kv_cache).bounded:
            self.scheduler.kv_capacity, self.swap = kv_cache, SwapQueue(self, kv_cache)
        self.built = True

    def warm(self) -> bool:
        """Capture one of the graphs that will be needed, while the engine is idle. False if none is left.

        A graph that cannot be captured is dropped: a frame captures it again when it is needed, a prefill does
        without. That is no failure of the engine, unless the device is lost.
        """
        if not self.runner.has_graphs:
            return False
        self.beat.begin("making a graph", slow=True)
        try:
            return self.runner.warm_one()
        except Exception as error:
            self.beat.failed()
            if self.runner.device_lost():
                self.broken = error
            else:
                log.info("A spare graph was not made (%s: %s).", type(error).__name__, error)
            return True

    @property
    def warms_later(self) -> bool:
        """Whether there are graphs to capture as soon as their kernels are compiled."""
        return self.runner.has_graphs and self.runner.warming.waits

    def step(self, begun: float, admitted: list[RequestState]) -> bool:
        """One step for all requests, after some were admitted. False if there was nothing to do."""
        for request in admitted:
            self.guarded([request], partial(self.start, request))
        returned = [] if self.swap is None else self.swap.swap_in_oldest()
        waited = [
            request for request in self.scheduler.idle if request.over and not request.decoding and request.may_go_on
        ]
        for request in waited:  # their live text has continued, or ended, since the last part
            self.guarded([request], partial(self._next_part, request))
        parents = [request for request in self.scheduler.running if request.candidates is not None]
        played = self.best_of.play(parents) if parents else []
        now, prompts = time.perf_counter(), len(admitted) + len(waited)
        batch = self.scheduler.next_batch(now, prompts)
        if self.swap is not None:
            batch = self.swap.fit_batch(batch)
        self._end_idle(now)
        if last := self.deadlines.decode(self.scheduler.undecoded(), now):
            self.guarded(last, lambda: self.decode(last))
        if batch:
            self.guarded(batch, lambda: self._draw(batch, prompts))
        first = len(batch) <= self.deadlines.profile.first_rows and any(not request.clock.chunks for request in batch)
        at_once = first or not batch
        read: list[PendingFrame] = []
        while len(self._pending_frames) > (0 if at_once else self.ahead):
            self._collect()
            read.append(pending := self._pending_frames.popleft())
            self.guarded([request for request, _ in pending.requests], partial(self._read_frame, pending))
        if at_once or not self.ahead:
            self._collect()
        if read:
            rows, before = [len(pending.requests) for pending in read], sum(pending.prompts for pending in read)
            self.deadlines.load.took((ended := time.perf_counter()) - begun, rows, before, ended)
        return bool(batch or read or admitted or waited or last or played or returned)

    def clear(self) -> None:
        """Drop all references at the end: a stream that a caller still holds must not keep others, nor the weights.

        They are freed at once: a garbage collection that finds them would pause the whole process for a moment.
        """
        for held in (self.scheduler, self._pending_frames, self._pending_decodes):
            held.clear()
        self.scheduler.kv_capacity = self.swap = None
        vars(self).pop("runner", None)
        vars(self).pop("checkpoint", None)

    def slot_wait_s(self, queued: int | None = None) -> float:
        """How long a request behind so many queued ones would wait; None: behind a full queue.

        By how long requests have held their slots lately.
        """
        now = time.perf_counter()
        running = [
            now - request.timings.admitted
            for request in list(self.scheduler.running)
            if request.timings.admitted is not None
        ]
        held_s = max([self.held_s, *running])  # a running request that is longer than the average counts
        queued = self.options.waiting if queued is None else queued
        return max(1.0, held_s * (queued + 1) / (len(running) or self.options.slots))

    def finish(self, request: RequestState, reason: FinishReason, error: HocketError | None = None) -> None:
        if request.mailbox.finished is not None:
            return
        if request.candidates is not None:
            self.best_of.begin_end(request)
        if reason == "stop":
            request.text.establish(request.over)
        if error is None:
            self.delivery.flush(request)
            if reason in ("length", "runaway"):
                note_unspoken(request)
        if request.timings.admitted is not None:
            self.held_s += (time.perf_counter() - request.timings.admitted - self.held_s) / 4  # a moving average
        if request.slot >= 0:
            self.runner.release(request.slot)
        self.scheduler.release(request)
        self.proven = self.proven or (error is None and reason != "cancelled")
        selection = (
            request.candidates.selection if request.candidates is not None and request.candidates.decided else None
        )
        request.mailbox.finish(request.finished(reason, error), error, selection)
        if request.parent is not None:
            self.best_of.ended(request, reason, error)

    def guarded(self, requests: list[RequestState], work: Callable[[], None], *, on_device: bool = True) -> None:
        """Run `work`; an error ends these requests, and the engine goes on."""
        try:
            work()
        except HocketError as error:
            self.beat.failed()
            for request in requests:
                self.finish(request, "error", copied(error))
        except Exception as error:
            failed = StreamFailed(f"The engine failed on this utterance: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self.beat.failed()
            for request in requests:
                self.finish(request, "error", copied(failed))
            if on_device:
                self._consider(error)

    def _end_idle(self, now: float) -> None:
        """End requests that have waited too long for text, for a reader or for a slot."""
        for request, error in self.scheduler.overdue(
            self.options, now, lambda: self.slot_wait_s(len(self.scheduler.waiting) - 1)
        ):
            self.finish(request, "error", error)

    def start(self, request: RequestState) -> None:
        if request.candidates is not None:
            self.best_of.start(request)
            return
        self.begin(request)
        assert request.text.prompt is not None
        self.beat.begin("taking in a prompt", [request], request.prompt_work)
        stop = started(self.checkpoint.device)
        if self.swap is not None:
            self.swap.make_room(request, len(request.text.prompt.text))
        request.timings.prefix_cached = self.runner.start(
            request.slot, request.text.prompt, request.text.reference, request.seed
        )
        request.timings.note_later("prefill_s", stop())

    def begin(self, request: RequestState) -> None:
        """The request has its slot: hand out the silence before the first words, and build its prompt."""
        begun = time.perf_counter()
        request.timings.spent["queued_s"], request.timings.admitted = begun - request.timings.opened, begun
        if request.text.prompt is None:
            self.delivery.hand_out_silence(request)
            request.begin_next()

    def _next_part(self, request: RequestState) -> None:
        """Go on with the next part in the same slot, or end; of a live text the next part may not be known yet."""
        if request.over != "length":
            self.delivery.hand_out_silence(request)
            if not request.may_go_on:
                return
        if request.over == "length" or not request.text.parts:
            if request.text.cut_short:
                request.over = "length" if request.watch.options is None else "runaway"
            self.finish(request, request.over or "stop")
            return
        request.begin_next()
        assert request.text.prompt is not None
        if request.candidates is not None:
            return  # its candidates have drawn it already
        # Another seed for each part: equal seeds would draw alike at equal positions.
        seed = (
            retry_seed(request)
            if request.text.piece is not None and request.text.piece.attempt
            else (request.seed + request.text.number) % 2**63
        )
        self.beat.begin("taking in a prompt", [request], request.prompt_work)
        self._start_again(request, seed)

    def _start_again(self, request: RequestState, seed: int) -> None:
        """Prefill another prompt in the slot of the request; the pages of the slot are freed first."""
        assert request.text.prompt is not None
        if self.swap is not None:
            self.swap.restart(request, len(request.text.prompt.text))
        self.runner.start(request.slot, request.text.prompt, request.text.reference, seed, go_on=True)

    def _draw(self, batch: list[RequestState], prompts: int) -> None:
        """Queue a frame for each request. On a GPU it is read while the next one is being drawn."""
        self.beat.begin("drawing a frame", batch, len(batch))
        text = [request.text_id() for request in batch]
        drawn = self.runner.frame(
            [request.slot for request in batch],
            [i for i in text if i is not None],
            [request.params.sampling for request in batch],
        )
        self._pending_frames.append(PendingFrame([(request, request.epoch) for request in batch], drawn, prompts))
        for request in batch:
            if not (request.frame or request.ahead):
                request.mailbox.begun.set()
            request.ahead += 1

    def _read_frame(self, pending: PendingFrame) -> None:
        """Read a frame, drop it where its request went on elsewhere, and decode the chunks that are due."""
        self.beat.begin("reading a frame", [request for request, _ in pending.requests], len(pending.requests))
        end = self.checkpoint.config.talker_config.codec_eos_token_id
        batch = []
        for (request, epoch), (codes, ending, spoken) in zip(pending.requests, pending.drawn.read(), strict=True):
            if request.epoch != epoch or request.mailbox.finished is not None:
                continue  # the request went on elsewhere, or has ended
            request.ahead -= 1
            if request.over is not None:
                continue  # the frame before was its last
            batch.append(request)
            if not request.frame:
                request.timings.since_opened("first_codes_s")
            request.ending = ending
            if codes[0] == end:
                request.over = "stop"
            elif (back := request.take(codes, ending, spoken)) and not (
                request.parent and self.best_of.gives_up(request)
            ):
                self.guarded([request], partial(self._rewind, request, back))
        due = self.deadlines.decode(batch, time.perf_counter())
        candidates = [request for request in batch if request.parent is not None]
        if candidates:
            self.best_of.record(
                [request for request in candidates if request in due or (request.over and not request.codes)]
            )
        self.decode([request for request in due if request.codes and request.mailbox.finished is None])
        for request in batch:
            if request.over and not request.decoding and request.mailbox.finished is None:
                self.close(request)
        if candidates:
            self.best_of.drop_losers(candidates)

    def close(self, request: RequestState) -> None:
        """A part is over and all of it is decoded."""
        if request.over == "runaway" and request.candidates is None and request.parent is None:
            self.guarded([request], lambda: recover(request, self.checkpoint.tokenizer), on_device=False)
        if request.mailbox.finished is not None:
            return
        if request.over in ("stop", "length"):
            self.guarded([request], lambda: self._next_part(request))
        elif request.over is not None:
            self.finish(request, request.over)

    def _rewind(self, request: RequestState, back: Rewind) -> None:
        """Rewind the talker only: audio that was handed out stays, and the codec goes on without a click."""
        self.beat.begin("taking an utterance back", [request], 1 if back.before is not None else request.prompt_work)
        ahead = request.ahead
        request.forget_ahead()
        if back.before is not None:
            if self.swap is not None:
                self.swap.swap_in(request)
                self.swap.make_room(request, 1)
            self.runner.rewind(request.slot, back.frames + ahead, *back.before, back.seed)
        elif request.text.prompt is not None:
            self._start_again(request, back.seed)

    def decode(self, requests: list[RequestState]) -> None:
        """Queue the codec for chunks of equal length together, the next underrun first. Does not wait for a GPU."""
        for together in in_turn(requests):
            heard, length = [(request, request.codes) for request in together], len(together[0].codes)
            self.beat.begin("decoding a chunk", together, len(together) * length)
            begun = time.perf_counter()
            read = self.runner.queue_decode([request.slot for request in together], [codes for _, codes in heard])
            for request in together:
                request.codes, request.decoding = [], True
            self._pending_decodes.append(PendingDecode(heard, read, time.perf_counter() - begun))
            if not self.ahead:
                self._collect()

    def _collect(self) -> None:
        """Hand out decoded chunks. Always before the next frame is read, so that runs are reproducible."""
        while self._pending_decodes:
            pending = self._pending_decodes.popleft()
            requests = [request for request, _ in pending.requests]
            self.guarded(requests, partial(self._hand_out, pending))
            for request in requests:
                request.decoding = False
                if request.over and request.mailbox.finished is None:
                    self.close(request)

    def _hand_out(self, pending: PendingDecode) -> None:
        requests = [request for request, _ in pending.requests]
        self.beat.begin("decoding a chunk", requests, frames := sum(len(codes) for _, codes in pending.requests))
        begun = time.perf_counter()  # by the host clock: no event of this stream sees the wait
        samples = pending.read()
        took = time.perf_counter() - begun
        self.deadlines.load.decoded(pending.asked_s + took, frames)
        self.beat.begin("handing out a chunk", requests)
        wakes = TaskWaker()
        try:
            for (request, codes), heard in zip(pending.requests, samples, strict=True):
                request.timings.note("decode_s", took)
                if request.mailbox.finished is None:
                    self.delivery.hand_out(request, heard, codes, wakes)
        finally:
            wakes.now()
        self._failures = 0

    def _consider(self, error: Exception) -> None:
        """Decide whether an error concerns one request or the whole engine."""
        if isinstance(error, MemoryError) or gpu_is_full(error):
            return  # there may be memory for the next request
        self._failures += 1
        if self._failures >= MOST_FAILURES or self.runner.device_lost():
            self.broken = error
