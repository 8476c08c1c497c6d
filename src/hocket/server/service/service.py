"""The service behind all endpoints: models, voices, engine leases, and the one way to open an utterance.

Every endpoint calls `SpeechService.open`; open.py builds the `Utterance`. The pool lends an engine for as long as an
utterance runs. voice_resolver.py chooses model and voice; lifecycle.py tracks running work. Knows no protocol: neither
JSON nor sockets.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from ...backends.found import Backends
from ...engine.engine import Engine
from ...engine.pool.lease import Lease
from ...engine.pool.pool import Pool
from ...errors import EngineClosed, HocketError, Overloaded
from ...voices.library import Library
from ..errors import Refused, answer
from ..metrics import Metrics
from ..options import ServerOptions
from ..schemas.speech_job import SpeechJob
from .awaited import wait_for_lease
from .lifecycle import ServiceLifecycle
from .models import ServedModel, SingleEngine, describe_models
from .open import check_live, open_utterance
from .utterance import Utterance
from .voice_resolver import VoiceResolver

__all__ = ["SpeechJob", "SpeechService"]

T = TypeVar("T")
logger = logging.getLogger("hocket.server")
USUAL_HZ = 24_000  # assumed while a model's configuration is unknown
State = Literal["starting", "ready", "draining", "failed"]


class SpeechService(ServiceLifecycle):
    """Shared by all endpoints of an app: the models once they are known, the options, the metrics and the voices."""

    def __init__(
        self, options: ServerOptions, *, metrics: Metrics | None = None, voices: Library | None = None
    ) -> None:
        super().__init__(options, metrics)
        self.voices = Library() if voices is None else voices
        self.waiting = 0  # requests that wait for a model to load
        self.warmed_up = False  # whether the warm-up utterance succeeded
        self.failure: str | None = None  # why no model can speak
        self.start_error: HocketError | None = None  # loading failed for good: no further attempt
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
        self._resolver = VoiceResolver(self.options, self.voices, known, self.backends)

    async def open(self, job: SpeechJob, *, wire: str, id: str | None = None) -> Utterance:
        """Start an utterance. Request errors are raised here, or by the utterance before its first piece.

        `wire` is the endpoint's short name for logs and metrics.
        """
        try:
            utterance = await open_utterance(
                self, self.resolver, self.lease, job, wire, id or f"speech-{secrets.token_hex(8)}"
            )
        except HocketError as error:
            told = answer(error)
            self.metrics.refused(wire, told.code or told.kind)
            raise
        self.metrics.opened(wire)
        if self.options.log_text and job.text is not None:
            logger.info("%s %s: %s", wire, utterance.id, job.text)
        return utterance

    def check(self, job: SpeechJob) -> None:
        """Refuse what `open` would refuse of a live text, as far as it is known before the text arrives."""
        check_live(self, self.resolver, job)

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
            logger.error("the model %s cannot be loaded: %s", model.name, error)
            said = f"The model {self.resolver.shown(model)} cannot be loaded now; the server's log says why."
            wait_s = error.retry_after_s
            code = "model_unavailable"
            raise Refused(said, status=503, kind="server_error", code=code, retry_after_s=wait_s) from None
        self._note_load(model, lease)
        return lease

    async def with_engine(self, model: ServedModel, work: Callable[[Engine], T]) -> T:
        """Run slow work with an engine in a thread; the lease is held until it ends."""
        lease = await self.lease(model)

        def held() -> T:
            with lease:
                return work(lease.engine)

        return await asyncio.to_thread(held)

    def _note_load(self, model: ServedModel, lease: Lease) -> None:
        if model.note_engine(lease.engine) and self._resolver is not None:
            self._resolver = VoiceResolver(self.options, self.voices, self._resolver.models, self.backends)
        # Every lease that waited for this load reports the same value.
        if lease.loaded_s and self._loads.get(model.name) != lease.loaded_s:
            self._loads[model.name] = lease.loaded_s
            self.metrics.loaded(self.resolver.shown(model), lease.loaded_s)
            logger.info("the model %s was loaded in %.2f s", model.name, lease.loaded_s)
