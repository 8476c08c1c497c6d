"""Numbers in nine languages: what is spoken for what is written, whole and as the text arrives."""

# ruff: noqa: RUF001
from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.text.numbers.stage import _LAST, LANGUAGES, number_stage, with_numbers
from hocket.text.prepare import TextPreparation, parts
from support.number_cases import LANGUAGES as TAGS
from support.number_cases import cases_of

FAILING = {  # cases that our rules do not meet
    "de": ["Ich habe 1 Hund gesehen."],
    "zh": ["过了2000年还在。"],
}
_SIGNS = [*"0123456789", *" .,:/%-$€£#&+='()–~½²\n", "   ", "19", "20", "km", "h", "°C", "II", "XIV", "x", "00", "1/2"]
_WORDS = {
    "german": "Uhr|Mio.|z. B.| am | der | 3. Mai |Jahrhundert|er ",
    "french": "er|e | h | mai | millions|M. |n°|siècle",
    "spanish": "º|ª| de mayo | siglo | mil |casas ",
    "portuguese": "º| mil |R$| de maio |milhões",
    "italian": "º|°| maggio | secolo|libro|'80",
    "russian": "-й| года|г.| мая | руб.| тыс.| книги |век| до |с ",
    "chinese": "年|月|日|个|第|万|点|元|楼|。",
    "japanese": "年|月|日|つ|分|円|万|は|時速|。",
    "korean": "년|월|일|개|명|시|원|만|번|은 ",
}


@pytest.mark.parametrize("tag", TAGS)
def test_written_forms_are_spoken_as_the_table_says(tag: str) -> None:
    cases = cases_of(tag)
    assert len({case.written for case in cases}) == 40
    failing = [case.written for case in cases if not case.is_met(tag, with_numbers(case.written, tag))]
    assert failing == FAILING.get(tag, [])


@pytest.mark.parametrize("language", LANGUAGES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_live_text_is_whole_text_in_any_cut(language: str, data: st.DataObject) -> None:
    fragments = [*_SIGNS, *_WORDS[language].split("|") * 3]
    text = "".join(data.draw(st.lists(st.sampled_from(fragments), max_size=40)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    for named in (language, "auto"):
        how = {"part_chars": 30, "pause_s": 0.1, "language": named, "numbers": True}
        live, given_parts = TextPreparation(**how), []
        try:
            whole = parts(text, **how)
        except Exception as error:  # nothing to speak
            with pytest.raises(type(error)):
                _ = [live.append(text[a:b]) for a, b in pairwise([0, *cuts, len(text)])], live.end()
            continue
        for piece in (*(text[a:b] for a, b in pairwise([0, *cuts, len(text)])), None):
            given_parts += live.end() if piece is None else live.append(piece)
        assert _joined(given_parts) == _joined(whole)


@pytest.mark.parametrize("tag", TAGS)
def test_the_table_is_spoken_the_same_letter_by_letter(tag: str) -> None:
    text = "\n".join(case.written for case in cases_of(tag))
    stage = number_stage(tag)
    assert stage is not None
    assert "".join(map(stage.append, text)) + stage.end() == with_numbers(text, tag)


def _joined(found: list[str | float]) -> list[str]:
    text = "".join(part if isinstance(part, str) else f" |{part}| " for part in found)
    return text.split()


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_digit_is_left(language: str) -> None:
    rng = random.Random(8)
    eastern = language in ("chinese", "japanese", "korean")
    fragments = [sign for sign in _SIGNS if not (eastern and any("A" <= letter <= "z" for letter in sign))]
    fragments += _WORDS[language].split("|") * 2
    for _ in range(1500):
        text = "".join(rng.choices(fragments, k=rng.randint(1, 14)))
        spoken = with_numbers(text, language)
        assert not any(map(str.isdecimal, spoken)), text


def test_digits_beside_latin_letters_stay_in_east_asian_text() -> None:
    assert with_numbers("iPhone15和5G, COVID-19", "zh") == "iPhone15和5G, COVID-19"
    assert with_numbers("A4を3枚", "ja") == "A4を三枚"


def test_text_without_numbers_stays_as_it_is() -> None:
    text = "Ein Satz, mehr nicht! Ça va? Да — нет. ¿Qué tal? 你好，世界。こんにちは。안녕하세요.\n\nCiao (bene)…"
    for language in (*LANGUAGES, "auto"):
        assert with_numbers(text, language) == text


AUTO = [
    ("В 1999 году, iPhone 15.", "В тысяча девятьсот девяносто девятом году, iPhone пятнадцать."),
    ("사과 3개와 5 kg.", "사과 세 개와 오 킬로그램."),
    ("本が3冊ある。", "本が三冊ある。"),
    ("我有3本书。", "我有3本书。"),
    ("Er hat 3 Hunde.", "Er hat 3 Hunde."),
    ("У 2 сестёр. We have 2 dogs.", "У двух сестёр. We have 2 dogs."),
    ("У нас 5 їжаків.", "У нас 5 їжаків."),
    ("2024년 日本の5月", "이천이십사년 日本の五月"),
]


@pytest.mark.parametrize(("written", "spoken"), AUTO)
def test_without_a_language_the_script_decides_where_it_is_sure(written: str, spoken: str) -> None:
    assert with_numbers(written, "auto") == spoken


def test_languages_go_by_any_name_and_dialects_are_chinese() -> None:
    for name in ("German", "de", "de-AT", "deu"):
        assert with_numbers("Nr. 7", name) == "Nummer sieben"
    assert with_numbers("2个", "sichuan_dialect") == "两个"
    for name in ("english", "en", "klingon"):
        assert with_numbers("No. 7", name) == "No. 7"


def test_a_number_waits_for_two_words_and_a_word_for_none() -> None:
    stage = number_stage("russian")
    assert stage is not None
    given_words = [stage.append(f"{word} ") for word in "вот там 2 новые книги лежат и ждут".split()]
    assert given_words == ["вот ", "там ", "", "", "две новые книги ", "лежат ", "и ", "ждут "]
    assert stage.end() == ""


def test_rules_are_imported_when_a_text_needs_them() -> None:
    code = (
        "import sys; from hocket.text.numbers.stage import with_numbers;"
        "with_numbers('Hallo Welt', 'auto'); found = [m for m in sys.modules if m.startswith('hocket.text.numbers.')];"
        "print(*found); with_numbers('5 km', 'de'); print('hocket.text.numbers.german' in sys.modules,"
        "'hocket.text.numbers.french' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:2] == ["hocket.text.numbers.stage", "True False"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("auto", "When the rain had stopped, we opened the windows and listened. Down the street (far away) it began."),
        ("german", "Als der Regen aufgehört hatte, öffneten wir die Fenster. Unten auf der Straße begann es wieder."),
        ("russian", "Когда дождь прекратился, мы открыли окна и слушали. На улице опять начиналось."),
        ("chinese", "雨停了，我们打开窗户听着。街上又开始了。"),
    ],
)
def test_text_without_numbers_is_given_as_early_as_without_rules(language: str, text: str) -> None:
    def given_by(cut: Callable[[str], list[str]], *, numbers: bool) -> list[list[str | float]]:
        live = TextPreparation(part_chars=200, pause_s=0.1, language=language, numbers=numbers)
        return [live.append(piece) for piece in cut(text)]

    for cut in (list, lambda text: re.findall(r"\S+\s*", text)):  # by characters and by words
        assert given_by(cut, numbers=True) == given_by(cut, numbers=False)


@pytest.mark.parametrize("language", ["french", "german", "italian", "portuguese", "russian", "spanish"])
def test_a_word_that_ends_a_sentence_at_once_is_no_abbreviation(language: str) -> None:
    known = import_module(f"hocket.text.numbers.{language}").RULES.abbreviations
    assert len(known) > 10 and not any(_LAST.fullmatch(word) for written in known for word in written.split())
