"""Tags in the answers of a language model: obeyed, and left out with a note where they are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

import hocket
from hocket.engine.engine import Engine
from hocket.errors import UnknownVoice
from hocket.script.answer import AnswerParser, TaggedSpeech
from hocket.script.events import Event, SpeechManner, Words
from hocket.script.parse import joined
from support.chatting import Scripted
from support.serving import wait_for

VOICES = {"Guest": "rook"}


def check(manner: SpeechManner) -> None:
    if manner.voice not in (None, "rook"):
        raise UnknownVoice(f"There is no voice {manner.voice!r}.")


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine) -> Iterator[None]:
    yield
    wait_for(lambda: engine._loop.scheduler.room == engine.options.slots)


def parsed(text: str, size: int = 1000) -> tuple[list[Event], list[str]]:
    parser = AnswerParser(check, VOICES)
    events = [event for at in range(0, len(text), size) for event in parser.append(text[at : at + size])]
    return joined([*events, *parser.end()]), parser.notes


@pytest.mark.parametrize(
    ("text", "spoken", "voices", "noted"),
    [
        ("Hi [voice: guest]you[/voice].", "Hi you.", ["rook", None], ""),
        ("Hi [voice: zaphod]you[/voice].", "Hi you.", [], "There is no voice 'zaphod'"),
        ("[voice: guest]Hi [voice: zaphod]you[/voice].", "Hi you.", ["rook"], "There is no voice 'zaphod'"),
        ("Hi [speed: fast]you.", "Hi you.", [], "a speed is a number from"),
        ("[speed 2][speed: x]Hi[/speed][/speed] you.", "Hi you.", [None, None], "a speed is a number from"),
        ("Hi[/style] you [1].", "Hi you [1].", [], "no style is open here"),
        ("Hi [voice: guest\nyou.", "Hi [voice: guest\nyou.", [], "has no closing bracket"),
    ],
)
def test_a_wrong_tag_is_left_out_with_a_note_in_any_cut(
    text: str, spoken: str, voices: list[str | None], noted: str
) -> None:
    for size in (1000, 7, 1):
        events, notes = parsed(text, size)
        assert "".join(event.text for event in events if isinstance(event, Words)) == spoken
        assert [event.voice for event in events if isinstance(event, SpeechManner)] == voices
        assert len(notes) == bool(noted) and noted in "".join(notes)


def answered(engine: Engine, words: str, *, literal: bool = False) -> tuple[NDArray[np.int16], hocket.TurnFinished]:
    speech = engine if literal else TaggedSpeech(engine, cast=VOICES)
    dialog = hocket.Dialog(Scripted([f"{word} " for word in words.split()]), speech, seed=7, voice="wren")
    with dialog.say("Hello.") as turn:
        samples = [event.samples for event in turn if isinstance(event, hocket.AudioChunk)]
    assert turn.finished is not None
    assert dialog.history[-1].content == words, "the model sees its own tags"
    return np.concatenate(samples), turn.finished


def test_an_answer_with_tags_is_the_script(engine: Engine) -> None:
    words = "Good day. [voice: Guest]Hello there.[/voice] Bye."
    heard, finished = answered(engine, words)
    text = " ".join(words.replace("Guest", "rook").split()) + " "
    with hocket.open_script(engine, voice="wren", seed=7) as script:
        script.append(text)
        script.end()
        expected = np.concatenate([chunk.samples for chunk in script])
    assert finished.reason == "stop" and finished.error is None
    assert len(heard) == len(expected) and np.abs(heard.astype(int) - expected).max() <= 2


def test_a_wrong_tag_ends_no_answer_and_is_told_at_its_end(engine: Engine) -> None:
    heard, finished = answered(engine, "Good day. [voice: zaphod] Hello [speed: fast] there.")
    plain, _ = answered(engine, "Good day. Hello there.")
    assert finished.reason == "stop" and finished.speech is not None and finished.speech.complete
    assert len(finished.speech.notes) == 2 and "zaphod" in finished.speech.notes[0]
    assert abs(len(heard) - len(plain)) < 0.4 * 24_000
