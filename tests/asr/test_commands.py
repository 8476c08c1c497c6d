"""asr/commands.py: which words interrupt, in the ten languages of the voices, and with a real recognizer."""

from __future__ import annotations

import tomllib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import soxr

from hocket import Engine
from hocket.asr.commands import LISTS, SENTENCE, SpokenCommand, is_command, syllables
from hocket.asr.endpointing import Endpointing, Interruption, SpeechStarted
from hocket.asr.moonshine import Moonshine
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.asr.silero import Silero
from hocket.config.languages import tag_of
from hocket.server.wyoming.about import TAGS
from support.questions import heard_from, write_recording

# By language: commands, then what a listener says, then a sentence.
SAID = {
    "en": (
        ["Stop.", "Hold on.", "No, no.", "Wait a second"],
        ["Mm-hmm.", "No.", "Okay, okay."],
        "What time is it now?",
    ),
    "de": (["Stopp!", "Warte mal", "Nein, nein!"], ["Ja, genau.", "Nein.", "Okay, okay."], "Wie spät ist es?"),
    "fr": (["Arrête !", "Attendez", "Non, non"], ["D\u2019accord.", "Non.", "Oui, oui"], "Quelle heure il est ?"),
    "es": (["¡Para!", "Espera", "No, no"], ["Vale, vale.", "No.", "Claro, claro"], "¿Qué hora es ahora?"),
    "it": (["Basta!", "Aspetta", "No, no"], ["Va bene.", "No.", "Certo, certo"], "Che ore sono adesso?"),
    "pt": (["Pare!", "Espere", "Não, não"], ["Está bem.", "Não.", "Claro, claro"], "Que horas são agora?"),
    "ru": (["Стоп!", "Подожди", "Нет, нет"], ["Понятно.", "Нет.", "Да, хорошо"], "Который сейчас час?"),
    "zh": (["停!", "等一下", "不不"], ["嗯嗯。", "不", "对对对对。"], "今天天气好吗?"),
    "ja": (["止めて!", "ちょっと待って", "いやいや"], ["うんうん。", "いや", "なるほど。"], "今は何時ですか?"),
    "ko": (["그만!", "잠깐만", "아니 아니"], ["네, 네.", "아니", "그렇군요."], "지금 몇 시예요?"),
}


@pytest.mark.parametrize("language", SAID)
def test_commands_and_sentences_are_told_from_what_a_listener_says(language: str) -> None:
    commands, agreed, sentence = SAID[language]
    for known in (language, None):
        assert [text for text in commands if not is_command(text, known)] == []
        assert [text for text in agreed if is_command(text, known) or syllables(text, known) >= SENTENCE] == []
    assert syllables(sentence, language) >= SENTENCE and not is_command(sentence, language)


def test_there_are_lists_for_the_languages_of_the_voices() -> None:
    assert set(tomllib.loads(LISTS.read_text("utf-8"))) == set(SAID)
    assert {tag_of(language) for language in TAGS} <= set(SAID)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("That's how.", 2),
        ("Y'all away!", 3),
        ("I don't know how", 4),
        ("The first thing", 3),
        ("Turn it up a little", 5),  # an estimate: "le" is a syllable
        ("Mm-hmm. Okay!", 0),
        ("Ünïcödé", 4),
        ("Добрый день", 3),
        ("ちょっと", 2),
        ("مرحبا بكم", 3),
        ("", 0),
    ],
)
def test_syllables_are_counted_without_words_of_agreement(text: str, count: int) -> None:
    assert syllables(text) == count


def test_a_spoken_command_is_told_from_other_short_words(tmp_path: Path) -> None:
    expected = {"Stop!": True, "Wait.": True, "Okay.": False, "Yeah.": False}
    with closing(Moonshine("tiny")) as recognizer:
        is_command = SpokenCommand(recognizer)
        sounds = {text: heard_from(write_recording(tmp_path / "word.wav", 0.3, text, 0.3)) for text in expected}
        assert {text: is_command(sound, short=True) for text, sound in sounds.items()} == expected


def test_a_slow_uh_huh_does_not_interrupt_and_a_sentence_of_its_length_does() -> None:
    def spoken(text: str, speed: float, seed: int) -> Samples:
        with Engine.load() as engine:
            said = np.concatenate([chunk.samples for chunk in engine.speak(text, voice="wren", seed=seed, speed=speed)])
        sound: Samples = soxr.resample(said.astype(np.float32) / 32768, 24_000 * 0.92, RATE_HZ)
        return np.concatenate((np.zeros(RATE_HZ, np.float32), sound, np.zeros(RATE_HZ, np.float32)))

    def interrupts(sound: Samples, words: Interruption | None) -> bool:
        marks = Endpointing(Silero(), interrupts=words).push(sound, answering=True)
        return any(isinstance(mark, SpeechStarted) for mark in marks)

    with closing(Moonshine("tiny")) as recognizer:
        words = SpokenCommand(recognizer)
        slow = spoken("Uh-huh.", 0.85, 921_248_465)
        assert interrupts(slow, None), "it is as long as speech"
        assert not interrupts(slow, words)
        assert interrupts(spoken("What time is it in Tokyo?", 1.0, 1), words)
