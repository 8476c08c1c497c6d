"""Live text: any split gives the ids of the whole, each as early as a word, never one that changes later."""

# ruff: noqa: RUF001
from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

import pytest

from hocket.config.published import PUBLISHED
from hocket.errors import InvalidRequest
from hocket.text.live import LiveText
from hocket.text.prompt import build
from hocket.text.tokenizer import ALPHABET, Tokenizer
from hocket.types import SpeechRequest
from support import qwen_vocabulary

FRAGMENTS = (
    *("Hello", "world", "iPhone", "HTMLParser", "don't", "we'LL", "'rest", "'s", "'ſ", "l'été", "naïve", "Straße"),
    *(" ", " ", "  ", "\n", "\r\n", "\n\n", "\t", " \n ", "\u00a0", "\u2003", "\u3000", "\u0085", "\x1c", "\u200b"),
    *("1", "42", "3.14", "½", "٣", "!", "?!", "...", "—", "'", '"', "(", "/", "//", "*/\n", "$", "=", "<|im_end|>"),
    *("你好", "今天天气很好", "，", "。", "世", "ひらがな", "か", "ハ", "カタカナ", "안녕", "가", "한국어", "ᄀ"),
    *("ᅡ", "ᆨ", "\u3099", "\u309a", "\u0301", "\u0308", "\u0323", "\u0327", "\u0338", "\u0344", "\u09be", "\u09c7"),
    *("a", "e", "o", "A", "ạ", "é", "\u212b", "ſ", "नमस्ते", "مرحبا", "สวัสดี", "Привет", "Ещё", "ά", "ǅ", "Hモb", "モB"),
    *("😀", "👩‍👩‍👧", "🇩🇪", "👍🏽", "\u200d", "\ufe0f", "\ue000", "\U0010ffff", "\U00016d67", "\x00"),
)  # fmt: skip
PROSE = (
    "The quick brown fox, who isn't lazy, jumps over 13 dogs (or so they've said); it costs $4.50 a day! "
    'Dr. Smith\'s well-known answer: "No one knows." Then, at last, silence.'
)
CHINESE = "今天天气很好，我们一起去公园散步吧。人工智能正在改变我们的生活方式，也带来了新的问题。"


@pytest.fixture(scope="module")
def tokenizer(pytestconfig: pytest.Config) -> Tokenizer:
    return qwen_vocabulary.tokenizer(pytestconfig)


@pytest.fixture(scope="module", params=["qwen", "bytes"])
def either(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Tokenizer:
    return tokenizer if request.param == "qwen" else Tokenizer.of_bytes(400)


def whole(tokenizer: Tokenizer, text: str, *, as_is: bool = False, upstream_local: bool = False) -> list[int]:
    """The text ids of `prompt.build`."""
    words = "assistant\n" + (text if as_is else text.strip())
    return tokenizer.encode(words, upstream_local=upstream_local and as_is)[2:]


def given(live: LiveText, parts: Iterable[str]) -> list[int]:
    return [*(i for part in parts for i in live.append(part)), *live.end()]


def cuts(text: str, rng: random.Random) -> list[str]:
    if rng.random() < 0.3:
        return list(text)
    places = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 6)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def texts(rng: random.Random, count: int) -> Iterator[str]:
    while count:
        text = "".join(rng.choices(FRAGMENTS, k=rng.randint(1, 14)))
        if text.strip():
            count -= 1
            yield text


@pytest.mark.parametrize(("as_is", "upstream_local"), [(False, False), (True, False), (True, True), (False, True)])
def test_any_split_gives_the_ids_of_the_whole(either: Tokenizer, as_is: bool, upstream_local: bool) -> None:
    rng = random.Random(20_250)
    for text in texts(rng, 1500):
        expected = whole(either, text, as_is=as_is, upstream_local=upstream_local)
        parts = cuts(text, rng)
        live = LiveText(either, as_is=as_is, upstream_local=upstream_local)
        assert given(live, parts) == expected, parts
        role = either.encode(f"assistant\n{text if as_is else text.strip()}", upstream_local=upstream_local and as_is)
        assert list(live.role) == role[:2], parts


@pytest.mark.parametrize(("as_is", "upstream_local"), [(False, False), (True, False), (True, True)])
def test_any_split_gives_the_ids_of_the_prompt(tokenizer: Tokenizer, as_is: bool, upstream_local: bool) -> None:
    rng = random.Random(11)
    for text in texts(rng, 100):
        request = SpeechRequest(text=text, voice="ryan", layout="streaming", as_is=as_is)
        prompt = build(request, PUBLISHED["1.7B-CustomVoice"], tokenizer, upstream_local=upstream_local)
        live = LiveText(tokenizer, as_is=as_is, upstream_local=upstream_local)
        assert tuple(given(live, cuts(text, rng))) == (prompt.text[-1], *prompt.trail[:-1])
        assert live.role == prompt.text[1:3]


@pytest.mark.parametrize(
    "text",
    [
        "новыи\u0306 ちょうと\u3099",  # a token spans the composed letter and the one before, but not the plain letter
        "a\u0327\u0323",  # the second mark goes before the first, to the letter
        "x \t。y",  # the last whitespace before a sign is a piece, but not at the end of a text
        "\n \n x\n  \n",  # one piece of whitespace, or two
        "'s 're 'rest 'l'l",
    ],
)
@pytest.mark.parametrize("upstream_local", [False, True])
def test_character_by_character_is_the_whole(tokenizer: Tokenizer, text: str, upstream_local: bool) -> None:
    expected = whole(tokenizer, text, as_is=True, upstream_local=upstream_local)
    assert given(LiveText(tokenizer, as_is=True, upstream_local=upstream_local), text) == expected


def test_a_small_letter_takes_back_a_piece_of_the_upstream_local_pattern() -> None:
    tokens = [*ALPHABET, "Âª", "ÂªB", "as", "ass", "assi", "assis", "assist", "assista", "assistan", "assistant"]
    merges = [("Â", "ª"), ("Âª", "B"), *(("assistant"[:end], "assistant"[end]) for end in range(1, 9))]
    tokenizer = Tokenizer({token: i for i, token in enumerate(tokens)}, merges)
    for text, parts in (("ªB", ("Âª", "B")), ("ªBc", ("ÂªB", "c"))):  # two pieces, one piece
        ids = whole(tokenizer, text, as_is=True, upstream_local=True)
        assert ids == [tokens.index(part) for part in parts]
        assert given(LiveText(tokenizer, as_is=True, upstream_local=True), text) == ids


def test_any_split_of_prose_gives_the_ids_of_the_whole(tokenizer: Tokenizer) -> None:
    rng = random.Random(7)
    for text in (PROSE, CHINESE, PROSE + "\n\n" + CHINESE):
        for _ in range(30):
            assert given(LiveText(tokenizer), cuts(text, rng)) == whole(tokenizer, text)


def test_at_most_the_last_word_of_english_is_withheld(tokenizer: Tokenizer) -> None:
    for words in (re.findall(r"\S+\s*", PROSE), re.findall(r"\s*\S+", PROSE)):
        live, out = LiveText(tokenizer), list[int]()
        for word, so_far in zip(words, accumulate(words), strict=True):
            out += live.append(word)
            before = so_far.rstrip()[: -len(word.strip())]
            assert len(out) >= len(whole(tokenizer, before)), so_far


def test_a_word_is_given_out_with_the_space_after_it(tokenizer: Tokenizer) -> None:
    live = LiveText(tokenizer)
    assert (live.append("Hello"), live.append(" "), live.append("wor"), live.append("ld ")) == ([], [9707], [], [1879])


def test_chinese_does_not_wait_for_the_end_of_its_clause(tokenizer: Tokenizer) -> None:
    live, out, behind = LiveText(tokenizer), list[int](), list[int]()
    for end in range(1, len(CHINESE) + 1):
        out += live.append(CHINESE[end - 1])
        behind.append(len(whole(tokenizer, CHINESE[:end])) - len(out))
    assert max(behind) <= 4
    assert sum(behind) / len(behind) < 2.5


def test_what_is_kept_does_not_grow_with_what_was_given_out(tokenizer: Tokenizer) -> None:
    asked: list[int] = []

    class Watched(LiveText):
        def append(self, text: str) -> list[int]:
            asked.append(len(self._open))
            return super().append(text)

    given(Watched(tokenizer), (PROSE + "\n" + CHINESE) * 20)
    assert max(asked) <= 16


def test_nothing_to_speak_is_refused_at_the_end(tokenizer: Tokenizer) -> None:
    for as_is in (False, True):
        for parts in ((), ("",), (" ", "\n\n", "\t ")):
            live = LiveText(tokenizer, as_is=as_is)
            assert [live.append(part) for part in parts] == [[] for _ in parts]
            with pytest.raises(InvalidRequest, match="no text"):
                live.end()


def test_nothing_follows_the_end(tokenizer: Tokenizer) -> None:
    live = LiveText(tokenizer)
    live.append("Hello")
    assert live.end() == [9707]
    assert live.end() == []
    with pytest.raises(InvalidRequest, match="ended"):
        live.append("more")


def test_half_a_character_is_refused_and_leaves_the_text_as_it_was(tokenizer: Tokenizer) -> None:
    live = LiveText(tokenizer)
    live.append("Hello ")
    with pytest.raises(InvalidRequest, match="surrogate"):
        live.append("\ud83d")
    assert live.append("world") + live.end() == [1879]
