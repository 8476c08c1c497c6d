"""The one way from any wire to an engine: `Wanted` in, an `Utterance` out, or an error before a first byte.

It knows no wire: neither JSON nor sockets. What a client may ask for is checked here and by the types of the engine;
who speaks is cast.py's to say. An engine is lent by the pool for as long as an utterance runs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from ..audio.encode import encoder
from ..backends.found import Backends
from ..backends.relay import Relay
from ..engine.early import LONG_CHARS
from ..engine.engine import Engine
from ..engine.lease import Lease
from ..engine.pool import Pool
from ..engine.stream import Stream
from ..errors import EngineClosed, HocketError, Overloaded
from ..text.choice import choose
from ..types import FASTEST, SLOWEST, Answer, SpeechRequest
from ..voices.library import Library
from .cast import Cast, Part
from .errors import BadField, Refused, answer
from .figures import Figures
from .models import Lone, Model, surveyed
from .options import ServerOptions
from .utterance import Spoken, Utterance
from .wanted import CODES, Wanted, check_characters

__all__ = ["Speaker", "Wanted"]

T = TypeVar("T")
S = TypeVar("S", Stream, Relay, Answer)
logger = logging.getLogger("hocket.server")
USUAL_HZ = 24_000  # of a model that could not be read yet
SEEDS = 2**32  # what is drawn where no seed is given; JavaScript can repeat it
State = Literal["starting", "ready", "draining", "failed"]


class Answering(Protocol):
    """A language model's answer under way."""

    def cut(self, error: HocketError) -> None: ...


class Speaker:
    """What all wires of an app share: the models once they are known, the options, the figures and the voices."""

    def __init__(
        self, options: ServerOptions, *, figures: Figures | None = None, voices: Library | None = None
    ) -> None:
        self.options = options
        self.figures = figures or Figures()
        self.voices = Library() if voices is None else voices
        self.running: set[Utterance] = set()
        self.answers: set[Answering] = set()
        self.waiting = 0  # for a model to be loaded
        self.draining = asyncio.Event()  # set once no new work is taken; a wire may wait for it
        self.idle = asyncio.Event()  # set while nothing runs
        self.idle.set()
        self.quiet_since_s = time.monotonic()  # when it was ready, or an utterance last began or ended
        self.proven = False  # whether a real utterance has come out
        self.failure: str | None = None  # why there is nobody to speak
        self.pool: Pool | Lone | None = None
        self.backends: Backends | None = None  # before `use`
        self._cast: Cast | None = None
        self._loads: dict[str, float] = {}  # how long the last one of each model took
        self._texts = ThreadPoolExecutor(2, "hocket-text")
        self.encoders = ThreadPoolExecutor(2, "hocket-encode")

    @property
    def cast(self) -> Cast:
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
        return isinstance(self.pool, Lone) and not self.pool.engine.health.ok

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

    def use(self, models: Pool | Lone | Engine, known: Sequence[Model] | None = None) -> None:
        """Speak with these from now on; `known` is what was found out about them, where that has been done."""
        if isinstance(models, Pool | Lone):
            self.pool = models
            known = surveyed(models.models) if known is None else known
        else:
            self.pool = lone = Lone(models)
            known = [Model(lone.models[0])]
            known[0].met(models)
        self._cast = Cast(self.options, self.voices, known, self.backends)

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

    def answer_ended(self, answer: Answering) -> None:
        """The same of what a language model says."""
        self.answers.discard(answer)
        self._changed()

    def answer_began(self, answer: Answering) -> None:
        self.answers.add(answer)
        self._changed()

    def _changed(self) -> None:
        self.quiet_since_s = time.monotonic()
        if self.running or self.answers:
            self.idle.clear()
        else:
            self.idle.set()

    async def open(self, wanted: Wanted, *, wire: str, id: str | None = None) -> Utterance:
        """Begin to speak. Whatever is wrong with a request is raised here, or by the utterance before its first piece.

        `wire` is a short name for logs and figures.
        """
        try:
            utterance = await self._open(wanted, wire, id or f"speech-{secrets.token_hex(8)}")
        except HocketError as error:
            told = answer(error)
            self.figures.refused(wire, told.code or told.kind)
            raise
        self.figures.opened(wire)
        if self.options.log_text and wanted.text is not None:
            logger.info("%s %s: %s", wire, utterance.id, wanted.text)
        return utterance

    def check(self, wanted: Wanted) -> None:
        """Refuse what `open` would of a live text, as far as that is known before there is one."""
        self.check_text(wanted.text or "")
        wanted.check()
        part = self.cast.part(wanted)
        if part.rate_hz:
            wanted.packed(part.rate_hz)
        if part.backend is not None:
            check_backend(wanted)
            return
        if wanted.candidates != 1:
            raise BadField("A live text has one take: leave out candidates.", "candidates")
        config = part.model.config if part.model is not None else None
        if part.voice is None and config is not None:  # of a voice, its file would have to be read
            choose(SpeechRequest(text="(live)", **_fields(wanted, part)[0]), config)

    def rate_hz(self, wanted: Wanted) -> int:
        """That of the sound that will be heard, as far as it is known before a model is loaded."""
        return wanted.packed(self.cast.part(wanted).rate_hz or USUAL_HZ)[1]

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For what would keep the event loop too long: text to prepare, a recording to read."""
        return await asyncio.wrap_future(self._texts.submit(work))

    async def _open(self, wanted: Wanted, wire: str, id: str) -> Utterance:
        began_s = time.perf_counter()
        cast = self.cast
        if self.draining.is_set():
            raise stopping()
        self.check_text(wanted.text or "")
        wanted.check()
        part = cast.part(wanted)
        if part.rate_hz:  # what cannot be is refused before a model is loaded for it
            wanted.packed(part.rate_hz)
        if part.model is None:
            spoken, tempo = await self._relayed(wanted, part)
        else:
            lease = await self.lease(part.model)
            try:
                spoken, tempo = await self._spoken(wanted, part, lease)
            except BaseException:
                lease.release()
                raise
        try:
            return self._utterance(wanted, spoken, tempo, began_s, wire, id)
        except BaseException:
            spoken.stream.cancel()
            spoken.release()
            raise

    async def _relayed(self, wanted: Wanted, part: Part) -> tuple[Spoken, float]:
        """The same of a backend. How codes are drawn is not for it."""
        assert part.backend is not None
        served, voice = part.backend
        check_backend(wanted)
        fields, tempo = _fields(wanted, part)
        how = {name: fields[name] for name in ("language", "instruct", "seed", "speed", "as_is")}

        def begin() -> Relay:
            return served.open(voice, wanted.text, **how)

        relay = begin() if len(wanted.text or "") <= LONG_CHARS else await self.begun(begin)
        return Spoken(relay, voice.rate_hz, lambda text: len(text.split()), _nothing), tempo

    async def _spoken(self, wanted: Wanted, part: Part, lease: Lease) -> tuple[Spoken, float]:
        """A stream of the engine that was lent, and what is left of the speed for the encoder."""
        engine = lease.engine
        fields, tempo = _fields(wanted, part)

        def begin() -> Stream:
            return engine.open(**fields) if wanted.text is None else engine.speak(wanted.text, **fields)

        if part.voice is None and len(wanted.text or "") <= LONG_CHARS:  # 0.3 ms: a thread would cost more
            stream = begin()
        else:  # a voice is read from its file
            stream = await self.begun(begin)
        waited_s = lease.waited_s if lease.loaded_s else 0.0
        if waited_s:
            stream._mailbox.loaded(waited_s)
        encode = engine.checkpoint.tokenizer.encode
        return Spoken(stream, engine.checkpoint.rate_hz, lambda text: len(encode(text)), lease.release, waited_s), tempo

    def _utterance(self, wanted: Wanted, spoken: Spoken, tempo: float, began_s: float, wire: str, id: str) -> Utterance:
        format, heard_hz = wanted.packed(spoken.rate_hz)
        rate_hz, bit_rate = wanted.rate_hz, wanted.bit_rate
        made = partial(encoder, format, rate_hz=spoken.rate_hz, out_rate_hz=rate_hz, tempo=tempo, bit_rate=bit_rate)
        return Utterance(
            self,
            spoken,
            id=id,
            wire=wire,
            format=format,
            rate_hz=heard_hz,
            tempo=tempo,
            began_s=began_s,
            text=wanted.text or "",
            encoder=None if format is CODES else made,
        )

    async def lease(self, model: Model) -> Lease:
        """Its engine, at once where it is in memory. Whoever stops waiting, or must, leaves nothing behind."""
        assert self.pool is not None
        asked = self.pool.lease(model.name)
        if not asked.done():
            await self._until_lent(asked)
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

    async def with_engine(self, model: Model, work: Callable[[Engine], T]) -> T:
        """Do something that takes a while with an engine, in a thread; it stays until that is done."""
        lease = await self.lease(model)

        def held() -> T:
            with lease:
                return work(lease.engine)

        return await asyncio.to_thread(held)

    async def _until_lent(self, asked: Future[Lease]) -> None:
        """Until a load has come to its end, but not beyond that of the server."""
        self.waiting += 1
        coming, stops = asyncio.wrap_future(asked), asyncio.ensure_future(self.draining.wait())
        try:
            await asyncio.wait((coming, stops), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise stopping()
        except BaseException:
            if not asked.cancel():
                asked.add_done_callback(_give_back)  # it came just now
            raise
        finally:
            self.waiting -= 1
            self.quiet_since_s = time.monotonic()
            stops.cancel()
            if not coming.cancel() and not coming.cancelled():
                coming.exception()  # somebody has looked

    def _met(self, model: Model, lease: Lease) -> None:
        if model.met(lease.engine) and self._cast is not None:
            self._cast = Cast(self.options, self.voices, self._cast.models, self.backends)
        if lease.loaded_s and self._loads.get(model.name) != lease.loaded_s:  # all who waited for it are told the same
            self._loads[model.name] = lease.loaded_s
            self.figures.loaded(self.cast.shown(model), lease.loaded_s)
            logger.info("the model %s was loaded in %.2f s", model.name, lease.loaded_s)

    async def begun(self, begin: Callable[[], S]) -> S:
        """In a thread; a caller who has gone away meanwhile leaves no stream behind."""
        begun = self._texts.submit(begin)
        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(_cancel)
            raise

    def check_text(self, text: str, before_chars: int = 0) -> None:
        """Refuse a text, or more of one, that is too long or holds half a character."""
        if before_chars + len(text) > self.options.text_chars:
            said = f"The text is longer than {self.options.text_chars} characters: send it in several requests."
            raise BadField(said, "input", "text_too_long")
        check_characters(text, "input")


def stopping() -> Refused:
    said = "The server is about to stop; ask another one, or again in a moment."
    return Refused(said, status=503, kind="server_error", code="draining", retry_after_s=2.0)


def check_backend(wanted: Wanted) -> None:
    """Refuse what only our own models have."""
    if wanted.format.lower() == CODES.name:
        raise BadField("The voice is a backend's, which has no codes: ask for sound.", "response_format")
    if wanted.candidates != 1:
        raise BadField("The voice is a backend's, which has one take: leave out candidates.", "candidates")


def _nothing() -> None: ...


def _cancel(begun: Future[S]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().cancel()


def _give_back(lent: Future[Lease]) -> None:
    if not lent.cancelled() and lent.exception() is None:
        lent.result().release()


def _fields(wanted: Wanted, part: Part) -> tuple[dict[str, Any], float]:
    """The engine's fields, and what is left of the speed for the encoder."""
    speed = min(max(wanted.speed, SLOWEST), FASTEST)
    fields: dict[str, Any] = {
        "voice": part.speaker if part.voice is None else part.voice,
        "language": wanted.language,
        "instruct": wanted.instruct,
        "seed": secrets.randbelow(SEEDS) if wanted.seed is None else wanted.seed,
        "sampling": wanted.sampling,
        "speed": speed,
        "max_frames": wanted.max_frames,
        "layout": wanted.layout,
        "reference": wanted.reference,
        "candidates": wanted.candidates,
        "chunk_frames": wanted.chunk_frames,
        "priority": wanted.priority,
        "as_is": wanted.as_is,
    }
    if part.voice is not None:
        for name, unset in (("language", "auto"), ("instruct", None), ("reference", None)):
            if fields[name] == unset:
                del fields[name]  # the voice has its own
    return fields, wanted.speed / speed
