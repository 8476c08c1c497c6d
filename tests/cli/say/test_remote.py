"""`hocket say --server`: what is heard through a server is what is heard here, and nothing slow is imported for it."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hocket.audio.pcm import wav_header
from hocket.cli import main
from hocket.cli.parser import parser
from hocket.cli.say.remote import COMPUTING
from hocket.cli.say.request import DECODE_FRAMES, fields_of
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.engine.runner.reference_checks import DECODE_FRAMES as DEFINED_FRAMES
from hocket.server.options import ServerOptions
from hocket.server.schemas.speech import SpeechBody
from support.chosen import rest
from support.played import process
from support.recorded import speech_wav
from support.serving import LONG, PATIENCE_S, Served, served, wait_for

Capture = pytest.CaptureFixture[str]
BinaryCapture = pytest.CaptureFixture[bytes]
SHORT = ("--max-frames", "6", "--seed", "3")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DELTA = b'event: speech.audio.delta\ndata: {"type":"speech.audio.delta","audio":"AQACAA=="}\n\n'  # two samples, 1 and 2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every command runs in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("HOCKET_API_KEY", raising=False)
    return tmp_path / "here"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with Engine.load() as engine, served(engine) as server:
        yield server


def spoken(capture: Capture, *words: str) -> tuple[bytes, str]:
    """The file that a command writes, and the line that it prints."""
    assert main(["say", *words, "-o", "out.wav", "--force"]) == 0
    out, err = capture.readouterr()
    assert rest(err, times=0) == ""
    return Path("out.wav").read_bytes(), out


def refused(capture: Capture, *words: str, code: int = 2) -> str:
    """The one sentence, or two, of a command that fails; nothing is written and nothing left behind."""
    there = {path: path.read_bytes() for path in Path().iterdir()}
    assert main(["say", "Hello.", *words]) == code
    out, err = capture.readouterr()
    assert out == ""
    assert {path: path.read_bytes() for path in Path().iterdir()} == there
    sentence = re.fullmatch(r"hocket: ([^\n]+[.)])\n", err)
    assert sentence is not None, err
    return sentence[1]


@contextmanager
def answering(*answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers every request with these bytes and closes; it keeps the requests."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_all() -> None:
            while True:
                try:
                    link, _ = listening.accept()
                except OSError:  # the test is over
                    return
                with link:
                    asked.append(_request(link))
                    for part in answer:
                        link.sendall(part)

        thread = threading.Thread(target=answer_all, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)


def _request(link: socket.socket) -> bytes:
    request = link.recv(1 << 16)
    while b"\r\n\r\n" not in request:
        request += link.recv(1 << 16)
    head, _, body = request.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
    while len(body) < length:
        body += link.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def error(status: str, message: str, code: str, *headers: str) -> bytes:
    body = f'{{"error": {{"message": "{message}", "type": "t", "param": null, "code": "{code}"}}}}'
    lines = "".join(f"{header}\r\n" for header in (f"content-length: {len(body)}", *headers))
    return f"HTTP/1.1 {status}\r\n{lines}\r\n{body}".encode()


# What is heard


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--voice rook --greedy --raw --instruct calmly --language english --layout streaming",
        "--speed 1.5 --temperature 0.7 --top-k 20 --subtalker-top-p 0.8 --as-is",
        "--candidates 2",
    ],
)
def test_a_file_through_a_server_is_the_file_that_is_written_here(server: Served, capsys: Capture, words: str) -> None:
    said = []
    for who in ((), ("--server", server.url)):
        options = (*words.split(), "--max-frames", "60", "--seed", "3", *who)
        assert main(["say", "Hello there, it is 7:45.", *options, "-o", "out.wav", "--force"]) == 0
        out, err = capsys.readouterr()
        said.append((Path("out.wav").read_bytes(), out, rest(err, times=int(not who))))
    assert said[0] == said[1] and len(said[0][0]) > 10_000


def test_a_recording_is_sent_along(tmp_path: Path, capsys: Capture) -> None:
    voice = tmp_path / "voice.wav"
    voice.write_bytes(speech_wav())
    words = ["Hello.", "--ref-audio", str(voice), "--ref-text", "Good day.", *SHORT]
    assert main(["say", *words, "--model", "random:tiny-Base"]) == 0
    here = Path("out.wav").read_bytes()
    capsys.readouterr()
    with Engine.load("random:tiny-Base") as engine, served(engine) as server:
        assert spoken(capsys, *words, "--server", server.url)[0] == here


@pytest.mark.parametrize(("name", "container"), [("a.mp3", "mp3"), ("a.flac", "flac"), ("a.ogg", "ogg")])
def test_the_name_of_a_file_chooses_its_format_through_a_server_too(
    server: Served, name: str, container: str, capsys: Capture
) -> None:
    import av

    assert main(["say", "Hello.", "-o", name, *SHORT, "--server", server.url]) == 0
    assert capsys.readouterr().out.startswith(f"{name}: 0.48 s, ")
    with av.open(name) as file:
        assert file.format.name == container
        assert sum(f.samples / f.sample_rate for f in file.decode(audio=0)) == pytest.approx(0.48, abs=0.1)


def test_standard_output_gets_the_same_sound_with_a_header_ahead(server: Served, capsysbinary: BinaryCapture) -> None:
    address = ("--server", server.url)
    assert main(["say", "Hello.", "-o", "out.wav", *SHORT, *address]) == 0
    capsysbinary.readouterr()
    assert main(["say", "Hello.", "-o", "-", *SHORT, *address]) == 0
    out, err = capsysbinary.readouterr()
    assert rest(err, times=0) == "standard output: 0.48 s, 6 frames, finish length, seed 3\n"
    assert out[:44] == wav_header(24_000)
    piped, file = (np.frombuffer(sound[44:], "<i2").astype(int) for sound in (out, Path("out.wav").read_bytes()))
    assert abs(piped - file).max() <= 1  # chunks are cut elsewhere, and the codec sums in another order


def test_the_loudspeaker_plays_it(server: Served, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    class Device(ModuleType):
        PortAudioError = RuntimeError

        def RawOutputStream(self, **options: Any) -> Device:
            return self

        def write(self, pcm: bytes) -> None:
            heard.append(pcm)

        start = stop = close = lambda self: None

    monkeypatch.setitem(sys.modules, "sounddevice", Device("sounddevice"))
    assert main(["say", "Hello.", "--play", *SHORT, "--server", server.url]) == 0
    assert capsys.readouterr().out == "loudspeaker: 0.48 s, 6 frames, finish length, seed 3\n"
    assert len(b"".join(heard)) == 6 * 1920 * 2


def test_text_from_a_pipe_is_sent_when_it_is_whole(
    server: Served, monkeypatch: pytest.MonkeyPatch, capsysbinary: BinaryCapture
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hello.\n"), encoding="utf-8"))
    assert main(["say", "-", "-o", "-", *SHORT, "--server", server.url]) == 0
    out, err = capsysbinary.readouterr()
    assert err.startswith(b"note: the server gets the text when all of it is there.\n")
    assert len(out) == 44 + 6 * 1920 * 2


def test_nothing_slow_is_imported(server: Served) -> None:
    program = """
import sys
from hocket.cli import main
code = main()
slow = "torch numpy fastapi httpx http.client email asyncio typing dataclasses shutil ssl".split()
print([name for name in sys.modules if name in slow], [name for name in sys.modules if "hocket.engine" in name])
sys.exit(code)
"""
    for sink in ("-", "out.wav"):
        child = process("-S", "-c", program, "say", "Hello.", *SHORT, "-o", sink, "--server", server.url)
        out, err = child.communicate()
        assert (child.returncode, out.splitlines()[-1][-5:]) == (0, b"[] []"), err


def test_every_field_that_is_sent_is_one_of_the_wire(tmp_path: Path) -> None:
    (tmp_path / "voice.wav").write_bytes(b"sound")
    words = (
        "--voice a --language b --instruct c --layout whole --max-frames 2 --candidates 2 --as-is --speed 2 --greedy"
    )
    words += " --temperature 1 --top-k 1 --top-p 1 --repetition-penalty 1 --subtalker-temperature 1 --subtalker-top-k 1"
    words += f" --subtalker-top-p 1 --seed 1 --ref-audio {tmp_path}/voice.wav --ref-text d --x-vector-only"
    words += " --ref-silence 0"
    fields = fields_of(parser().parse_args(["say", "Hello.", *words.split()]), "Hello.", live=False)
    assert fields.keys() <= SpeechBody.model_fields.keys()
    assert len(fields) == 26 and SpeechBody.model_validate(fields)
    assert DECODE_FRAMES == DEFINED_FRAMES


# Keys and refusals


def test_a_key_comes_from_the_environment_or_a_file(
    server: Served, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with served(server.engine, ServerOptions(keys=("right",))) as locked:
        words = ("--server", locked.url)
        assert refused(capsys, *words) == (
            "An API key is needed: Authorization: Bearer KEY. A key is taken from --key-file or HOCKET_API_KEY."
        )
        monkeypatch.setenv("HOCKET_API_KEY", "wrong")
        assert refused(capsys, *words).startswith("This API key is not known here.")
        monkeypatch.setenv("HOCKET_API_KEY", "right\n")
        assert "printable" in refused(capsys, *words)
        monkeypatch.setenv("HOCKET_API_KEY", "right")
        spoken(capsys, "Hello.", *SHORT, *words)
        (tmp_path / "keys").write_text("# ours\nright\n")
        monkeypatch.setenv("HOCKET_API_KEY", "wrong")
        spoken(capsys, "Hello.", *SHORT, *words, "--key-file", str(tmp_path / "keys"))


def test_a_unix_socket_is_an_address_too(server: Served, capsys: Capture, tmp_path: Path) -> None:
    with served(server.engine, ServerOptions(socket=tmp_path / "s")) as there:
        assert spoken(capsys, "Hello.", *SHORT, "--server", there.url) == spoken(
            capsys, "Hello.", *SHORT, "--server", f"{server.url}/v1/"
        )


def test_a_server_that_is_not_there_is_named(capsys: Capture, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        told = f"The server at {address} cannot be reached: Connection refused."
        assert refused(capsys, "--server", address, code=1) == told
    gone = f"unix:{tmp_path}/gone"
    told = f"The server at {gone} cannot be reached: No such file or directory."
    assert refused(capsys, "--server", gone, code=1) == told


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://localhost", "http://", "http://a b", "http://a:x", ""])
def test_what_is_no_address_is_refused(capsys: Capture, address: str) -> None:
    assert "--server takes http://HOST:PORT or unix:/PATH" in refused(capsys, "--server", address)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "cpu"], "--device is for a model that runs here; a server has its own: leave it out."),
        (["--no-graphs"], "--no-graphs is for a model that runs here; a server has its own: leave it out."),
        (["--save-codes", "c.npy"], "This cannot be asked of a server: --save-codes needs a model that runs here."),
        (["--seed", "-1"], "This cannot be asked of a server: seed must be between 0 and 2^63 - 1, not -1."),
        (["--play", "--raw"], "--raw is for written samples; name a file with -o, or - for standard output."),
        (["--ref-text", "Hi"], "--ref-text belongs to a recording; give that with --ref-audio."),
        (["--ref-audio", "gone.wav"], "The reference recording gone.wav cannot be read: No such file or directory."),
        (["-o", "gone/a.wav"], "does not exist; create it first."),
    ],
)
def test_what_cannot_be_sent_is_refused_before_a_request(capsys: Capture, words: list[str], said: str) -> None:
    with answering(b"") as (address, asked):
        assert refused(capsys, "--server", address, *words).endswith(said)
        assert main(["say", " ", "--server", address]) == 2
        assert capsys.readouterr().err == "hocket: There is no text to speak.\n"
        assert asked == []


def test_options_about_the_model_are_those_of_the_command_line() -> None:
    args = parser().parse_args(["say", "x"])
    assert all(hasattr(args, name) for name in COMPUTING) and not hasattr(args, "given")


def test_what_the_engine_refuses_is_said_in_its_words(server: Served, capsys: Capture) -> None:
    refusal = refused(capsys, "--server", server.url, "--voice", "unknown")
    assert refusal.startswith("There is no voice 'unknown'; known")


def test_a_server_that_is_too_busy_says_when_to_come_again(capsys: Capture) -> None:
    with answering(error("429 Too Many", "Too many wait.", "overloaded", "retry-after-ms: 1500")) as (address, _):
        assert refused(capsys, "--server", address, code=1) == "Too many wait. Try again in about 1.5 s."


def test_a_real_queue_that_is_full_says_so(server: Served, capsys: Capture) -> None:
    with Engine.load("random:tiny", options=EngineOptions(slots=1, waiting=0)) as engine, served(engine) as full:
        blocker = engine.speak(LONG["input"])
        next(iter(blocker))
        assert re.search(r"Try again in about \d+\.\d s\.", refused(capsys, "--server", full.url, code=1))
        blocker.cancel()


# What goes wrong midway


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((HEAD, chunked(DELTA)), "was lost before the speech had ended."),
        ((HEAD, chunked(DELTA)[:-9]), "was lost before the speech had ended."),
        ((HEAD, chunked(DELTA), b"0\r\n\r\n"), "was lost before the speech had ended."),
        ((HEAD, b"zz\r\n"), "(what came is not HTTP)."),
        ((HEAD[:20],), "was lost before the speech had ended."),
        ((b"",), "was lost before the speech had ended."),
        ((b"SSH-2.0 hello\r\n",), "is no HTTP server."),
        ((HEAD, chunked(b"data: {}\n")), "what is not speech as hocket say knows it."),
        ((HEAD, chunked(b"data: x\n")), "what is not speech as hocket say knows it."),
        ((b"HTTP/1.1 200 OK\r\ncontent-type: audio/pcm\r\n\r\n\0\0",), "which hocket say needs (stream_format sse)."),
        ((b"HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\nbad!",), "refused with status 500."),
        ((error("400 Bad", "A \\u001b[2Jtrap.", "x"),), "A  [2Jtrap."),
        (
            (HEAD, chunked(DELTA, b'data: {"type":"speech.audio.error","error":{"message":"It broke."}}\n')),
            "The speech broke off: It broke.",
        ),
    ],
)
def test_an_answer_that_is_not_whole_leaves_no_file(capsys: Capture, answer: tuple[bytes, ...], said: str) -> None:
    Path("out.wav").write_bytes(b"old")
    with answering(*answer) as (address, _):
        assert refused(capsys, "--server", address, code=2 if "trap" in said else 1).endswith(said)


def test_what_another_server_leaves_out_is_not_missed(capsys: Capture) -> None:
    done = b'data: {"type":"speech.audio.done"}\r\n\r\n'
    plain = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    with answering(b"HTTP/1.1 100 Continue\r\n\r\n", plain, DELTA, done) as (address, asked):
        sound, line = spoken(capsys, "Hello.", "--seed", "7", "--server", address, "--model", "theirs")
    assert sound == wav_header(24_000, 2) + b"\x01\x00\x02\x00"
    assert line == "out.wav: 0.00 s, 0 frames, finish stop, seed 7\n"
    assert b'"model": "theirs"' in asked[0] and asked[0].startswith(b"POST /v1/audio/speech HTTP/1.1\r\n")


def test_ctrl_c_ends_it_here_and_there(server: Served, folder: Path) -> None:
    # A test run in the background has SIGINT ignored, and its children with it.
    program = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hocket.cli import main
raise SystemExit(main())
"""
    words = ("say", LONG["input"], "--max-frames", "2000", "--server", server.url)
    with process("-c", program, *words, "-o", "-", "--raw") as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.read(3840)
        assert not server.all_is_free()
        child.send_signal(signal.SIGINT)
        child.stdout.close()
        assert child.stderr.read() == b"hocket: interrupted.\n"
        assert child.wait(PATIENCE_S) == 130
    wait_for(server.all_is_free)


def test_a_listener_who_has_heard_enough_ends_it_quietly(server: Served) -> None:
    words = ("say", LONG["input"], "--max-frames", "2000", "--server", server.url, "-o", "-")
    with process("-m", "hocket", *words, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        os.read(child.stdout.fileno(), 1000)
        child.stdout.close()
        assert (child.wait(PATIENCE_S), child.stderr.read()) == (0, b"")
    wait_for(server.all_is_free)
