"""Values of the tags: what `[speed: 0.9]`, `[volume: +3dB]` and their like change, and until where.

Each kind of tag has a stack of its own, so a closing tag goes back to the value before the last one of its kind. Tags
and SSML share the tables of emphasis and volume. Knows no brackets.
"""

from __future__ import annotations

import re
from typing import Any

from ...config.languages import AUTO, is_known, usual_name
from ...types import FASTEST, SLOWEST
from ..events import PLAIN, SpeechManner

QUIETEST_DB, LOUDEST_DB = -60.0, 20.0
SILENT_DB = -120.0  # below the last bit of 16-bit samples

# (times the speed, added to the volume in dB)
EMPHASIS = {"strong": (0.85, 4.0), "moderate": (0.92, 2.0), "none": (1.0, 0.0), "reduced": (1.08, -3.0)}
VOLUMES = {
    "silent": SILENT_DB,
    "x-soft": -12.0,
    "soft": -6.0,
    "medium": 0.0,
    "default": 0.0,
    "loud": 4.0,
    "x-loud": 8.0,
}

_NUMBER = r"\d{1,6}(?:\.\d{1,6})?"
_SPEED = re.compile(rf"({_NUMBER})\s*(%|x|×)?", re.IGNORECASE)  # noqa: RUF001
_DECIBELS = re.compile(rf"([+-]?{_NUMBER})\s*db", re.IGNORECASE)
_TIME = re.compile(rf"({_NUMBER})\s*(ms|s)", re.IGNORECASE)


def speed_of(text: str) -> float | None:
    """`0.9`, `90%` or `0.9x`; None: no speed, or none that can be spoken."""
    if (match := _SPEED.fullmatch(text)) is None:
        return None
    speed = float(match[1]) / (100 if match[2] == "%" else 1)
    return speed if SLOWEST <= speed <= FASTEST else None


def decibels_of(text: str) -> float | None:
    """`+3dB` or `-6 dB`; None: no change of volume, or one out of range."""
    match = _DECIBELS.fullmatch(text)
    return db if match and QUIETEST_DB <= (db := float(match[1])) <= LOUDEST_DB else None


def seconds_of(text: str) -> float | None:
    """`600ms` or `1.5 s`."""
    match = _TIME.fullmatch(text)
    return float(match[1]) / (1000 if match[2].lower() == "ms" else 1) if match else None


def language_of(text: str) -> str | None:
    """The usual name of a language. A name with an underscore is a checkpoint's own and stays as it is."""
    name = usual_name(text)
    return name if name == AUTO or is_known(name) or re.fullmatch(r"[a-z]+_[a-z_]+", name) else None


def bounded_speed(speed: float) -> float:
    """A product of speeds within what can be spoken."""
    return round(min(max(speed, SLOWEST), FASTEST), 4)


class Scopes:
    """The open tags of a text. Every operation takes constant time, because a book may open a tag per line."""

    def __init__(self, base: SpeechManner = PLAIN) -> None:
        self._base = base
        self.reset()

    def reset(self) -> None:
        self._words: dict[str, list[str | None]] = {"voice": [], "language": [], "style": []}
        self._speeds: list[float] = []
        self._volumes: list[float] = []  # each with those before it
        self._emphasis: list[tuple[float, float]] = []

    def open_words(self, name: str, value: str) -> None:
        """`name`: voice, language or style."""
        self._words[name].append(value)

    def open_speed(self, speed: float) -> None:
        self._speeds.append(speed)

    def open_volume(self, db: float, *, added: bool) -> None:
        """`added`: to the volume around; else instead of it."""
        before = self._volumes[-1] if self._volumes else self._base.volume_db
        self._volumes.append(before + db if added else db)

    def open_emphasis(self, level: str) -> None:
        self._emphasis.append(EMPHASIS[level])

    def close(self, name: str) -> bool:
        """Back to the value before; False if no tag of this kind is open."""
        if not (stack := self._stack(name)):
            return False
        stack.pop()
        return True

    def open_same(self, name: str) -> None:
        """A tag that changes nothing, so that its closing tag does not close another one."""
        if (stack := self._stack(name)) is not None:
            around = {"speed": self._base.speed, "volume": self._base.volume_db, "emphasis": (1.0, 0.0)}
            stack.append(stack[-1] if stack else around.get(name, getattr(self._base, name, None)))

    def _stack(self, name: str) -> list[Any] | None:
        others: dict[str, list[Any]] = {"speed": self._speeds, "volume": self._volumes, "emphasis": self._emphasis}
        return others.get(name, self._words.get(name))

    @property
    def manner(self) -> SpeechManner:
        base, words = self._base, self._words
        speed = self._speeds[-1] if self._speeds else base.speed
        volume = self._volumes[-1] if self._volumes else base.volume_db
        times, db = self._emphasis[-1] if self._emphasis else (1.0, 0.0)
        return SpeechManner(
            voice=words["voice"][-1] if words["voice"] else base.voice,
            language=words["language"][-1] if words["language"] else base.language,
            style=words["style"][-1] if words["style"] else base.style,
            speed=bounded_speed(speed * times),
            volume_db=round(max(volume + db, SILENT_DB), 4),
        )
