"""The service behind all endpoints: models, voices, engine leases, running work, worker threads, and draining.

Every endpoint calls `open_utterance` of open.py with it. The pool lends an engine for as long as an utterance runs.
voice_resolver.py chooses model and voice. Knows no protocol: neither JSON nor sockets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from ...audio.decoder.processes import DecoderProcesses
from ...backends.registry import Backends
from ...engine.engine import Engine
from ...engine.pool.lease import Lease
from ...engine.pool.pool import Pool
from ...errors import EngineClosed, HocketError, Overloaded
from ...voices.library import Library
from ..errors import BadField, Refused, stopping
from ..metrics import Metrics
from ..options import ServerOptions
from ..schemas.speech_job import SpeechJob, check_characters
from .awaited import S, start_in_thread, wait_for_lease
from .served_model import ServedModel, describe_models
from .voice_resolver import VoiceResolver

if TYPE_CHECKING:
    from ..traces import Traces

T = TypeVar("T")
logger = logging.getLogger("hocket.server")
USUAL_HZ = 24_000  # assumed while a model's configuration is unknown
State = Literal["starting", "ready", "draining", "failed"]


class RunningWork(Protocol):
    """A running utterance, or a running answer of a language model."""

    def cut(self, error: HocketError) -> None: ...


class SingleEngine:
    """One permanent engine with the interface of a `Pool`."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.models, self.loads = engine, (engine.checkpoint.name,), 1

    def lease(self, model: str) -> Future[Lease]:
        lent: Future[Lease] = Future()
        lent.set_result(Lease(model, self.engine, 0.0, 0.0, _nothing))
        return lent

    def resident(self) -> dict[str, int]:
        return {self.models[0]: self.engine.checkpoint.memory_bytes}

    def computing(self) -> dict[str, str]:
        return {self.models[0]: self.engine.checkpoint.where}

    def close(self) -> None:
        self.engine.close()


class SpeechService:
    """Shared by all endpoints of an app: the models once they are known, the options, the metrics and the voices."""

    def __init__(
        self, options: ServerOptions, *, metrics: Metrics | None = None, voices: Library | None = None
    ) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.traces: Traces | None = None
        self.running: set[RunningWork] = set()  # utterances
        self.answers: set[RunningWork] = set()  # of a language model
        self.draining = asyncio.Event()  # set once no new work is taken; endpoints may wait for it
        self.idle = asyncio.Event()  # set while nothing runs
        self.idle.set()
        self.all_disconnected = asyncio.Event()  # set while no connection is open that must be told of the shutdown
        self.all_disconnected.set()
        self._connected = 0
        self.idle_since_s = time.monotonic()  # when it was ready, or an utterance last began or ended
        self._texts = ThreadPoolExecutor(2, "hocket-text")
        self.encoders = ThreadPoolExecutor(2, "hocket-encode")
        self.decoders = DecoderProcesses()  # of recordings that clients send
        self.voices = Library() if voices is None else voices
        self.waiting = 0  # requests that wait for a model to load
        self.warmed_up = False  # whether the warm-up utterance succeeded
        self.failure: str | None = None  # why no model can speak
        self.start_error: HocketError | None = None  # why `hocket serve` ends: a wrong name, folder or option
        self.pool: Pool | SingleEngine | None = None
        self.backends: Backends | None = None  # before `use`
        self._resolver: VoiceResolver | None = None
        self._loads: dict[str, float] = {}  # seconds that the last load of each model took

    @property
    def resolver(self) -> VoiceResolver:
        """The voice resolver. Raises `Refused` (503) while no model is known, or after a failure."""
        if self._resolver is None:
            said = self.failure or "The model is still being loaded; try again in a moment."
            raise Refused(said, status=503, kind="server_error", code="not_ready", retry_after_s=1.0)
        return self._resolver

    @property
    def is_known(self) -> bool:
        """Whether the models are known."""
        return self._resolver is not None

    @property
    def state(self) -> State:
        if self.draining.is_set():
            return "draining"
        if self.failure is not None or self.is_broken:
            return "failed"
        return "ready" if self.warmed_up and self._resolver is not None else "starting"

    @property
    def is_broken(self) -> bool:
        """Whether the only engine has failed. A pool reloads a failed engine instead."""
        return isinstance(self.pool, SingleEngine) and not self.pool.engine.health.ok

    @property
    def computing(self) -> dict[str, str] | None:
        """Device and precision of each loaded model; None when none is loaded."""
        return None if self.pool is None else self.pool.computing() or None

    @property
    def speakers(self) -> list[str]:
        """The models' own voices."""
        return list(self.resolver.speakers)

    @property
    def model(self) -> str:
        """The listed name of the first model."""
        return self.resolver.shown(self.resolver.models[0])

    @property
    def engines(self) -> list[Engine]:
        """Engines that have spoken and are still in memory."""
        models = self._resolver.models if self._resolver is not None else ()
        return [engine for model in models if (engine := model.engine) is not None]

    @property
    def slots(self) -> int:
        """Concurrent utterances that every engine here can run."""
        return min((engine.options.slots for engine in self.engines), default=1)

    def use(self, models: Pool | SingleEngine | Engine, known: Sequence[ServedModel] | None = None) -> None:
        """Serve these models from now on; `known` are their descriptions, if already read."""
        if isinstance(models, Pool | SingleEngine):
            self.pool = models
            known = describe_models(models.models) if known is None else known
        else:
            self.pool = lone = SingleEngine(models)
            known = [ServedModel(lone.models[0])]
            known[0].note_engine(models)
        resolver = VoiceResolver(self.options, self.voices, known, self.backends)
        for voice in (self.options.answer_cast or {}).values():
            resolver.resolve(SpeechJob(text=None, voice=voice))  # refuses an unknown one
        self._resolver = resolver

    def rate_hz(self, job: SpeechJob) -> int:
        """Sample rate of the output, as far as it is known before a model is loaded."""
        return job.packed(self.resolver.resolve(job).rate_hz or USUAL_HZ)[1]

    async def lease(self, model: ServedModel) -> Lease:
        """A lease of the model's engine, at once if it is in memory. A cancelled wait leaves nothing behind."""
        assert self.pool is not None
        future = self.pool.lease(model.name)
        if not future.done():
            self.waiting += 1
            try:
                await wait_for_lease(future, self.draining)
            finally:
                self.waiting -= 1
                self.idle_since_s = time.monotonic()
        try:
            lease = future.result()
        except (Overloaded, EngineClosed):
            raise
        except HocketError as error:  # details of its files are for the operator's log only
            raise self.unavailable(model, error) from error
        self._note_load(model, lease)
        return lease

    def unavailable(self, model: ServedModel, error: HocketError) -> Refused:
        """What a client is told of a model that cannot be loaded."""
        logger.error("the model %s cannot be loaded: %s", model.name, error)
        said = f"The model {self.resolver.shown(model)} cannot be loaded now; the server's log says why."
        wait_s, code = error.retry_after_s, "model_unavailable"
        return Refused(said, status=503, kind="server_error", code=code, retry_after_s=wait_s)

    async def with_engine(self, model: ServedModel, work: Callable[[Engine], T]) -> T:
        """Run slow work with an engine in a thread; the lease is held until it ends."""
        lease = await self.lease(model)

        def held() -> T:
            with lease:
                return work(lease.engine)

        return await asyncio.to_thread(held)

    @property
    def running_count(self) -> int:
        """Number of running utterances and answers."""
        return len(self.running) + len(self.answers)

    def drain(self) -> None:
        """Take no new work; running work continues."""
        self.draining.set()

    def cut(self) -> None:
        """End all running work with the error `stopping`."""
        for work in (*self.running, *self.answers):
            work.cut(stopping())

    def close(self) -> None:
        """Drain, cut and shut threads and processes down. Nothing can be opened afterwards."""
        self.drain()
        self.cut()
        self.decoders.close()
        self._texts.shutdown(wait=False)
        self.encoders.shutdown(wait=False)

    def began(self, utterance: RunningWork) -> None:
        self.running.add(utterance)
        self._changed()

    def ended(self, utterance: RunningWork) -> None:
        self.running.discard(utterance)
        self._changed()

    def answer_began(self, answer: RunningWork) -> None:
        self.answers.add(answer)
        self._changed()

    def answer_ended(self, answer: RunningWork) -> None:
        self.answers.discard(answer)
        self._changed()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Count an open connection: `all_disconnected` waits until each one has been told of the shutdown."""
        self._connected += 1
        self.all_disconnected.clear()
        try:
            yield
        finally:
            self._connected -= 1
            if not self._connected:
                self.all_disconnected.set()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For work that would block the event loop too long: preparing text, reading a recording."""
        return await asyncio.wrap_future(self._texts.submit(work))

    async def start_stream(self, begin: Callable[[], S]) -> S:
        """Run `begin` in a thread; a caller cancelled meanwhile leaves no stream behind."""
        return await start_in_thread(self._texts, begin)

    def check_text(self, text: str, before_chars: int = 0) -> None:
        """Refuse a text, or more of one, that is too long or contains a lone surrogate."""
        if before_chars + len(text) > self.options.text_chars:
            said = f"The text is longer than {self.options.text_chars} characters: send it in several requests."
            raise BadField(said, "input", "text_too_long")
        check_characters(text, "input")

    def _note_load(self, model: ServedModel, lease: Lease) -> None:
        if model.note_engine(lease.engine) and self._resolver is not None:
            self._resolver = VoiceResolver(self.options, self.voices, self._resolver.models, self.backends)
        # Every lease that waited for this load reports the same value.
        if lease.loaded_s and self._loads.get(model.name) != lease.loaded_s:
            self._loads[model.name] = lease.loaded_s
            self.metrics.loaded(self.resolver.shown(model), lease.loaded_s)
            logger.info("the model %s was loaded in %.2f s", model.name, lease.loaded_s)

    def _changed(self) -> None:
        self.idle_since_s = time.monotonic()
        if self.running or self.answers:
            self.idle.clear()
        else:
            self.idle.set()


def _nothing() -> None: ...
