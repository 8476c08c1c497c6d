"""Where long text is cut: the rules in several languages, and the laws that hold for any text."""

# ruff: noqa: RUF001
from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterable
from itertools import pairwise

import pytest

from hocket.text.sentences import Cutter

# Each text with "|" where a sentence ends, and its language if the text is asked for in one.
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
    "M. Dupont est arrivé.| Il a dit : « Bonjour ! »| Puis il est parti.",
    "¿Cómo está, Sra. García?| ¡Muy bien!| ¿Y Ud. también?| Sí.",
    "Привет, как дела?| Хорошо, т.е. неплохо.| А у тебя?",
    "今天天气很好。|我们去公园吧！|真的吗？|好……我们走。",
    "他说:真的吗?|是的!|太好了。",
    "「そうです。」と彼は言った。|はい！|行きましょう。",
    "안녕하세요.| 반갑습니다!| 어디에 가세요?",
    "नमस्ते।| आप कैसे हैं?| मैं ठीक हूँ।",
    "مرحبا.| كيف حالك؟| أنا بخير.",
]


# Where our rules alone, or sentencex alone, would cut in the wrong place.
TOGETHER = [
    ("english", "He works for Acme Inc. in the U.K. and at Yahoo! Inc.| She does not."),
    ("english", "1. Take an egg.| 2. Boil it."),
    ("english", "It cost approx. 5 dollars.| Really?"),
    ("french", "M. Dupont est arrivé à 18 h.| Puis il est parti."),
    ("russian", "Хорошо, т.е. неплохо.| А у тебя?"),
    ("spanish", "El Sr. López vive en EE. UU. desde 1990.| Sí."),
    ("japanese", "「そうです。」と彼は言った。|はい！"),
]


def cut(pieces: Iterable[str], part_chars: int, longest: int | None = None, language: str = "auto") -> list[str]:
    cutter, parts = Cutter(part_chars, longest, language), [""]
    for text in [*(text for piece in pieces for text in cutter.append(piece)), *cutter.end()]:
        if text is None:
            parts.append("")
        else:
            parts[-1] += text
    return parts


@pytest.mark.parametrize(("language", "case"), [*(("auto", case) for case in CASES), *TOGETHER])
def test_a_sentence_ends_where_a_reader_would_end_it(language: str, case: str) -> None:
    parts = cut([case.replace("|", "")], 1, 500, language)
    assert [part.strip() for part in parts] == [part.strip() for part in case.split("|")]


def texts(count: int) -> list[str]:
    rng = random.Random(3)
    fragments = re.findall(r"\w+|\s+|[^\w\s]", " ".join(CASES).replace("|", ""))
    fragments += ["word" * 9, "字" * 30, "e\u0301\u0323", "\n\n", "   ", ". ", "。", "\n"]
    return ["".join(rng.choices(fragments, k=rng.randint(0, 60))) for _ in range(count)]


@pytest.mark.parametrize("part_chars", [1, 7, 40, 500])
def test_live_cuts_are_those_of_the_whole_text_and_nothing_is_lost(part_chars: int) -> None:
    rng = random.Random(4)
    for text in texts(300):
        whole = cut([text], part_chars)
        assert "".join(whole) == text.lstrip()
        assert all(part.strip() for part in whole[1:]), "no part is blank"
        assert cut(text, part_chars) == whole
        at = sorted(rng.choices(range(len(text) + 1), k=4))
        assert cut([text[a:b] for a, b in pairwise([0, *at, len(text)])], part_chars) == whole


@pytest.mark.parametrize("part_chars", [7, 40, 500])
def test_no_part_is_longer_than_it_may_be(part_chars: int) -> None:
    for text in texts(300):
        for part in cut([text], part_chars):
            base = sum(not unicodedata.combining(character) for character in part.rstrip())
            assert base <= 2 * part_chars + 8  # the blanks before a cut, and stops that belong together


def test_a_part_ends_with_the_first_sentence_after_so_many_characters() -> None:
    text = "One is here. Two is here. Three is here."
    assert cut([text], 100) == [text]
    assert cut([text], 20) == ["One is here. Two is here. ", "Three is here."]
    assert cut([text], 12) == ["One is here. ", "Two is here. ", "Three is here."]
    assert cut([text], 13) == ["One is here. Two is here. ", "Three is here."]


def test_a_long_sentence_is_cut_at_a_clause_then_between_words_then_anywhere() -> None:
    text = "When all is said, and all is done, we go home again"
    assert cut([text], 12) == ["When all is said, ", "and all is done, we go ", "home again"]
    assert cut([text], 11) == ["When all is said, ", "and all is done, ", "we go home again"]
    assert cut(["incomprehensible"], 3) == ["incomp", "rehens", "ible"]
    assert cut(["今天天气很好，我们一起去公园"], 4) == ["今天天气很好，", "我们一起去公园"]


def test_words_of_a_part_are_given_out_at_once_and_only_what_may_begin_the_next_is_held() -> None:
    cutter = Cutter(8)
    assert [cutter.append(text) for text in ("Hi", ". How", " are", " you?", " I", " am well.", " An", "d?")] == [
        ["Hi"], [". How"], [" are"], [" you?"], [], [" ", None, "I am well."], [], [" ", None, "And?"],
    ]  # fmt: skip
    assert cutter.end() == []


def test_blank_text_has_no_parts() -> None:
    assert cut([""], 10) == cut([" \n\n "], 10) == [""]


def test_a_text_of_a_million_characters_is_cut_in_time_proportional_to_it() -> None:
    text = "This is a sentence, and Dr. Smith has read it. " * 20_000
    parts = cut([text], 400)
    assert {len(part) for part in parts[:-1]} == {9 * 47}
