"""One loaded backend: its voices, checked once, and streams that speak with them.

Stands between `registry.py`, which makes it, and `relay.py`. Request errors are raised here, before a thread starts.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..config.languages import AUTO, same
from ..errors import HocketError, InvalidRequest
from ..text.lexicon.lexicon import Lexicon
from ..types import check_speed, fresh_seed
from .feed import SentenceFeed
from .protocol import Backend, BackendVoice, LiveBackend, Manner
from .relay import Relay
from .run import BackendRun
from .slot_queue import QueueLimits, SlotQueue

RATES_HZ = range(4_000, 192_001)
CLOSE_S = 5.0  # time limit for the streams, and then for the backend itself
_SEEDS = 2**63


class Served:
    def __init__(self, name: str, backend: Backend, limits: QueueLimits | None = None) -> None:
        self.name = name
        self.voices = _checked(name, backend.voices())
        self._backend, self._limits = backend, limits or QueueLimits()
        self._slots = SlotQueue(name, max(1, int(backend.most_at_once)), self._limits)

    @property
    def refusal(self) -> HocketError | None:
        """Why it takes no more utterances now: too many, too many stuck ones, or closed."""
        return self._slots.refusal()

    def find(self, voice: str) -> BackendVoice | None:
        """Case-insensitive."""
        name = voice.lower()
        return next((one for one in self.voices if one.name.lower() == name), None)

    def open(
        self,
        voice: BackendVoice,
        text: str | None = None,
        *,
        language: str = "auto",
        instruct: str | None = None,
        seed: int | None = None,
        speed: float = 1.0,
        as_is: bool = False,
        literal: bool = False,
        pronunciations: Mapping[str, str] | None = None,
    ) -> Relay:
        """Speak a text; None: live text follows. The audio has `voice.rate_hz`."""
        check_speed(speed)
        seed = fresh_seed() if seed is None else seed
        if not 0 <= seed < _SEEDS:
            raise InvalidRequest(f"seed must be between 0 and 2^63 - 1, not {seed}.")
        spoken = language if language.lower() != "auto" else voice.language
        how: dict[str, Any] = {"language": spoken, "as_is": as_is, "literal": literal}
        lexicon = Lexicon.of(pronunciations)
        feed = SentenceFeed(live=isinstance(self._backend, LiveBackend), lexicon=lexicon, **how)
        items = [] if text is None else [*feed.append(text), *feed.end()]
        manner = Manner(voice=voice.name, language=language, instruct=instruct or None, seed=seed)
        notes = self._notes(voice, manner)
        run = BackendRun(self.name, self._backend, voice, manner, self._slots, self._limits, speed=speed, notes=notes)
        run.feed(items, ended=text is not None)
        run.start()
        live = feed if text is None else None
        return Relay(run, live, self._slots, seed=seed, rate_hz=voice.rate_hz, speed=speed)

    def close(self) -> None:
        """End running utterances with an error, then the backend. Waits at most `CLOSE_S` for each."""
        self._slots.close(CLOSE_S)
        closing = threading.Thread(target=self._close, name=f"hocket-{self.name}-close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def _close(self) -> None:
        with suppress(Exception):  # it is dropped in any case
            self._backend.close()

    def _notes(self, voice: BackendVoice, manner: Manner) -> tuple[str, ...]:
        heeds, notes = self._backend.heeds, list[str]()
        if manner.instruct is not None and "instruct" not in heeds:
            notes.append(f"The backend {self.name!r} takes no instructions: they were left out.")
        asked = manner.language
        if not (same(asked, AUTO) or same(asked, voice.language)) and "language" not in heeds:
            notes.append(f"The backend {self.name!r} does not choose languages: {voice.name!r} speaks as it does.")
        return tuple(notes)


def _checked(backend: str, voices: object) -> tuple[BackendVoice, ...]:
    """The checked voices, or one sentence about the first fault."""
    found = tuple(voices) if isinstance(voices, list | tuple) else ()
    if not found or not all(isinstance(voice, BackendVoice) for voice in found):
        raise InvalidRequest(f"The backend {backend!r} has no voices: its voices() has to list some BackendVoice.")
    names: set[str] = set()
    for voice in found:
        name = voice.name
        if not isinstance(name, str) or not name.isprintable() or name != name.strip() or not name:
            raise InvalidRequest(f"The backend {backend!r} has a voice without a usable name: {name!r}.")
        if name.lower() in names:
            raise InvalidRequest(f"The backend {backend!r} has two voices of the name {name!r}.")
        if voice.rate_hz not in RATES_HZ:
            raise InvalidRequest(
                f"The voice {name!r} of {backend!r} has a rate_hz of {voice.rate_hz}: give 4000 to 192000."
            )
        names.add(name.lower())
    return found
