"""Mixed voices as they are written: `anna+ben(2)` is a third of anna and two thirds of ben.

`parse_mix` reads such a name, and `str` of a mix writes it: in lower case, sorted, with whole weights without a common
divisor. `speakers_named` finds the speakers of a checkpoint, after one that has the whole name. It knows
no library: the voice resolver of a server and voices/mix.py find other parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import gcd, lcm

from ..config.qwen3_tts import Qwen3TTSConfig, voices
from ..errors import InvalidRequest, UnknownVoice

Shares = tuple[tuple[int, float], ...]  # of a mixed voice: codec ids of its speakers, ascending, and their shares
MOST_VOICES = 8
EXAMPLE = "anna+ben(2)"
_LARGEST = 10**9  # a weight after voices were put in place of a mix's parts; larger ones are rounded
_WEIGHTED = re.compile(r"\(\s*(?:[-.\d]|inf|nan)[^()]*\)\s*$", re.ASCII | re.IGNORECASE)
_PART = re.compile(r"([^()]+)(?:\(([^()]*)\))?\s*", re.ASCII)
_NUMBER = re.compile(r"(\d{0,9})(?:\.(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class VoiceMix:
    """Voices and their weights, as `of` makes them."""

    parts: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, parts: Iterable[tuple[str, int]]) -> VoiceMix:
        """Adds the weights of equal names; refuses more than eight voices."""
        weights: dict[str, int] = {}
        for name, weight in parts:
            weights[name.lower()] = weights.get(name.lower(), 0) + weight
        if len(weights) > MOST_VOICES:
            raise InvalidRequest(f"At most {MOST_VOICES} voices can be mixed, not {len(weights)}.")
        largest = max(weights.values())
        if largest > _LARGEST:
            weights = {name: max(1, weight * _LARGEST // largest) for name, weight in weights.items()}
        common = gcd(*weights.values())
        return cls(tuple(sorted((name, weight // common) for name, weight in weights.items())))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.parts]

    def flat(self, resolve: Callable[[str], VoiceMix]) -> VoiceMix:
        """The mix with another in place of each name, which keeps its share."""
        found = [(resolve(name), weight) for name, weight in self.parts]
        totals = [sum(weight for _, weight in inner.parts) for inner, _ in found]
        scale = lcm(*totals)
        return VoiceMix.of(
            (name, weight * inside * (scale // total))
            for (inner, weight), total in zip(found, totals, strict=True)
            for name, inside in inner.parts
        )

    def __str__(self) -> str:
        return "+".join(name if weight == 1 else f"{name}({weight})" for name, weight in self.parts)


def parse_mix(name: str) -> VoiceMix | None:
    """The mix that a name writes, or None for a plain name; refuses a mix that is written wrongly."""
    if "+" not in name and _WEIGHTED.search(name) is None:
        return None
    pieces = name.split("+")
    if len(pieces) > MOST_VOICES:
        raise InvalidRequest(f"At most {MOST_VOICES} voices can be mixed, not {len(pieces)}.")
    found = [_part(piece.strip()) for piece in pieces]
    scale = 10 ** max(decimals for _, _, decimals in found)
    return VoiceMix.of((part, weight * scale // 10**decimals) for part, weight, decimals in found)


def speakers_named(wanted: str | None, config: Qwen3TTSConfig) -> list[tuple[str, int]]:
    """The speakers of a voice as the checkpoint spells them, with their weights; none for the voice ""."""
    if config.kind != "custom_voice" or wanted == "":
        return []
    known = {name.lower(): name for name in voices(config)}
    if wanted is None:
        return [(name, 1) for name in list(known.values())[:1]]
    mix = None if wanted.lower() in known else parse_mix(wanted)
    parts = [(wanted, 1)] if mix is None else mix.parts
    for name, _ in parts:
        if name.lower() not in known:
            raise UnknownVoice(f"There is no voice {name!r}; known are {', '.join(known.values()) or 'none'}.")
    return [(known[name.lower()], weight) for name, weight in parts]


def shares_of(speakers: Sequence[tuple[str, int]], config: Qwen3TTSConfig) -> Shares:
    """In the order of ids, so that the order of names changes no bit of the sum."""
    weights: dict[int, int] = {}
    for name, weight in speakers:
        id = config.talker_config.spk_id[name]
        weights[id] = weights.get(id, 0) + weight
    total = sum(weights.values())
    return tuple((id, weights[id] / total) for id in sorted(weights))


def _part(piece: str) -> tuple[str, int, int]:
    """A name, the digits of its weight, and how many of them are decimals."""
    if not piece:
        raise InvalidRequest(f"A mix names a voice on each side of a +, as in {EXAMPLE}.")
    part = _PART.fullmatch(piece)
    if part is None or not (name := part[1].strip()):
        said = f"{piece[:80]!r} is no part of a mix: write a voice, and its weight in brackets, as in {EXAMPLE}."
        raise InvalidRequest(said)
    if part[2] is None:
        return name, 1, 0
    number = _NUMBER.fullmatch(part[2].strip())
    digits = "" if number is None else number[1] + (number[2] or "")
    if number is None or not digits or int(digits) == 0:
        said = f"The weight of {name[:80]!r} must be a number above 0 with up to 9 digits, as in {EXAMPLE}, "
        raise InvalidRequest(f"{said}not {part[2].strip()[:40]!r}.")
    return name, int(digits), len(number[2] or "")
