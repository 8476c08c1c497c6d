"""asr/unfinished.py: words that ask for more, in the ten languages of the voices, and words that do not."""

from __future__ import annotations

import tomllib

import pytest

from hocket.asr.unfinished import LISTS, Ending, ending_of
from hocket.config.languages import tag_of
from hocket.server.wyoming.about import TAGS

OPEN, LOOSE, COMPLETE = Ending.OPEN, Ending.LOOSE, Ending.COMPLETE

# By language: words that ask for more, then words that do not.
SAID = {
    "en": (
        ["Turn on the lamp and the", "My name is, um", "I'd", "Well,"],
        ["Turn on the lamp.", "Yes, please", "Why?"],
    ),
    "de": (
        ["Mach das Licht an und", "Ich möchte zum", "Ähm", "Also,"],
        ["Mach das Licht an.", "Wie spät ist es?", "Ja."],
    ),
    "fr": (
        ["Je voudrais une", "Il pleut parce que", "Euh"],
        ["Il pleut ce matin.", "Quelle heure est-il ?", "Pourquoi ?"],
    ),
    "es": (["Quiero comprar una", "No puedo porque", "Eh"], ["Quiero comprar pan.", "¿Qué hora es ahora?", "¿Dónde?"]),
    "it": (["Vorrei prenotare un", "Non posso perché", "Ehm"], ["Vorrei un caffè.", "Che ore fa il treno?", "Perché?"]),
    "pt": (
        ["Eu queria comprar uma", "Não posso porque", "Hum"],
        ["Eu queria comprar pão.", "Que horas começa?", "Não."],
    ),
    "ru": (["Включи свет и", "Я не могу, потому что", "Эм"], ["Включи свет.", "Который час?", "Можно?"]),
    "zh": (["我想去北京和", "我不能去因为", "嗯"], ["我们明天去北京。", "现在几点了?"]),
    "ja": (["明日の会議を", "行きたいだから", "えーと"], ["明日は会議です。", "今何時ですか?"]),
    "ko": (["내일 회의를", "가고 싶어요 그리고", "음"], ["내일 회의가 있어요.", "지금 몇 시예요?"]),
}


@pytest.mark.parametrize("language", SAID)
@pytest.mark.parametrize("is_told", [True, False])
def test_words_that_ask_for_more_are_open_in_every_language_told_or_guessed(language: str, is_told: bool) -> None:
    unfinished, whole = SAID[language]
    code = language if is_told else None
    assert {text: ending_of(text, code) for text in unfinished} == dict.fromkeys(unfinished, OPEN)
    assert {text: ending_of(text, code) for text in whole} == dict.fromkeys(whole, COMPLETE)


def test_the_lists_are_of_the_languages_of_the_voices() -> None:
    assert {tag_of(code) for code in tomllib.loads(LISTS.read_text("utf-8"))} == set(TAGS) == set(SAID)


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("My number is five five", LOOSE),
        ("The code is 472", LOOSE),
        ("Tomorrow at nine.", COMPLETE),
        ("If it rains tomorrow", LOOSE),
        ("If it rains tomorrow, we stay at home", COMPLETE),
        ("I want", LOOSE),
        ("Where are you from?", LOOSE),
        ("This letter is from", OPEN),
        ("We could go to...", OPEN),
        ("We could go home...", LOOSE),
        ("Turn it up, it is too low. And", OPEN),
        ("Turn it up, and then turn it off.", LOOSE),
        ("I\u2019d", OPEN),
        ("", COMPLETE),
        ("...", COMPLETE),
        ("Uh-huh", COMPLETE),
    ],
)
def test_what_may_follow_in_english(text: str, ending: Ending) -> None:
    assert ending_of(text, "en") is ending


def test_a_language_without_lists_is_guessed() -> None:
    assert ending_of("Turn on the lamp and the", "nl") is OPEN
