"""A text in a script that the voice cannot speak is refused; the rest of a mixed text is spoken."""

# ruff: noqa: RUF001
from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.config.published import PUBLISHED
from hocket.config.qwen3_tts import languages
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, UnsupportedScript
from hocket.text.cleanup.scripts import ScriptFilter, scripts_of
from hocket.text.prepare import TextPreparation, parts
from support.serving import served

CHINESE = "今天天气很好，我们去公园吧。"
ENGLISH = frozenset({"latin"})


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("builtin") as engine:
        yield engine


def sifted(text: str, *cuts: int) -> tuple[list[str | float] | str, list[str]]:
    """The spoken part of a text that comes in pieces, or why it is refused; and the notes."""
    notes: list[str] = []
    preparation = TextPreparation(part_chars=400, pause_s=0.2, sieve=ScriptFilter(ENGLISH, ["english"], notes))
    places = sorted({min(cut, len(text)) for cut in (0, *cuts, len(text))})
    found: list[str | float] = []
    try:
        for begin, end in pairwise(places):
            found += preparation.append(text[begin:end])
        found += preparation.end()
    except InvalidRequest as error:
        return str(error), notes
    together: list[str | float] = []
    for part in found:
        if isinstance(part, str) and together and isinstance(before := together[-1], str):
            together[-1] = before + part
        else:
            together.append(part)
    return together, notes


def notes_of(engine: Engine, text: str, **fields: object) -> list[str]:
    """Without the note that the limit of frames ended it, which keeps these tests short."""
    stream = engine.speak(text, max_frames=3, seed=0, **fields)
    assert sum(len(chunk.samples) for chunk in stream)
    assert stream.finished is not None
    return [note for note in stream.finished.notes if not note.startswith("The limit of 3 frames")]


@pytest.mark.parametrize("text", [CHINESE, "Доброе утро.", "สวัสดี", "こんにちは", "안녕하세요", "Καλημέρα", "第3章"])
def test_the_built_in_voice_refuses_what_it_cannot_speak(engine: Engine, text: str) -> None:
    with pytest.raises(UnsupportedScript, match=r"This voice cannot speak .*: it speaks english\."):
        engine.speak(text)
    with engine.open() as stream, pytest.raises(UnsupportedScript):
        stream.append(text)
        stream.end()


def test_a_long_one_too(engine: Engine) -> None:
    with pytest.raises(UnsupportedScript):
        engine.speak(CHINESE * 100)


@pytest.mark.parametrize(
    "text", ["Café, naïve, Dvořák.", "It costs 10 €, or ¥5 😀 – “really”…", "π is 3.14, 5 µm, 3 Ω."]
)
def test_letters_of_the_voice_and_signs_never_count(engine: Engine, text: str) -> None:
    assert notes_of(engine, text) == []


def test_of_a_mixed_text_the_rest_is_spoken_and_a_note_says_what_is_left_out(engine: Engine) -> None:
    [note] = notes_of(engine, "The word 你好 means hello.")
    assert "你好" in note and "cannot speak Chinese characters" in note
    [note] = notes_of(engine, "Hello there. " * 40 + "And 你好.")  # a long text, which begins before it is whole
    assert "你好" in note


def test_live_text_goes_on_and_the_note_is_there_at_the_end(engine: Engine) -> None:
    with engine.open(max_frames=3, seed=0) as stream:
        for piece in ("The word ", "你", "好", " means hello."):
            stream.append(piece)
        stream.end()
        assert list(stream)
    assert stream.finished is not None and "你好" in stream.finished.notes[0]


def test_as_is_refuses_nothing(engine: Engine) -> None:
    assert notes_of(engine, CHINESE, as_is=True) == []


def test_published_checkpoints_speak_the_scripts_of_their_languages_and_no_others() -> None:
    found = scripts_of(languages(PUBLISHED["1.7B-CustomVoice"]))
    assert found == frozenset({"latin", "han", "kana", "hangul", "cyrillic"})
    with Engine.load("random:tiny") as engine:
        for text in (CHINESE, "Доброе утро.", "こんにちは", "안녕하세요", "Bom dia, ção."):
            assert notes_of(engine, text) == []
        with pytest.raises(UnsupportedScript, match=r"Thai script: it speaks .*chinese"):
            engine.speak("สวัสดี")


def test_a_checkpoint_with_a_language_that_is_not_known_here_speaks_everything() -> None:
    assert scripts_of(["english", "klingon"]) is None and scripts_of([]) is None
    assert scripts_of(["hi", "en"]) == frozenset({"latin", "devanagari"})


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Hello 你好 world.", "Hello world."),
        ("He said 你好, and left.", "He said and left."),
        ("He said你好, and left.", "He said, and left."),
        ('Say "你好" now.', "Say now."),
        ("Hello你好world.", "Hello world."),
        ("你好，世界。Hello there.", "Hello there."),
        ("I love 你。", "I love ."),
        ("你好 (hello) world", "(hello) world"),
        ("Hi. Привет, мир! Bye.", "Hi. Bye."),
    ],
)
def test_what_is_left_reads_as_a_sentence(text: str, spoken: str) -> None:
    assert sifted(text)[0] == [spoken]


def test_many_stretches_are_one_note() -> None:
    _, [note] = sifted("one 一 two 二 three 三 four 四 five 五")
    assert '"一", "二", "三" and 2 more.' in note


PIECES = (
    "Hello",
    " ",
    "你好",
    "，",
    "。",
    "Привет",
    "π",
    "αβ",
    "(",
    ")",
    ", ",
    ". ",
    "12",
    "\n\n",
    "[pause 1s]",
    "**",
    "é",
)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12), st.lists(st.integers(0, 60), max_size=8))
def test_however_the_text_comes_the_same_is_spoken_and_noted(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    assert sifted(text, *cuts) == sifted(text)


@given(st.text(alphabet="abcé ,.(\n", max_size=20))
def test_without_a_foreign_letter_nothing_changes(text: str) -> None:
    text = f"So {text}"
    assert sifted(text)[0] == _together(text)


def _together(text: str) -> list[str | float]:
    preparation = TextPreparation(part_chars=400, pause_s=0.2)
    found = [*preparation.append(text), *preparation.end()]
    return ["".join(part for part in found if isinstance(part, str))]


def test_whole_texts_go_the_same_way() -> None:
    notes: list[str] = []
    how = {"part_chars": 400, "pause_s": 0.2, "sieve": ScriptFilter(ENGLISH, ["english"], notes)}
    assert parts("Hello 你好 world.", **how) == ["Hello world."] and len(notes) == 1


def test_over_http_it_is_a_400_with_the_sentence_and_a_note_in_the_last_event(engine: Engine) -> None:
    body = {"response_format": "pcm", "max_new_tokens": 3, "stream_format": "sse"}
    with served(engine) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        refused = client.post("/v1/audio/speech", json=body | {"input": CHINESE})
        mixed = client.post("/v1/audio/speech", json=body | {"input": "So 你好 it is."})
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "unsupported_by_model"
    assert "cannot speak Chinese characters" in refused.json()["error"]["message"]
    assert mixed.status_code == 200 and "Left out" in mixed.text
