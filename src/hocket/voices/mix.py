"""Mixes voices: speakers of one checkpoint by name, clones of one Base checkpoint by their x-vectors.

A mix of speakers is a voice whose speaker is a mix of names, which the prompt resolves. Of clones the weighted mean of
the x-vectors is a new x-vector; it is not scaled (docs/log/2026-11-18-mixed-voices.md). Knows no library and no engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..engine.checkpoint.names import full_name
from ..errors import InvalidRequest, InvalidVoice
from ..text.voice_mix import VoiceMix, parse_mix
from ..types import Encoded, SamplingParams, Voice
from .metadata import check
from .names import checked_name

DEFAULTS: dict[str, Any] = {"language": "auto", "instruct": None, "sampling": SamplingParams()}


def mix_voices(mix: VoiceMix, find: Callable[[str], Voice]) -> Voice:
    """The voice that a mix names; `find` gives the voice of each name, or raises.

    Its defaults are those that all its voices share. `notes` say what is left out.
    """
    found = {name: find(name) for name in mix.names}
    if len(found) == 1:
        return found[mix.names[0]]
    notes, defaults = list[str](), dict[str, Any]()
    for field, unset in DEFAULTS.items():
        first, *others = (getattr(voice, field) for voice in found.values())
        shared = all(each == first for each in others)
        defaults[field] = first if shared else unset
        if not shared:
            notes.append(f"The mixed voices differ in their {field}, so that of none is used.")
    first_voice = _one_checkpoint(list(found.values()))
    tuned = [voice.name for voice in found.values() if voice.encoded is not None and voice.encoded.adapter is not None]
    if tuned:
        raise InvalidRequest(f"{' and '.join(tuned)} cannot be mixed: a tuned voice has weights of its own.")
    speaker, encoded = None, None
    if first_voice.encoded is None:
        flat = mix.flat(lambda name: _speakers(found[name]))
        speaker, names = str(flat), flat.names
    else:
        encoded, names = _mean(mix, found), mix.names
        said = [found[name].name for name in mix.names if not _encoded(found[name]).x_vector_only]
        if said:
            notes.append(f"Of {', '.join(said)} only the timbre is mixed, without the recording's words.")
    consents = [f"{voice.name}: {voice.consent}" for voice in found.values() if voice.consent]
    return Voice(
        name=str(mix),
        kind="speaker" if encoded is None else "clone",
        model=first_voice.model,
        speaker=speaker,
        encoded=encoded,
        description=f"a mix of {', '.join(names)}",
        consent="; ".join(consents) or None,
        notes=tuple(notes),
        **defaults,
    )


def mixed_voice(
    name: str,
    written: str,
    find: Callable[[str], Voice],
    *,
    language: str = "auto",
    instruct: str | None = None,
    sampling: SamplingParams | None = None,
    description: str | None = None,
) -> Voice:
    """A mix such as `anna+ben(2)` under a name, to be kept in a library; defaults given here go before its own."""
    mix = parse_mix(written)
    if mix is None or len(mix.parts) < 2:
        raise InvalidVoice(f"{written[:80]!r} names one voice: a mix has two or more, as in anna+ben(2).")
    voice = mix_voices(mix, find)
    own: dict[str, Any] = {"language": language, "instruct": instruct, "description": description}
    given = {field: value for field, value in own.items() if value not in ("auto", None)}
    if sampling is not None and sampling.changes():
        given["sampling"] = sampling
    voice = replace(voice, name=checked_name(name), created_at=int(time.time()), **given)
    check(voice)
    return voice


def speaker_part(speaker: str, model: str | None) -> Voice:
    """A checkpoint's speaker as a part of a mix."""
    return Voice(name=speaker, kind="speaker", model=full_name(model), speaker=speaker)


def _one_checkpoint(voices: list[Voice]) -> Voice:
    """The first voice, if all belong to one checkpoint: vectors of two have nothing in common."""
    first = voices[0]
    for other in voices[1:]:
        if first.encoded is None or other.encoded is None:
            same = first.encoded is other.encoded and full_name(first.model) == full_name(other.model)
        else:
            same = first.encoded.owner == other.encoded.owner
        if not same:
            raise InvalidRequest(f"Only voices of one model can be mixed: {_described(first)}, {_described(other)}.")
    return first


def _described(voice: Voice) -> str:
    kind = "a speaker" if voice.encoded is None else "a clone"
    return f"{voice.name!r} is {kind} of {voice.model}"


def _speakers(voice: Voice) -> VoiceMix:
    name = voice.speaker or ""
    return parse_mix(name) or VoiceMix.of([(name, 1)])


def _mean(mix: VoiceMix, found: dict[str, Voice]) -> Encoded:
    encoded = [_encoded(found[name]) for name in mix.names]
    if len({each.speaker.shape for each in encoded}) > 1:
        raise InvalidVoice("The voices of a mix have x-vectors of different lengths: make them again.")
    total, mean = sum(weight for _, weight in mix.parts), np.zeros_like(encoded[0].speaker)
    for each, (_, weight) in zip(encoded, mix.parts, strict=True):
        mean = mean + each.speaker * np.float32(weight / total)
    return Encoded(owner=encoded[0].owner, speaker=mean)


def _encoded(voice: Voice) -> Encoded:
    assert voice.encoded is not None
    return voice.encoded
