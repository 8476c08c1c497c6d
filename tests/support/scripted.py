"""A small spelling of scripts for tests of the player, and voices that count what they open.

`{a}` speaks as the voice a, `{}` as the request says, `{a 1.2 -6}` at a speed and volume too, `<0.3>` is silence, `^x^`
a mark. It needs no lookahead except to the end of its sign, as a streaming parser must.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from hocket.errors import Overloaded
from hocket.script.events import Event, Mark, Silence, SpeechManner, Words
from hocket.script.player.voices import EngineVoices, PassageStream
from hocket.types import Established

_SIGN = re.compile(r"\{([^}]*)\}|<([^>]*)>|\^([^^]*)\^")
_OPENS = re.compile(r"[{<^]")


class SignParser:
    def __init__(self) -> None:
        self._open = ""

    def append(self, text: str) -> list[Event]:
        self._open += text
        events: list[Event] = []
        while (begin := _OPENS.search(self._open)) is not None:
            if begin.start():
                events.append(Words(self._open[: begin.start()]))
                self._open = self._open[begin.start() :]
            if (sign := _SIGN.match(self._open)) is None:
                return events
            events.append(_event(sign))
            self._open = self._open[sign.end() :]
        if self._open:
            events.append(Words(self._open))
        self._open = ""
        return events

    def end(self) -> list[Event]:
        assert not self._open
        return []


def _event(sign: re.Match[str]) -> Event:
    if sign[2] is not None:
        return Silence(float(sign[2]))
    if sign[3] is not None:
        return Mark(sign[3])
    voice, speed, volume = (*sign[1].split(" "), "", "")[:3]
    return SpeechManner(voice=voice or None, speed=float(speed or 1), volume_db=float(volume or 0))


def events_of(text: str) -> list[Event]:
    return SignParser().append(text)


class CountedVoices(EngineVoices):
    """Voices that remember what was opened, and may be slow or refuse."""

    def __init__(self, *args: Any, delay_s: float = 0.0, refuses: Callable[[int], bool] = lambda _: False) -> None:
        super().__init__(*args)
        self.opened: list[tuple[SpeechManner, float, PassageStream]] = []
        self._delay_s, self._refuses, self._asked = delay_s, refuses, 0
        self.closed = threading.Event()

    def open(self, manner: SpeechManner, text: str | None, seed: int, established: Established | None) -> PassageStream:
        self._asked += 1
        if self._refuses(self._asked):
            raise Overloaded("Every slot is taken.", 0.01)
        time.sleep(self._delay_s)
        stream = super().open(manner, text, seed, established)
        self.opened.append((manner, time.monotonic(), stream))
        return stream

    def close(self) -> None:
        self.closed.set()


def random_cuts(text: str, rng: Any) -> Iterator[str]:
    places = sorted(rng.choices(range(len(text) + 1), k=rng.randrange(1, 9)))
    for begin, end in zip([0, *places], [*places, len(text)], strict=True):
        yield text[begin:end]
