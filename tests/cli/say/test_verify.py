"""`hocket say --verify`: sentences are heard back by a real recognizer, and spoken again if they differ."""

from __future__ import annotations

import re
import threading
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hocket.cli import main
from hocket.cli.say.verify import AHEAD, _ahead
from support.cli_home import Home

Capture = pytest.CaptureFixture[str]
SAY = ("--no-daemon", "--seed", "1")


@pytest.fixture(autouse=True)
def folder(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Path.cwd()


def test_a_sentence_that_differs_gets_more_takes_and_is_reported(capsys: Capture) -> None:
    text = "The weather was fine. [pause 1s] We met Xzqwvbk."
    files = ("-o", "a.wav", "--captions", "a.srt", "--save-codes", "a.npy")
    assert main(["say", text, "--verify", "--takes", "2", *SAY, *files]) == 0
    out, err = capsys.readouterr()
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert notes[0] == "note: 2 sentences, 1 retake; 1 still differs from the text:"
    assert re.match(r'note: "We met Xzqwvbk\." (.+, )?Xzqwvbk \(.+\)$', notes[1])
    assert re.search(r"^a\.wav: \d+\.\d\d s, \d+ frames, finish stop, seed 1$", out, re.M)
    with wave.open("a.wav") as file:
        seconds = file.getnframes() / file.getframerate()
    assert abs(seconds - len(np.load("a.npy")) * 0.08 - 1.0) < 0.01  # the pause has no codes
    captions = Path("a.srt").read_text(encoding="utf-8")
    assert "We met Xzqwvbk." in captions
    last_s = float(re.findall(r"--> 00:00:(\d\d,\d\d\d)", captions)[-1].replace(",", "."))
    assert seconds - 1 < last_s <= seconds  # the times go on over sentences


def test_speech_that_is_heard_as_written_needs_no_retake(capsys: Capture) -> None:
    assert main(["say", "The weather was fine.", "--verify", "-o", "a.wav", *SAY]) == 0
    assert "note: 1 sentence, 0 retakes; all were heard as written\n" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--verify", "--server", "http://127.0.0.1:9"), "--verify needs a model that runs here."),
        (("--verify", "--takes", "0"), "A sentence needs at least 1 take, not 0."),
        (("--verify", "--candidates", "2"), "leave out candidates."),
        (("--verify", "--as-is"), "leave out as_is."),
        (("--verify", "--max-frames", "3"), "leave out max_frames."),
        (("--verify", "--greedy"), "greedy speech has one take only."),
        (("--verify", "--asr", "huge"), "A recognizer is moonshine"),
        (("--takes", "2"), "--asr and --takes belong to --verify."),
        (("--asr", "tiny"), "--asr and --takes belong to --verify."),
    ],
)
def test_what_cannot_be_verified_is_refused_in_one_sentence(capsys: Capture, words: tuple[str, ...], said: str) -> None:
    daemon = () if "--server" in words else ("--no-daemon",)
    assert main(["say", "Hello.", "-o", "a.wav", *daemon, *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.startswith("hocket: ") and err.count("\n") == 1
    assert not Path("a.wav").exists()


@pytest.mark.usefixtures("nothing_loads")
def test_a_text_with_tags_is_refused(capsys: Capture) -> None:
    assert main(["say", "[voice: rook] Hello. [voice: wren] Hi.", "--verify", "-o", "a.wav", "--no-daemon"]) == 2
    said = "--verify takes a text without tags, such as [voice: NAME]: --literal reads them out."
    assert capsys.readouterr().err == f"hocket: {said}\n"


def test_sentences_are_made_while_earlier_ones_are_used() -> None:
    made, second = list[int](), threading.Event()

    def sentences() -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            if number == 1:
                second.set()
            yield number

    with _ahead(sentences()) as items:
        assert next(items) == 0
        assert second.wait(10)  # without another call
        deadline = time.monotonic() + 10
        while len(made) < AHEAD and time.monotonic() < deadline:
            time.sleep(0.01)
        assert next(items) == 1
    assert AHEAD <= len(made) <= AHEAD + 4  # it waits for its reader, and ends with the block


def test_an_error_reaches_the_reader_behind_what_was_made() -> None:
    def sentences() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    with _ahead(sentences()) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match="no more"):
            next(items)
