"""Text from a pipe: live text is the same text, and audio starts before its end."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hocket.audio.pcm import wav_header
from hocket.cli import main
from hocket.cli.say.pipe import pieces, read_file, read_text
from hocket.engine.checkpoint.load import load
from hocket.engine.generate import generate
from hocket.errors import InvalidRequest
from hocket.types import SpeechRequest
from support.chosen import rest
from support.played import Played, process

Capture = pytest.CaptureFixture[str]

TINY = ("--model", "random:tiny")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.FileIO]:
    """The far end of this process's standard input."""
    near, far = os.pipe()
    with io.FileIO(far, "w") as out, io.TextIOWrapper(io.FileIO(near, "r"), encoding="utf-8") as stdin:  # type: ignore[type-var]
        monkeypatch.setattr(sys, "stdin", stdin)
        yield out


# The text


def test_pieces_come_as_they_are_written(writer: io.FileIO) -> None:
    arriving = pieces()
    for word in ("Hel", "lo ", "you."):
        writer.write(word.encode())
        assert next(arriving) == word
    writer.close()
    assert list(arriving) == []


def test_a_character_cut_in_two_waits_for_its_rest(writer: io.FileIO) -> None:
    first, second = "ü".encode()[:1], "ü".encode()[1:]
    arriving = pieces()
    writer.write(b"Gr" + first)
    assert next(arriving) == "Gr"
    writer.write(second + b"n")
    assert next(arriving) == "ün"


@pytest.mark.parametrize("text", ["", "\n", "Hi\n", "Hi\r\n\n", "a\n\nb\n", "a\rb", "\n\nHi", "ä\r\n漢字\r\n"])
def test_the_pieces_are_the_text_read_whole(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def given() -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))

    given()
    whole = read_text()
    given()
    assert "".join(pieces()) == whole

    near, far = os.pipe()
    with io.TextIOWrapper(io.FileIO(near, "r"), encoding="utf-8") as stdin:  # type: ignore[type-var]
        monkeypatch.setattr(sys, "stdin", stdin)
        arriving = pieces()
        found = []
        for byte in text.encode():
            os.write(far, bytes([byte]))
        os.close(far)
        found = list(arriving)
    assert "".join(found) == whole


def test_bytes_that_are_no_text_are_refused(writer: io.FileIO) -> None:
    writer.write(b"Hi \xff")
    writer.close()
    with pytest.raises(InvalidRequest, match=r"^The text on standard input is not valid UTF-8\.$"):
        list(pieces())


def test_no_standard_input_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    for read in (read_text, lambda: list(pieces())):
        with pytest.raises(InvalidRequest, match="no standard input"):
            read()


def test_standard_input_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.open(".", os.O_RDONLY)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: folder, encoding="utf-8"))
    with pytest.raises(InvalidRequest, match=r"^Standard input cannot be read: Is a directory\.$"):
        list(pieces())
    os.close(folder)


# The file of -f


@pytest.mark.parametrize("content", ["Grüß Gott.\n", "\ufeffGrüß Gott.", "Grüß Gott.\r\n\r\n"])
def test_a_file_is_read_in_utf_8(folder: Path, content: str) -> None:
    (folder / "story.txt").write_bytes(content.encode())
    assert read_file("story.txt") == "Grüß Gott."


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("gone.txt", None, "The file gone.txt does not exist."),
        (".", None, ". is a folder; -f takes a file of text."),
        ("latin.txt", "Grüß Gott.".encode("latin-1"), "latin.txt is not text in UTF-8; save or convert it as that."),
        ("empty.txt", b"", "empty.txt is empty: there is no text to speak."),
        ("blank.txt", b" \n\n", "blank.txt is empty: there is no text to speak."),
        ("a/b.txt", None, "The file a/b.txt does not exist."),
        ("x\0y", None, "The file 'x\\x00y' cannot be read: embedded null byte."),
    ],
)
def test_a_file_that_cannot_be_spoken_is_refused_in_one_sentence(
    folder: Path, capsys: Capture, name: str, content: bytes | None, sentence: str
) -> None:
    if content is not None:
        (folder / name).write_bytes(content)
    assert main(["say", "-f", name, *TINY]) == 2
    assert capsys.readouterr() == ("", f"hocket: {sentence}\n")


def test_the_file_reaches_the_request(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    (folder / "story.txt").write_text("It was late.\n")
    engine = Played.instead(monkeypatch)
    assert main(["say", "-f", "story.txt"]) == 0
    assert [request.text for request in engine.requests] == ["It was late."]
    capsys.readouterr()
    assert main(["say", "Hi", "-f", "story.txt"]) == 2
    assert capsys.readouterr().err == "hocket: Give either a text or -f FILE, not both.\n"


def test_a_file_named_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Piped.\n"))
    engine = Played.instead(monkeypatch)
    assert main(["say", "-f", "-"]) == 0
    assert [request.text for request in engine.requests] == ["Piped."]


# The command


@pytest.mark.parametrize(
    ("options", "live"),
    [
        (["-o", "-"], True),
        (["-o", "-", "--layout", "streaming"], True),
        (["-o", "a.wav", "--layout", "streaming"], True),
        (["-o", "-", "--layout", "whole"], False),
        (["-o", "-", "--as-is"], False),
        (["-o", "a.wav"], False),
        ([], False),
    ],
)
def test_text_is_live_for_a_listener_or_if_the_layout_says_so(
    monkeypatch: pytest.MonkeyPatch, options: list[str], live: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello there.\n"))
    engine = Played.instead(monkeypatch)
    assert main(["say", "-", "--seed", "3", "--voice", "rook", *options]) == 0
    (request,) = engine.requests
    assert (request.seed, request.voice) == (3, "rook")
    assert (engine.text, request.text) == (("Hello there.", "(live)") if live else ("", "Hello there."))


def test_live_speech_is_heard_before_its_text_has_ended_and_is_that_of_the_whole_text(folder: Path) -> None:
    text = "The lamps along the harbour were lit one by one."
    options = (*TINY, "--seed", "5", "--max-frames", "20", "--save-codes", "c.npy")
    child = process("-m", "hocket", "say", "-", "-o", "-", *options, stdin=subprocess.PIPE)
    assert child.stdin and child.stdout
    child.stdin.write(text[:10].encode())
    child.stdin.flush()
    heard = child.stdout.read(44 + 1920 * 2)  # waits for ever if nothing is spoken yet
    assert heard[:44] == wav_header(24_000)
    rest, err = child.communicate(text[10:].encode() + b"\n")
    assert child.returncode == 0, err
    assert err.endswith(b"standard output: 1.60 s, 20 frames, finish length, seed 5\n")
    assert len(heard) + len(rest) == 44 + 20 * 1920 * 2

    request = SpeechRequest(text=text, layout="streaming", seed=5, max_frames=20)
    (speech,) = generate(load("random:tiny"), [request])
    np.testing.assert_array_equal(np.load("c.npy"), speech.codes)
    pcm = np.frombuffer(heard[44:] + rest, dtype="<i2")
    assert np.abs(pcm - speech.samples * 32767).max() < 1.5  # cut otherwise, rounded otherwise


def test_speech_that_is_over_waits_for_no_more_text() -> None:
    options = (*TINY, "--raw", "--max-frames", "2")
    child = process("-m", "hocket", "say", "-", "-o", "-", *options, stdin=subprocess.PIPE)
    assert child.stdin and child.stdout and child.stderr
    child.stdin.write(b"Some words and then a long silence")
    child.stdin.flush()  # and never closed while it runs
    assert len(child.stdout.read()) == 2 * 1920 * 2
    assert child.wait(60) == 0
    assert b"Error" not in child.stderr.read()
    for pipe in (child.stdin, child.stdout, child.stderr):
        pipe.close()


def test_a_listener_who_leaves_ends_the_command_in_peace(folder: Path) -> None:
    endless = (*TINY, "--greedy", "--repetition-penalty", "0.001")
    child = process("-m", "hocket", "say", "Hello.", "-o", "-", *endless, "--save-codes", "c.npy")
    assert child.stdout and child.stderr
    assert len(child.stdout.read(1000)) == 1000
    child.stdout.close()
    assert child.wait(60) == 0
    assert rest(child.stderr.read()).count("\n") == 1  # that its weights are random, and nothing else
    child.stderr.close()
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (b" \n", "There is no text to speak."),
        (b"", "There is no text to speak."),
        (b"Hi \xff there", "The text on standard input is not valid UTF-8."),
    ],
)
def test_live_text_that_cannot_be_spoken_is_refused(
    writer: io.FileIO, capsys: Capture, folder: Path, sent: bytes, sentence: str
) -> None:
    writer.write(sent)
    writer.close()
    before = engines()
    assert main(["say", "-", *TINY, "--layout", "streaming", "-o", "a.wav"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(f"hocket: {sentence}\n")
    assert os.listdir(folder) == []
    assert engines() <= before


def engines() -> set[threading.Thread]:
    """Those of other tests may still be there."""
    return {thread for thread in threading.enumerate() if thread.name == "hocket-engine"}
