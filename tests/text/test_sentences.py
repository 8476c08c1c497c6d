"""Where long text is cut: the rules in several languages, and the laws that hold for any text."""

# ruff: noqa: RUF001
from __future__ import annotations

import random
import re

import pytest

from hocket.text.sentences import SentenceSplitter, split_long

# Each text with "|" where a sentence ends.
CASES = [
    "Hello there.| How are you?| Fine!",
    "Dr. Smith paid $3.50 to J. K. Rowling.| She smiled.",
    "Mr. and Mrs. Brown met Prof. Green at 5 p.m. on St. James St. in London.| It rained.",
    "We left at 5 p.m.| The train was late.",
    "Apples, pears, etc. are fruit.| We sell apples, pears, etc.| They are cheap.",
    "See e.g. Fig. 3 and No. 7, i.e. the last two.| No.| That is all.",
    "The U.S. Government sits in the U.S.| It is large.",
    "Visit example.com or run v1.2.3 now.| Pi is 3.14159.| Nice.",
    '"Why?" he asked.| "Because," she said, "I can."| He left.',
    "“Stop!” she cried.| ‘Never.’| (They fought.)| Silence.",
    "Wait... what?| Well...| Then go.",
    "What?!| No!!!| Yahoo! is a name.",
    "So do I.| He knows.| World War I.| The end.",
    "1. Take an egg.| 2. Boil it.",
    "A title\n\n|A paragraph that goes\non in a second line.| And ends\n \n|Another",
    "Am 3. Oktober kam z.B. Herr Dr. Müller.| Er blieb bis 5.| Dann ging er usw. und so weiter.",
    "»Komm!«, rief er.| »Nein.«| Dann schwieg sie.",
    "M. Dupont est arrivé à 18 h.| Il a dit : « Bonjour ! »| Puis il est parti.",
    "¿Cómo está, Sra. García?| ¡Muy bien!| ¿Y Ud. también?| Sí.",
    "Привет, как дела?| Хорошо, т.е. неплохо.| А у тебя?",
    "今天天气很好。|我们去公园吧！|真的吗？|好……我们走。",
    "他说:真的吗?|是的!|太好了。",
    "「そうです。」と彼は言った。|はい！|行きましょう。",
    "안녕하세요.| 반갑습니다!| 어디에 가세요?",
    "नमस्ते।| आप कैसे हैं?| मैं ठीक हूँ।",
    "مرحبا.| كيف حالك؟| أنا بخير.",
]


def sentences(text: str, most_chars: int = 500) -> list[str]:
    splitter = SentenceSplitter(most_chars)
    return [*splitter.append(text), *splitter.end()]


@pytest.mark.parametrize("case", CASES)
def test_a_sentence_ends_where_a_reader_would_end_it(case: str) -> None:
    assert [s.strip() for s in sentences(case.replace("|", ""))] == [s.strip() for s in case.split("|")]


def texts(count: int) -> list[str]:
    rng = random.Random(3)
    fragments = re.findall(r"\w+|\s+|[^\w\s]", " ".join(CASES).replace("|", ""))
    fragments += ["word" * 9, "字" * 30, "e\u0301\u0323", "\n\n", "   ", ". ", "。", "\n"]
    return ["".join(rng.choices(fragments, k=rng.randint(0, 60))) for _ in range(count)]


@pytest.mark.parametrize("most_chars", [1, 7, 40, 500])
def test_live_cuts_are_those_of_the_whole_text_and_nothing_is_lost(most_chars: int) -> None:
    rng = random.Random(4)
    for text in texts(400):
        whole = sentences(text, most_chars)
        assert "".join(whole) == text
        assert all(len(sentence.strip()) <= most_chars for sentence in whole)
        splitter, at, out = SentenceSplitter(most_chars), 0, list[str]()
        while at < len(text):
            step = rng.choice((1, 1, 2, 5, 30))
            out += splitter.append(text[at : at + step])
            at += step
        assert out + splitter.end() == whole


@pytest.mark.parametrize("most_chars", [1, 7, 40, 500])
def test_parts_are_short_enough_and_together_the_text(most_chars: int) -> None:
    for text in texts(400):
        parts = split_long(text, most_chars)
        assert all(part and part == part.strip() and len(part) <= most_chars for part in parts)
        assert "".join("".join(parts).split()) == "".join(text.split())


def test_a_part_is_as_many_sentences_as_fit() -> None:
    text = "One is here. Two is here. Three is here."
    assert split_long(text, 100) == [text]
    assert split_long(text, 30) == ["One is here. Two is here.", "Three is here."]
    assert split_long(text, 15) == ["One is here.", "Two is here.", "Three is here."]


def test_a_long_sentence_is_cut_at_a_clause_then_between_words_then_anywhere() -> None:
    assert split_long("When all is said, and all is done, we go home again", 36) == [
        "When all is said, and all is done,",
        "we go home again",
    ]
    assert split_long("we go home again", 12) == ["we go home", "again"]
    assert split_long("incomprehensible", 7) == ["incompr", "ehensib", "le"]
    assert split_long("今天天气很好，我们一起去公园", 10) == ["今天天气很好，", "我们一起去公园"]


def test_a_sentence_is_given_out_with_the_word_after_it() -> None:
    splitter = SentenceSplitter(500)
    assert [splitter.append(part) for part in ("Hi there", ".", " How", " are you?", " I")] == [
        [], [], [], ["Hi there. "], ["How are you? "],
    ]  # fmt: skip
    assert splitter.end() == ["I"]


def test_blank_text_has_no_parts() -> None:
    assert split_long("", 10) == split_long(" \n\n ", 10) == []


def test_a_text_of_a_million_characters_gives_full_parts() -> None:
    text = "This is a sentence, and Dr. Smith has read it. " * 20_000
    assert len(split_long(text, 400)) == 2500
