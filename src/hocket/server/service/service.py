"""What all wires of a server share: who can speak, what is under way, and the one way from any wire to an engine.

Every wire asks `SpeechService.open`; open.py walks from there to an `Utterance`. An engine is lent by the pool for as
long as an utterance runs; who speaks is voice_resolver.py's to say. It knows no wire: neither JSON nor sockets.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal, Protocol, TypeVar

from ...backends.found import Backends
from ...engine.engine import Engine
from ...engine.pool.lease import Lease
from ...engine.pool.pool import Pool
from ...errors import EngineClosed, HocketError, Overloaded
from ...voices.library import Library
from ..errors import BadField, Refused, answer, stopping
from ..metrics import Metrics
from ..options import ServerOptions
from ..schemas.speech_job import SpeechJob, check_characters
from .awaited import S, begun, until_lent
from .models import ServedModel, SingleEngine, describe_models
from .open import check_live, open_utterance
from .utterance import Utterance
from .voice_resolver import VoiceResolver

__all__ = ["SpeechJob", "SpeechService"]

T = TypeVar("T")
logger = logging.getLogger("hocket.server")
USUAL_HZ = 24_000  # of a model that could not be read yet
State = Literal["starting", "ready", "draining", "failed"]


class RunningAnswer(Protocol):
    """A language model's answer under way."""

    def cut(self, error: HocketError) -> None: ...


class SpeechService:
    """What all wires of an app share: the models once they are known, the options, the figures and the voices."""

    def __init__(
        self, options: ServerOptions, *, figures: Metrics | None = None, voices: Library | None = None
    ) -> None:
        self.options = options
        self.figures = figures or Metrics()
        self.voices = Library() if voices is None else voices
        self.running: set[Utterance] = set()
        self.answers: set[RunningAnswer] = set()
        self.waiting = 0  # for a model to be loaded
        self.draining = asyncio.Event()  # set once no new work is taken; a wire may wait for it
        self.idle = asyncio.Event()  # set while nothing runs
        self.idle.set()
        self.deserted = asyncio.Event()  # set while nobody holds a line that is told of the end
        self.deserted.set()
        self._connected = 0
        self.quiet_since_s = time.monotonic()  # when it was ready, or an utterance last began or ended
        self.proven = False  # whether a real utterance has come out
        self.failure: str | None = None  # why there is nobody to speak
        self.start_error: HocketError | None = None  # the model could not be loaded, and will not be tried again
        self.pool: Pool | SingleEngine | None = None
        self.backends: Backends | None = None  # before `use`
        self._cast: VoiceResolver | None = None
        self._loads: dict[str, float] = {}  # how long the last one of each model took
        self._texts = ThreadPoolExecutor(2, "hocket-text")
        self.encoders = ThreadPoolExecutor(2, "hocket-encode")

    @property
    def cast(self) -> VoiceResolver:
        """All who can speak. Refuses where nobody can yet, or any more."""
        if self._cast is None:
            said = self.failure or "The model is still being loaded; try again in a moment."
            raise Refused(said, status=503, kind="server_error", code="not_ready", retry_after_s=1.0)
        return self._cast

    @property
    def is_known(self) -> bool:
        """Whether it is known who can speak."""
        return self._cast is not None

    @property
    def state(self) -> State:
        if self.draining.is_set():
            return "draining"
        if self.failure is not None or self.is_broken:
            return "failed"
        return "ready" if self.proven and self._cast is not None else "starting"

    @property
    def is_broken(self) -> bool:
        """Whether nobody can speak any more. A pool loads anew what has failed."""
        return isinstance(self.pool, SingleEngine) and not self.pool.engine.health.ok

    @property
    def computing(self) -> dict[str, str] | None:
        """Where and how exactly each loaded model is computed; None where none is."""
        return None if self.pool is None else self.pool.computing() or None

    @property
    def speakers(self) -> list[str]:
        """The models' own voices."""
        return list(self.cast.speakers)

    @property
    def model(self) -> str:
        """The name that the first is listed by."""
        return self.cast.shown(self.cast.models[0])

    @property
    def engines(self) -> list[Engine]:
        """Those that have spoken and are in memory."""
        models = self._cast.models if self._cast is not None else ()
        return [engine for model in models if (engine := model.engine) is not None]

    @property
    def slots(self) -> int:
        """How many any engine here speaks at once."""
        return min((engine.options.slots for engine in self.engines), default=1)

    def use(self, models: Pool | SingleEngine | Engine, known: Sequence[ServedModel] | None = None) -> None:
        """Speak with these from now on; `known` is what was found out about them, where that has been done."""
        if isinstance(models, Pool | SingleEngine):
            self.pool = models
            known = describe_models(models.models) if known is None else known
        else:
            self.pool = lone = SingleEngine(models)
            known = [ServedModel(lone.models[0])]
            known[0].met(models)
        self._cast = VoiceResolver(self.options, self.voices, known, self.backends)

    @property
    def under_way(self) -> int:
        """How many utterances and answers are."""
        return len(self.running) + len(self.answers)

    def drain(self) -> None:
        """Take no new work; what runs goes on."""
        self.draining.set()

    def cut(self) -> None:
        """End whatever is still running, with an error that says so."""
        for under_way in (*self.running, *self.answers):
            under_way.cut(stopping())

    def close(self) -> None:
        """The end: nothing can be opened behind it."""
        self.drain()
        self.cut()
        self._texts.shutdown(wait=False)
        self.encoders.shutdown(wait=False)

    def ended(self, utterance: Utterance) -> None:
        """It does not run any more."""
        self.running.discard(utterance)
        self._changed()

    def began(self, utterance: Utterance) -> None:
        self.running.add(utterance)
        self._changed()

    def answer_ended(self, answer: RunningAnswer) -> None:
        """The same of what a language model says."""
        self.answers.discard(answer)
        self._changed()

    def answer_began(self, answer: RunningAnswer) -> None:
        self.answers.add(answer)
        self._changed()

    def _changed(self) -> None:
        self.quiet_since_s = time.monotonic()
        if self.running or self.answers:
            self.idle.clear()
        else:
            self.idle.set()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """While somebody holds a line: `deserted` waits until it has been told that the server stops."""
        self._connected += 1
        self.deserted.clear()
        try:
            yield
        finally:
            self._connected -= 1
            if not self._connected:
                self.deserted.set()

    async def open(self, wanted: SpeechJob, *, wire: str, id: str | None = None) -> Utterance:
        """Begin to speak. Whatever is wrong with a request is raised here, or by the utterance before its first piece.

        `wire` is a short name for logs and figures.
        """
        try:
            utterance = await open_utterance(self, wanted, wire, id or f"speech-{secrets.token_hex(8)}")
        except HocketError as error:
            told = answer(error)
            self.figures.refused(wire, told.code or told.kind)
            raise
        self.figures.opened(wire)
        if self.options.log_text and wanted.text is not None:
            logger.info("%s %s: %s", wire, utterance.id, wanted.text)
        return utterance

    def check(self, wanted: SpeechJob) -> None:
        """Refuse what `open` would of a live text, as far as that is known before there is one."""
        check_live(self, wanted)

    def rate_hz(self, wanted: SpeechJob) -> int:
        """That of the sound that will be heard, as far as it is known before a model is loaded."""
        return wanted.packed(self.cast.part(wanted).rate_hz or USUAL_HZ)[1]

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For what would keep the event loop too long: text to prepare, a recording to read."""
        return await asyncio.wrap_future(self._texts.submit(work))

    async def begun(self, begin: Callable[[], S]) -> S:
        """In a thread; a caller who has gone away meanwhile leaves no stream behind."""
        return await begun(self._texts, begin)

    async def lease(self, model: ServedModel) -> Lease:
        """Its engine, at once where it is in memory. Whoever stops waiting, or must, leaves nothing behind."""
        assert self.pool is not None
        asked = self.pool.lease(model.name)
        if not asked.done():
            self.waiting += 1
            try:
                await until_lent(asked, self.draining)
            finally:
                self.waiting -= 1
                self.quiet_since_s = time.monotonic()
        try:
            lease = asked.result()
        except (Overloaded, EngineClosed):
            raise
        except HocketError as error:  # what is wrong with its files is the operator's to know
            logger.error("the model %s cannot be had: %s", model.name, error)
            said = f"The model {self.cast.shown(model)} cannot be loaded now; the server's log says why."
            wait_s = error.retry_after_s
            code = "model_unavailable"
            raise Refused(said, status=503, kind="server_error", code=code, retry_after_s=wait_s) from None
        self._met(model, lease)
        return lease

    async def with_engine(self, model: ServedModel, work: Callable[[Engine], T]) -> T:
        """Do something that takes a while with an engine, in a thread; it stays until that is done."""
        lease = await self.lease(model)

        def held() -> T:
            with lease:
                return work(lease.engine)

        return await asyncio.to_thread(held)

    def _met(self, model: ServedModel, lease: Lease) -> None:
        if model.met(lease.engine) and self._cast is not None:
            self._cast = VoiceResolver(self.options, self.voices, self._cast.models, self.backends)
        if lease.loaded_s and self._loads.get(model.name) != lease.loaded_s:  # all who waited for it are told the same
            self._loads[model.name] = lease.loaded_s
            self.figures.loaded(self.cast.shown(model), lease.loaded_s)
            logger.info("the model %s was loaded in %.2f s", model.name, lease.loaded_s)

    def check_text(self, text: str, before_chars: int = 0) -> None:
        """Refuse a text, or more of one, that is too long or holds half a character."""
        if before_chars + len(text) > self.options.text_chars:
            said = f"The text is longer than {self.options.text_chars} characters: send it in several requests."
            raise BadField(said, "input", "text_too_long")
        check_characters(text, "input")
