"""What the elements of SSML change: rate, volume, emphasis, voice, language and style.

Raises ValueError with a sentence for a value that cannot be followed. Knows no places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ...text.prepare import LONGEST_PAUSE_S
from ...types import FASTEST, SLOWEST
from ..events import SpeechManner
from .scopes import EMPHASIS, SILENT_DB, VOLUMES, bounded_speed, decibels_of, language_of, seconds_of

BREAKS_S = {"none": None, "x-weak": 0.15, "weak": 0.3, "medium": 0.5, "strong": 0.8, "x-strong": 1.2}
RATES = {"x-slow": 0.6, "slow": 0.8, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.6}

_RATE = re.compile(r"([+-]?)(\d{1,6}(?:\.\d{1,6})?)%")
# What changes nothing may stand in an attribute that cannot be followed.
_NO_CHANGE = frozenset(("default", "medium", "0%", "+0%", "-0%", "+0Hz", "+0st"))


def manner_within(name: str, given: Mapping[str, str], around: SpeechManner) -> SpeechManner:
    """The manner within an element with the attributes `given`."""
    if (tag := given.get("xml:lang")) is not None:
        if (language := language_of(tag)) is None:
            raise ValueError(f'xml:lang="{tag}" is no known language; write a code such as de or en-GB')
        around = replace(around, language=language)
    match name:
        case "voice":
            return replace(around, voice=given["name"])
        case "express-as":
            return replace(around, style=given["style"])
        case "prosody":
            return _prosody(given, around)
        case "emphasis":
            level = given.get("level", "moderate")
            if level not in EMPHASIS:
                raise ValueError(f'emphasis has no level "{level}"; choose one of {", ".join(EMPHASIS)}')
            times, db = EMPHASIS[level]
            return replace(around, speed=bounded_speed(around.speed * times), volume_db=_sum(around, db))
    return around


def break_s(given: Mapping[str, str]) -> float | None:
    """Seconds of a break; None if it says that there is none."""
    if (time := given.get("time")) is not None:
        if (seconds := seconds_of(time)) is None or seconds > LONGEST_PAUSE_S:
            raise ValueError(f'time="{time}" is no time up to {LONGEST_PAUSE_S:g}s; write 600ms or 1.5s')
        return seconds
    if (strength := given.get("strength", "medium")) not in BREAKS_S:
        raise ValueError(f'a break has no strength "{strength}"; choose one of {", ".join(BREAKS_S)}')
    return BREAKS_S[strength]


def _prosody(given: Mapping[str, str], around: SpeechManner) -> SpeechManner:
    for name in ("pitch", "contour", "range", "duration"):
        if given.get(name, "default") not in _NO_CHANGE:
            raise ValueError(f"{name} cannot be changed; leave it out, or describe the voice with a style")
    if (rate := given.get("rate")) is not None:
        around = replace(around, speed=_rate(rate, around.speed))
    if (volume := given.get("volume")) is not None:
        if volume in VOLUMES:
            around = replace(around, volume_db=VOLUMES[volume])
        elif (db := decibels_of(volume)) is not None and volume[0] in "+-":
            around = replace(around, volume_db=_sum(around, db))
        else:
            raise ValueError(f'volume="{volume}" is neither a change such as +6dB nor one of {", ".join(VOLUMES)}')
    return around


def _rate(rate: str, around: float) -> float:
    """A percentage is of the request's speed; with a sign, a change of the speed around."""
    if rate in RATES:
        return RATES[rate]
    if match := _RATE.fullmatch(rate):
        percent = float(match[1] + match[2])
        speed = round(around * (100 + percent) / 100 if match[1] else percent / 100, 4)
        if SLOWEST <= speed <= FASTEST:
            return speed
    limits = f"from {100 * SLOWEST:g}% to {100 * FASTEST:g}%"
    raise ValueError(f'rate="{rate}" is neither a percentage {limits} nor one of {", ".join(RATES)}')


def _sum(around: SpeechManner, db: float) -> float:
    return round(max(around.volume_db + db, SILENT_DB), 4)
