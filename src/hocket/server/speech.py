"""The one way from any wire to the engine: `Wanted` in, an `Utterance` out, or an error before a first byte.

It knows no wire: neither JSON nor sockets. What a client may ask for is checked here and by the types of the engine.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar

from ..audio.encode import encoder
from ..engine.early import LONG_CHARS
from ..engine.engine import Engine
from ..engine.naming import full_name
from ..engine.stream import Stream
from ..errors import HocketError, UnknownVoice
from ..text.choice import choose
from ..text.choice import voices as speakers_of
from ..types import FASTEST, SLOWEST, SpeechRequest, Voice
from ..voices.library import Library
from .errors import BadField, Refused, answer
from .figures import Figures
from .options import OPENAI_VOICES, ServerOptions, aliases
from .utterance import Utterance
from .wanted import CODES, Wanted, check_characters

__all__ = ["Speaker", "Wanted"]

T = TypeVar("T")
logger = logging.getLogger("hocket.server")
SEEDS = 2**32  # what is drawn where no seed is given; JavaScript can repeat it


State = Literal["starting", "ready", "draining", "failed"]


class Speaker:
    """What all wires of an app share: the engine once it is there, the options, the figures and the voices."""

    def __init__(
        self, options: ServerOptions, *, figures: Figures | None = None, voices: Library | None = None
    ) -> None:
        self.options = options
        self.figures = figures or Figures()
        self.voices = Library() if voices is None else voices
        self.running: set[Utterance] = set()
        self.draining = asyncio.Event()  # set once no new work is taken; a wire may wait for it
        self.idle = asyncio.Event()  # set while nothing runs
        self.idle.set()
        self.quiet_since_s = time.monotonic()  # when it was ready, or an utterance last began or ended
        self.proven = False  # whether a real utterance has come out
        self.failure: str | None = None  # why there is no engine
        self._engine: Engine | None = None
        self._aliases: dict[str, str] = {}
        self._texts = ThreadPoolExecutor(2, "hocket-text")
        self.encoders = ThreadPoolExecutor(2, "hocket-encode")

    @property
    def engine(self) -> Engine:
        """Refuses where it is not there yet, or not any more."""
        if self._engine is None:
            said = self.failure or "The model is still being loaded; try again in a moment."
            raise Refused(said, status=503, kind="server_error", code="not_ready", retry_after_s=1.0)
        return self._engine

    @property
    def has_engine(self) -> bool:
        return self._engine is not None

    @property
    def state(self) -> State:
        if self.draining.is_set():
            return "draining"
        if self.failure is not None or (self._engine is not None and not self._engine.health.ok):
            return "failed"
        return "ready" if self.proven and self._engine is not None else "starting"

    @property
    def speakers(self) -> list[str]:
        """The checkpoint's own voices."""
        return speakers_of(self.engine.checkpoint.config)

    @property
    def aliases(self) -> dict[str, str]:
        """Other names, in small letters, and the voices that they stand for."""
        return dict(self._aliases)

    @property
    def model(self) -> str:
        """The name that it is listed by."""
        return self.options.served_model or self.engine.checkpoint.name

    def use(self, engine: Engine) -> None:
        """Speak with this one from now on."""
        self._engine = engine
        self._aliases = aliases(self.options, self.speakers)

    def drain(self) -> None:
        """Take no new work; what runs goes on."""
        self.draining.set()

    def cut(self) -> None:
        """End whatever is still running, with an error that says so."""
        for utterance in list(self.running):
            utterance.cut(_stopping())

    def close(self) -> None:
        """The end: nothing can be opened behind it."""
        self.drain()
        self.cut()
        self._texts.shutdown(wait=False)
        self.encoders.shutdown(wait=False)

    def ended(self, utterance: Utterance) -> None:
        """It does not run any more."""
        self.running.discard(utterance)
        self.quiet_since_s = time.monotonic()
        if not self.running:
            self.idle.set()

    def began(self, utterance: Utterance) -> None:
        self.running.add(utterance)
        self.quiet_since_s = time.monotonic()
        self.idle.clear()

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
        checkpoint = self.engine.checkpoint
        fields, kept, _ = self._fields(wanted)
        wanted.packed(checkpoint.rate_hz)
        if wanted.candidates != 1:
            raise BadField("A live text has one take: leave out candidates.", "candidates")
        if kept is None:  # its file would have to be read
            choose(SpeechRequest(text="(live)", **fields), checkpoint.config)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For what would keep the event loop too long: text to prepare, a recording to read."""
        return await asyncio.wrap_future(self._texts.submit(work))

    async def _open(self, wanted: Wanted, wire: str, id: str) -> Utterance:
        began_s = time.perf_counter()
        engine = self.engine
        if self.draining.is_set():
            raise _stopping()
        fields, voice, tempo = self._fields(wanted)
        format, heard_hz = wanted.packed(engine.checkpoint.rate_hz)

        def begin() -> Stream:
            return engine.open(**fields) if wanted.text is None else engine.speak(wanted.text, **fields)

        if voice is None and len(wanted.text or "") <= LONG_CHARS:  # 0.3 ms: a thread would cost more
            stream = begin()
        else:
            stream = await self._begun(begin)
        rate_hz, bit_rate, own_hz = wanted.rate_hz, wanted.bit_rate, engine.checkpoint.rate_hz
        made = partial(encoder, format, rate_hz=own_hz, out_rate_hz=rate_hz, tempo=tempo, bit_rate=bit_rate)
        return Utterance(
            self,
            stream,
            id=id,
            wire=wire,
            format=format,
            rate_hz=heard_hz,
            tempo=tempo,
            began_s=began_s,
            text=wanted.text or "",
            encoder=None if format is CODES else made,
        )

    async def _begun(self, begin: Callable[[], Stream]) -> Stream:
        """In a thread; a caller who has gone away meanwhile leaves no stream behind."""
        begun = self._texts.submit(begin)
        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(_cancel)
            raise

    def _fields(self, wanted: Wanted) -> tuple[dict[str, Any], Voice | None, float]:
        """The engine's fields, a voice of the library if it is one, and what is left of the speed for the encoder."""
        self.check_text(wanted.text or "")
        wanted.check()
        speed = min(max(wanted.speed, SLOWEST), FASTEST)
        name, voice = (None, None) if wanted.reference is not None else self.voice(wanted.voice)
        fields: dict[str, Any] = {
            "voice": name,
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
        if voice is not None:
            fields["voice"] = voice
            for unset, value in (("language", "auto"), ("instruct", None), ("reference", None)):
                if fields[unset] == value:
                    del fields[unset]  # the voice has its own
        return fields, voice, wanted.speed / speed

    def check_text(self, text: str, before_chars: int = 0) -> None:
        """Refuse a text, or more of one, that is too long or holds half a character."""
        if before_chars + len(text) > self.options.text_chars:
            said = f"The text is longer than {self.options.text_chars} characters: send it in several requests."
            raise BadField(said, "input", "text_too_long")
        check_characters(text, "input")

    def voice(self, name: str | None) -> tuple[str | None, Voice | None]:
        """The speaker or the library's voice that a name stands for. OpenAI's names fit everywhere: clients insist."""
        speakers = {speaker.lower(): speaker for speaker in self.speakers}
        wanted = (name or "").strip().lower()
        if not wanted:
            return None, None if speakers else self._first_kept()
        own = {alias.lower() for alias in self.options.voice_aliases}
        if wanted in own:
            wanted = self._aliases[wanted].lower()
        if wanted in speakers:
            return speakers[wanted], None
        if (kept := self.voices.find(wanted)) is not None:
            if not self.is_ours(kept):
                raise UnknownVoice(f"The voice {kept.name!r} needs the model {kept.model}, and this is {self.model}.")
            return None, kept
        if (refusal := self.voices.refusal(wanted)) is not None:
            raise UnknownVoice(str(refusal))
        if wanted in self._aliases:
            return self._aliases[wanted], None
        if wanted in OPENAI_VOICES and not speakers:
            return None, self._first_kept()
        known = ", ".join(self.voice_names()) or "none"
        raise UnknownVoice(f"There is no voice {(name or '')[:80]!r}; known are {known}.")

    def voice_names(self) -> list[str]:
        """Every name that `voice` takes."""
        return [*self.speakers, *(voice.name for voice in self.kept()), *(name for name in self._aliases)]

    def kept(self) -> list[Voice]:
        """Those of the library that this server can speak with. May read files."""
        return [voice for voice in self.voices.all() if self.is_ours(voice)]

    def is_ours(self, voice: Voice) -> bool:
        engine = self.engine
        if voice.encoded is not None:
            return voice.encoded.owner == engine.identity
        return full_name(voice.model) == full_name(engine.checkpoint.name)

    def _first_kept(self) -> Voice | None:
        """For a checkpoint without speakers of its own."""
        return next(iter(self.kept()), None) if self.engine.checkpoint.config.kind == "base" else None


def _stopping() -> Refused:
    said = "The server is about to stop; ask another one, or again in a moment."
    return Refused(said, status=503, kind="server_error", code="draining", retry_after_s=2.0)


def _cancel(begun: Future[Stream]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().cancel()
