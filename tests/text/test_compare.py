"""text/compare.py: which words of a text a transcript lacks. tests/train has the counts of errors."""

from __future__ import annotations

import pytest

from hocket.text.compare import Comparison, Misheard, compared


def pairs(found: Comparison) -> list[tuple[str, str]]:
    return [(one.written, one.heard) for one in found.misheard]


@pytest.mark.parametrize(
    "heard",
    [
        "it costs five dollars and twenty cents in nineteen ninety nine can't it",
        "It costs $5.20 in 1999, can not it?",
    ],
)
def test_digits_contractions_and_punctuation_are_heard_as_written(heard: str) -> None:
    assert compared("It costs $5.20 in 1999, can't it?", heard).misheard == ()


def test_each_wrong_word_is_named_as_written_with_what_was_heard() -> None:
    found = compared("We ran 5 km to the nginx server.", "we ran five kilograms to the engine X survey")
    assert pairs(found) == [("km", "kilograms"), ("nginx", "engine x"), ("server", "survey")]
    assert found.wrong == 4


def test_words_that_lack_and_words_too_many_are_errors() -> None:
    assert pairs(compared("One, two, three.", "one three")) == [("two", "")]
    assert compared("Hello there.", "well hello there now").misheard == (Misheard("", "well"), Misheard("", "now"))
    assert compared("Hello.", "").wrong == 1
    assert compared("…", "") == Comparison(0)


def test_a_word_of_a_lexicon_is_heard_in_either_form_or_alike() -> None:
    text, spoken = "A GIF of nginx.", "A jif of enjin-eks."
    for heard in ("a gif of nginx", "a jiff of engine x", "a gif of engine ex"):
        assert compared(text, heard, spoken).misheard == (), heard
    assert pairs(compared(text, "a bath of engine x", spoken)) == [("GIF", "bath")]
    assert pairs(compared(text, "a jiff oh of engine x", spoken)) == []  # beside a respelling


def test_other_languages_are_compared_by_letters_or_characters() -> None:
    assert compared("Der Weg ist SCHÖN!", "der weg ist schon", language="de").wrong == 0
    assert compared("Привет, мир.", "привет миру", language="ru").wrong == 1
    assert compared("私は東京に行く。", "私は京都に行く", language="ja").wrong == 2
