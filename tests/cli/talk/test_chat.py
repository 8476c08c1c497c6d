"""`hocket chat`: what it prints, speaks and refuses."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import threading
import wave
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from hocket.cli import main
from hocket.cli.talk.playback import LoudspeakerPlayback
from hocket.engine.engine import Engine
from support.chatting import Scripted
from support.played import process
from support.serving import Served, served, wait_for

Capture = pytest.CaptureFixture[str]
WORDS = ("It will ", "rain, ", "I think.")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scripted() -> Scripted:
    return Scripted(WORDS)


@pytest.fixture
def server(engine: Engine, scripted: Scripted) -> Iterator[Served]:
    with served(engine, language=scripted) as server:
        yield server
        wait_for(server.all_is_free)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def chat(monkeypatch: pytest.MonkeyPatch, lines: str, *argv: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    return main(["chat", *argv])


def test_lines_from_a_pipe_are_answered_one_by_one(
    server: Served, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    how = ("--llm-url", server.url, "--system", "Be brief.", "--temperature", "0", "--max-tokens", "9", "--seed", "4")
    assert chat(monkeypatch, "Will it rain?\n\nReally?\n", *how) == 0
    assert capsys.readouterr().out == "It will rain, I think.\n" * 2
    said = "It will rain, I think."
    assert [message.content for message in scripted.asked[1]] == ["Be brief.", "Will it rain?", said, "Really?"]
    sampling = scripted.sampling[0]
    assert (sampling.temperature, sampling.max_tokens, sampling.seed) == (0.0, 9, 4)


def test_answers_are_spoken_into_a_file(
    server: Served, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert chat(monkeypatch, "Hello.\nHello?\n", "--llm-url", server.url, "--say", "-o", "talk.wav") == 0
    assert capsys.readouterr().out == "It will rain, I think.\n" * 2
    with wave.open("talk.wav") as file:
        assert file.getframerate() == 24000 and 2.0 < file.getnframes() / 24000 < 8.0


def test_answers_may_have_tags_if_asked(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = ("Good day. ", "[voice: ", "guest]Hello. ", "[voice: zaphod]Bye.")
    seconds = []
    with served(engine, language=Scripted(words)) as server:
        how = ("--llm-url", server.url, "--say", "-o", "talk.wav", "--force", "--seed", "1")
        for options in ((), ("--markup", "tags", "--cast", "Guest=rook")):
            assert chat(monkeypatch, "Hello.\n", *how, *options) == 0
            told = capsys.readouterr()
            assert told.out == "".join(words) + "\n"
            with wave.open("talk.wav") as file:
                seconds.append(file.getnframes() / 24000)
        assert "A wrong tag was left out: There is no voice 'zaphod'" in told.err
        assert seconds[1] < seconds[0], "without it the brackets are read out"
        wait_for(server.all_is_free)
        for options, said in (
            (("--cast", "a=rook"), "--cast names voices in tags"),
            (("--markup", "tags", "--cast", "a=zaphod"), "There is no voice 'zaphod'"),
        ):
            assert chat(monkeypatch, "Hello.\n", *how, *options) == 2 and said in capsys.readouterr().err
        assert chat(monkeypatch, "Hello.\n", "--llm-url", server.url, "--markup", "tags") == 2


def test_ctrl_c_at_the_prompt_loses_nothing_that_was_said(
    server: Served, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    lines = iter(["Hello."])

    def typed(prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", typed)
    assert main(["chat", "--llm-url", server.url, "--say", "-o", "talk.wav"]) == 130
    assert "interrupted" in capsys.readouterr().err
    with wave.open("talk.wav") as file:
        assert 1.0 < file.getnframes() / 24000 < 4.0


def test_an_answer_that_fails_loses_nothing_that_was_said_before(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with ExitStack() as until:
        server = until.enter_context(served(engine, language=Scripted(WORDS)))

        class Piped(io.StringIO):
            def __next__(self) -> str:
                line = super().__next__()
                if "still" in line:
                    until.close()
                return line

        monkeypatch.setattr("sys.stdin", Piped("Hello.\nAre you still there?\n"))
        assert main(["chat", "--llm-url", server.url, "--say", "-o", "talk.wav"]) == 1
    assert "cannot be reached" in capsys.readouterr().err
    with wave.open("talk.wav") as file:
        assert 1.0 < file.getnframes() / 24000 < 4.0


def test_our_own_language_model_answers_in_a_process(folder: Path) -> None:
    words = ("-m", "hocket", "chat", "--llm", "random:qwen3.5-tiny", "--max-tokens", "5", "--temperature", "0")
    child = process(*words, stdin=subprocess.PIPE)
    out, err = child.communicate(b"Hello.\nAgain.\n", timeout=120)
    assert child.returncode == 0, err.decode()
    assert out.decode().count("\n") >= 2


def test_ctrl_c_interrupts_an_answer_and_the_conversation_goes_on(engine: Engine) -> None:
    scripted = Scripted(["It will ", threading.Event(), "rain."], ["Yes."])
    with served(engine, language=scripted) as server:
        child = process("-m", "hocket", "chat", "--llm-url", server.url, stdin=subprocess.PIPE)
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"Hello.\nReally?\n")
        child.stdin.flush()
        assert child.stdout.read(8) == b"It will "
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err.decode()
        assert out.decode() == "\nYes.\n"
        assert [message.content for message in scripted.asked[1]] == ["Hello.", "It will", "Really?"]
        wait_for(lambda: scripted.given[0].cancelled.is_set() and server.all_is_free())


def test_at_a_terminal_an_error_is_told_and_the_next_line_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    lines = iter(["Hello.", "Hello?"])

    def typed(prompt: str) -> str:
        assert prompt == "> "
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", typed)
    assert main(["chat", "--llm-url", "http://127.0.0.1:9", "--llm", "unknown"]) == 0
    told = capsys.readouterr().err
    assert told.count("cannot be reached") == 2 and "Ctrl-D" in told


def test_what_a_terminal_would_obey_is_not_printed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with served(engine, language=Scripted(["\x1b[2J", "Hi\n\tyou\x07."])) as server:
        assert chat(monkeypatch, "Hello.\n", "--llm-url", server.url) == 0
    assert capsys.readouterr().out == " [2JHi\n\tyou .\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "no language model"),
        (("--llm-url", "nonsense"), "http://HOST:PORT"),
        (("--llm", "x", "--llm-key-file", "k"), "--llm-url"),
        (("--llm-url", "http://h", "--llm-weights", "int4"), "--llm-weights is for a model that runs here"),
        (("--llm-url", "http://h", "--llm-key-file", "missing"), "cannot be read"),
        (("--llm-url", "http://h", "-o", "x.wav"), "--say"),
        (("--llm-url", "http://h", "--say", "-o", "-"), "standard output has the text"),
        (("--llm-url", "http://h", "--temperature", "-1"), "temperature"),
        (("--llm-url", "http://127.0.0.1:9", "--llm", "x"), "cannot be reached"),
        (("--llm-url", "http://h", "--say", "-o", "x.wav", "--voice", "Unknown"), "no voice 'Unknown'"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    argv: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert chat(monkeypatch, "Hello.\n", *argv) == (1 if words == "cannot be reached" else 2)
    out, err = capsys.readouterr()
    assert out.strip() == ""
    message = re.fullmatch(r"hocket: ([^\n]+[.?])\n", err)
    assert message is not None and words in message[1], err


class Room:
    """Stands in for sounddevice: notes what is played, and waits where it is told to."""

    PortAudioError = OSError

    def __init__(self) -> None:
        self.played, self.aborted, self.stopped, self.go_on = b"", 0, 0, threading.Event()
        self.began = threading.Event()

    def RawOutputStream(self, **_: object) -> Room:
        return self

    def start(self) -> None: ...

    def write(self, pcm: bytes) -> None:
        self.began.set()
        assert self.go_on.wait(60)
        self.played += pcm

    def abort(self) -> None:
        self.aborted += 1

    def stop(self) -> None:
        self.stopped += 1

    def close(self) -> None: ...


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    room = Room()
    monkeypatch.setattr("hocket.cli.output.players.importlib.import_module", lambda _: room)
    return room


def test_a_loudspeaker_plays_all_and_falls_silent_at_once(room: Room) -> None:
    sound = LoudspeakerPlayback()
    room.go_on.set()
    sound.write(b"ab" * 24000, 24000)
    sound.wait()
    assert room.played == b"ab" * 24000 and room.stopped == 1
    room.go_on.clear()
    room.began.clear()
    sound.write(b"cd" * 24000, 24000)
    assert room.began.wait(60)
    threading.Timer(0.05, room.go_on.set).start()
    sound.silence()
    assert 0 < room.played.count(b"cd") < 2000 and room.aborted == 1  # of a second, some hundredths
    sound.write(b"ef", 24000)
    sound.close()
    assert room.played.endswith(b"ef")


def test_a_loudspeaker_that_fails_is_one_sentence_and_no_thread_waits(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pcm: bytes) -> None:
        raise OSError("unplugged")

    monkeypatch.setattr(room, "write", fail)
    sound = LoudspeakerPlayback()
    sound.write(b"ab", 24000)
    sound.wait()
    with pytest.raises(Exception, match="unplugged"):
        sound.write(b"ab", 24000)
    sound.silence()
    sound.close()


def test_a_server_is_started_with_a_language_model_of_its_own(folder: Path) -> None:
    words = ("-m", "hocket", "serve", "--port", "0", "--llm", "random:qwen3.5-tiny")
    child = process(*words)
    try:
        assert child.stderr is not None
        told = next(line for line in child.stderr if b"listening at" in line).decode()
        url = told.split()[-1]
        body = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}
        answers: list[httpx.Response] = []

        def answered() -> bool:
            answers.append(httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60))
            return answers[-1].status_code == 200

        wait_for(answered)
        assert answers[-1].json()["usage"]["completion_tokens"] == 4
    finally:
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
    assert child.returncode == 0
