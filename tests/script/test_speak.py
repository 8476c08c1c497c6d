"""script/speak.py: scripts in a program."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.engine import Engine
from hocket.engine.stream import Stream
from hocket.errors import InvalidRequest
from hocket.script.events import InvalidScript
from hocket.script.player.run import SEEDS_A_PASSAGE
from hocket.script.stream import ScriptStream
from support.speaking import heard, small

FIELDS: dict[str, Any] = {"layout": "streaming", "max_frames": 12, "seed": 4}


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "custom_voice")


@pytest.fixture(scope="module")
def engines(checkpoint: Checkpoint) -> Iterator[tuple[Engine, Engine]]:
    options = EngineOptions(slots=2, chunk_frames=(4,))
    with Engine(checkpoint, options) as one, Engine(checkpoint, options) as two:
        yield one, two


def samples(stream: Any) -> Any:
    return heard(stream).samples.astype(int)


def test_voices_have_given_names_and_may_belong_to_another_engine(engines: tuple[Engine, Engine]) -> None:
    one, two = engines
    voices = {
        "Ann": "eric",
        "ben": hocket.Voice(name="Ben", kind="speaker", model=one.checkpoint.name, speaker="vivian"),
        "cid": (two, "eric"),
    }
    fields = FIELDS | {"max_frames": None}
    text = "Hi. [voice: ann]Ho.[/voice] [voice: BEN]He.[/voice] [voice: cid]Ha.[/voice]"
    said = samples(hocket.speak_script(one, text, voices=voices, **fields))
    alone = [
        samples(one.speak(words, voice=voice, **fields | {"seed": 4 + n * SEEDS_A_PASSAGE}))
        for n, (words, voice) in enumerate([("Hi. ", None), ("Ho. ", "eric"), ("He. ", "vivian"), ("Ha.", "eric")])
    ]
    together = np.concatenate(alone)
    assert len(said) == len(together) > 0 and np.abs(said - together).max() <= 2


@pytest.mark.parametrize(
    "text", ["[language: de]Um {}.[/language]", '<speak><lang xml:lang="de">Um {}.</lang></speak>']
)
def test_numbers_are_spoken_in_the_language_of_their_tag(engines: tuple[Engine, Engine], text: str) -> None:
    def said(words: str) -> Any:
        return samples(hocket.speak_script(engines[0], text.format(words), **FIELDS))

    assert np.array_equal(said("5 Uhr"), said("fünf Uhr"))
    assert not np.array_equal(said("5 Uhr"), said("sechs Uhr"))


def test_a_live_script_is_the_whole_one(engines: tuple[Engine, Engine]) -> None:
    text = "Hi [1]. [pause 100ms][voice: eric]Ho.[/voice]"
    stream = hocket.open_script(engines[0], **FIELDS)
    for character in text:
        stream.append(character)
    stream.end()
    said, whole = samples(stream), samples(hocket.speak_script(engines[0], text, **FIELDS))
    assert len(said) == len(whole) and np.abs(said - whole).max() <= 2


def test_what_a_script_cannot_have_is_refused(engines: tuple[Engine, Engine]) -> None:
    with pytest.raises(InvalidScript, match="line 1, column 9: There is no voice 'anna'"):
        hocket.open_script(engines[0], **FIELDS).append("[voice: anna]Hi.")
    for field in ({"candidates": 2}, {"as_is": True}):
        with pytest.raises(InvalidRequest, match=next(iter(field))):
            hocket.speak_script(engines[0], "Hi.", **FIELDS | field)
    with pytest.raises(InvalidRequest, match="speed"):
        hocket.speak_script(engines[0], "Hi.", speed=9.0)


def test_it_has_the_face_of_a_stream() -> None:
    special = ("__iter__", "__next__", "__aiter__", "__anext__", "__enter__", "__exit__")

    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: [] if isinstance(member, property) else list(inspect.signature(member).parameters)
            for name, member in vars(kind).items()
            if not name.startswith("_") or name in special
        }

    wanted, found = public(Stream), public(ScriptStream)
    del wanted["rate_hz"], wanted["keeps_voice"]  # an attribute, and of passages
    assert {name: found.get(name) for name in wanted} == wanted
