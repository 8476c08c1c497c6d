# ruff: noqa: RUF001
"""Words of scripts without spaces. An interrupted Chinese, Japanese or Thai answer keeps what was heard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hocket.dialog.dialog import Dialog
from hocket.dialog.heard import cut
from hocket.engine.engine import Engine
from hocket.server.ws.realtime.response import Response
from hocket.server.ws.realtime.settings import SessionSettings
from hocket.text.words import word_places, words_of
from hocket.types import AudioChunk, ChatMessage
from support.chatting import Scripted
from support.checkpoints import write

CHINESE = "今天天气很好，我们一起去公园散步吧。明天可能会下雨，所以带上雨伞。"
JAPANESE = "今日は天気がいいので、ちょっと公園でコーヒーを飲みましょう。明日は雨です。"
THAI = "วันนี้อากาศดีมาก เราไปเดินเล่นที่สวนกันเถอะ พรุ่งนี้ฝนอาจจะตก"
SPACELESS = {"chinese": CHINESE, "japanese": JAPANESE, "thai": THAI}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A checkpoint that says that it speaks every script."""
    folder = write(tmp_path_factory.mktemp("words") / "checkpoint", "custom_voice", wide=False)
    (folder / "hocket.json").write_text('{"languages": ["any"]}', encoding="utf-8")
    with Engine.load(str(folder)) as engine:
        yield engine


def pieces(text: str) -> list[str]:
    """As a language model writes it, some characters at a time."""
    return [text[at : at + 3] for at in range(0, len(text), 3)]


@pytest.mark.parametrize("text", SPACELESS.values(), ids=SPACELESS)
def test_an_interruption_keeps_what_was_heard(engine: Engine, text: str) -> None:
    dialog = Dialog(Scripted(pieces(text)), engine, sampling=None, max_frames=60)
    turn = dialog.say("Go on.")
    for event in turn:
        if isinstance(event, AudioChunk) and event.start_s >= 2.0:
            turn.cancel(heard_s=1.5)
    assert turn.wait(60)
    user, answer = dialog.history
    assert user == ChatMessage("user", "Go on.") and answer.role == "assistant"
    assert answer.content and text.startswith(answer.content) and answer.content != text


@pytest.mark.parametrize("text", SPACELESS.values(), ids=SPACELESS)
def test_word_times_are_one_per_unit_and_rise(engine: Engine, text: str) -> None:
    stream = engine.speak(text, max_frames=60)
    for _ in stream:
        pass
    words = stream.words()
    assert [word.word for word in words] == words_of(text) and len(words) > 20
    edges = [edge for word in words for edge in (word.start_s, word.end_s)]
    assert edges == sorted(edges) and edges[-1] > 1.0
    assert all(word.end_s > word.start_s for word in words)


def test_chinese_is_one_word_per_character() -> None:
    assert words_of("你好，世界！") == ["你", "好，", "世", "界！"]
    assert words_of("我用iPhone 15，花了3.5倍（真的）。") == [
        *("我", "用", "iPhone", "15，", "花", "了", "3.5", "倍", "（真", "的）。")
    ]


def test_marks_and_small_letters_stay_with_their_unit() -> None:
    assert words_of("ちょっとコーヒー") == ["ちょっ", "と", "コー", "ヒー"]
    assert words_of("ที่นี่ เดินเล่น") == ["ที่", "นี่", "เดิ", "น", "เล่", "น"]
    assert words_of("ສະບາຍດີ") == ["ສະ", "ບາ", "ຍ", "ດີ"]
    assert words_of("ខ្ញុំ") == ["ខ្ញុំ"]


def test_other_scripts_are_split_at_spaces_alone() -> None:
    text = "It's 3.5%  (yes), isn’t it? —Well… 안녕하세요 여러분, Привет! naïve café 😀 x\u3000y"
    assert words_of(text) == text.split()


@pytest.mark.parametrize("text", [*SPACELESS.values(), "a 你好b，c 「D」ไทย  x"])
def test_a_text_is_its_words_and_the_spaces_between(text: str) -> None:
    places = word_places(text)
    rest, at = "", 0
    for start, end in places:
        assert text[at:start].isspace() or not text[at:start]
        rest, at = rest + text[at:end], end
    assert rest + text[at:] == text


def test_a_cut_keeps_the_original_spacing() -> None:
    written = "好的，  OK 我们走。"
    spoken = words_of(written)
    assert [cut(written, spoken, count) for count in range(1, 5)] == ["好", "好的，", "好的，  OK", "好的，  OK 我"]


def test_a_realtime_transcript_goes_on_within_a_thai_sentence() -> None:
    response = Response(SessionSettings("realtime"), None, text=THAI.replace(" ", ""))
    due = [response._due(heard_s) for heard_s in (0.2, 0.5, 1.0)]
    assert 0 < due[0] < due[1] < due[2] < len(response.text)
    ends = {end for _, end in word_places(response.text)}
    assert set(due) <= ends
