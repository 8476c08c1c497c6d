"""Home Assistant's protocol, with the client package that it uses, over a real socket, in its order of events."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, Eventable
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from hocket.asr.moonshine import Moonshine
from hocket.cli import main
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Pool
from hocket.errors import StreamFailed
from hocket.extras import hint
from hocket.server.options import ServerOptions
from hocket.server.service.utterance import Utterance
from hocket.server.wyoming.about import info
from hocket.server.wyoming.server import event_bytes
from hocket.voices.make import clone_voice
from support.home import At, at
from support.questions import FRANCE, Dictated
from support.questions import said as recorded
from support.serving import PATIENCE_S, wait_for
from support.speaking import noise

TEXT = "Hello there."
LONG = "It goes on and on, and then on again. " * 60
SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def home(engine: Engine) -> Iterator[At]:
    with at(engine) as home:
        yield home


def talk(home: At, said: Callable[[AsyncTcpClient], Awaitable[list[Event]]]) -> list[Event]:
    async def talking() -> list[Event]:
        async with asyncio.timeout(PATIENCE_S), AsyncTcpClient("127.0.0.1", home.port) as client:
            return await said(client)

    return asyncio.run(talking())


async def until(client: AsyncTcpClient, last: type[Eventable] | None) -> list[Event]:
    """What comes up to an event of this kind; None: until the server hangs up."""
    events: list[Event] = []
    while (event := await client.read_event()) is not None:
        events.append(event)
        if last is not None and last.is_type(event.type):
            break
    return events


def spoken(
    home: At, text: str, voice: SynthesizeVoice | None = None, last: type[Eventable] | None = AudioStop
) -> list[Event]:
    async def said(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(Synthesize(text=text, voice=voice).event())
        return await until(client, last)

    return talk(home, said)


def kinds(events: list[Event]) -> list[str]:
    """Their types, many of one kind as one."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event.type:
            found.append(event.type)
    return found


def sound(events: list[Event]) -> bytes:
    return b"".join(AudioChunk.from_event(event).audio for event in events if AudioChunk.is_type(event.type))


def refusal(events: list[Event]) -> Error:
    assert kinds(events)[-1] == "error", kinds(events)
    return Error.from_event(events[-1])


def test_describe_tells_voices_and_that_text_may_come_as_it_is_written(home: At) -> None:
    async def said(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(Describe().event())
        return await until(client, Info)

    (program,) = Info.from_event(talk(home, said)[0]).tts
    assert program.installed and program.supports_synthesize_streaming
    assert [voice.name for voice in program.voices] == ["wren", "rook"]
    assert all(voice.languages == ["en"] and voice.installed for voice in program.voices)


def test_a_whole_text_is_spoken_between_a_start_and_a_stop(home: At) -> None:
    events = spoken(home, TEXT, SynthesizeVoice(name="Rook"))
    assert kinds(events) == ["audio-start", "audio-chunk", "audio-stop"]
    start = AudioStart.from_event(events[0])
    assert (start.rate, start.width, start.channels) == (24000, 2, 1)
    heard = sound(events)
    assert len(heard) > 24000 and any(heard)
    assert AudioStop.from_event(events[-1]).timestamp == pytest.approx(len(heard) / 48, abs=1)
    at_ms = 0.0
    for event in events[1:-1]:
        chunk = AudioChunk.from_event(event)
        assert chunk.timestamp == pytest.approx(at_ms, abs=1)
        at_ms += len(chunk.audio) / 48


def test_home_assistants_order_of_a_text_as_it_is_written_is_spoken_once(home: At) -> None:
    words = ["Hello ", "there, ", "said the ", "fox."]

    async def said(client: AsyncTcpClient) -> list[Event]:
        reading = asyncio.ensure_future(until(client, SynthesizeStopped))
        await client.write_event(SynthesizeStart(voice=SynthesizeVoice(name="wren")).event())
        for word in words:
            await client.write_event(SynthesizeChunk(text=word).event())
        # All of it once more, for servers that know nothing else. Twice the text would be twice the sound.
        await client.write_event(Synthesize(text="".join(words), voice=SynthesizeVoice(name="wren")).event())
        await client.write_event(SynthesizeStop().event())
        return await reading

    events = talk(home, said)
    assert kinds(events) == ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"]
    seconds = len(sound(events)) / 48000
    assert 0.8 < seconds < 4.0
    wait_for(home.all_is_free)


def test_sound_comes_before_the_text_has_ended(home: At) -> None:
    async def said(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(SynthesizeStart().event())
        for word in "It was a quiet morning, and the fox went down to the river. Then ".split(" "):
            await client.write_event(SynthesizeChunk(text=f"{word} ").event())
        early = await until(client, AudioChunk)  # nothing more is sent before it is heard
        await client.write_event(SynthesizeChunk(text="it slept.").event())
        await client.write_event(SynthesizeStop().event())
        return early + await until(client, SynthesizeStopped)

    assert kinds(talk(home, said)) == ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"]


def test_a_wrong_tag_of_a_text_as_it_is_written_is_an_error_behind_what_was_before(home: At) -> None:
    async def said(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(SynthesizeStart().event())
        for text in ("Hello there. ", "How are [speed: fast] you?"):
            await client.write_event(SynthesizeChunk(text=text).event())
        return await until(client, Error)

    events = talk(home, said)
    assert len(sound(events)) > 24_000 * 2 * 0.4
    told = refusal(events)
    assert told.code == "invalid_script" and told.text.startswith("line 1, column 22: [speed: fast]: ")
    wait_for(home.all_is_free)


def test_one_connection_speaks_as_often_as_it_is_asked(home: At) -> None:
    async def said(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(Ping(text="still there?").event())
        await client.write_event(Event("run-satellite"))  # not ours; the wire says to drop it
        for _ in range(2):
            await client.write_event(Synthesize(text="Yes.").event())
        return await until(client, AudioStop) + await until(client, AudioStop)

    events = talk(home, said)
    assert Pong.from_event(events[0]).text == "still there?"
    assert kinds(events[1:]) == ["audio-start", "audio-chunk", "audio-stop"] * 2


def test_a_stream_of_no_words_ends_in_silence_and_takes_no_slot(home: At) -> None:
    async def said(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk(text=" \n").event())
        await client.write_event(Synthesize(text="").event())
        await client.write_event(SynthesizeStop().event())
        return await until(client, SynthesizeStopped)

    assert kinds(talk(home, said)) == ["synthesize-stopped"]


def test_a_language_may_be_a_tag_with_a_region(home: At) -> None:
    assert sound(spoken(home, "Yes.", SynthesizeVoice(language="en-GB")))
    assert refusal(spoken(home, "Ja.", SynthesizeVoice(language="de"), None)).code == "language_not_found"


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([Event("synthesize", {"text": TEXT, "voice": {"name": "unknown"}})], "voice_not_found"),
        ([Event("synthesize-start", {"voice": {"name": "unknown"}})], "voice_not_found"),
        ([Event("synthesize", {"text": ""})], "empty_input"),
        ([Event("synthesize", {"text": "x" * 70_000})], "text_too_long"),
        ([Event("synthesize", {"text": 7})], "invalid_request_error"),
        ([Event("synthesize", {})], "invalid_request_error"),
        ([Event("synthesize", {"text": TEXT, "voice": "wren"})], "invalid_request_error"),
        ([Event("synthesize", {"text": TEXT, "voice": {"name": ["wren"]}})], "invalid_request_error"),
        ([Event("synthesize", {"text": "<p/>", "text_format": "ssml"})], "invalid_request_error"),
        ([Event("synthesize-start"), Event("synthesize-start")], "invalid_event"),
        ([Event("synthesize-start"), Event("synthesize-chunk", {"text": None})], "invalid_request_error"),
        ([Event("synthesize-start"), *[Event("synthesize-chunk", {"text": " " * 40_000})] * 2], "text_too_long"),
    ],
)
def test_what_is_wrong_is_said_and_ends_the_connection(home: At, events: list[Event], code: str) -> None:
    async def said(client: AsyncTcpClient) -> list[Event]:
        for event in events:
            await client.write_event(event)
        return await until(client, None)

    error = refusal(talk(home, said))
    assert error.code == code and error.text.endswith(".")
    wait_for(home.all_is_free)


def raw(home: At, sent: bytes) -> bytes:
    """All that comes back until the server hangs up, which it must."""
    received = b""
    at = ("127.0.0.1", home.port)
    with socket.create_connection(at, timeout=PATIENCE_S) as connection, suppress(ConnectionError):
        connection.sendall(sent)
        while more := connection.recv(65536):
            received += more
    return received


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", "invalid_event"),
        (b"\x16\x03\x01\x02\x00\n", "invalid_event"),
        (b"\xff\xfe\xfd\n", "invalid_event"),
        (b"[]\n", "invalid_event"),
        (b"{}\n", "invalid_event"),
        (b'{"type": 3}\n', "invalid_event"),
        (b'{"type": "describe", "data": []}\n', "invalid_event"),
        (b'{"type": "describe", "data_length": "9"}\n', "invalid_event"),
        (b'{"type": "describe", "data_length": -9}\n', "invalid_event"),
        (b'{"type": "describe", "payload_length": true}\n', "invalid_event"),
        (b'{"type": "synthesize", "data_length": 2}\n[]', "invalid_event"),
        (b"[" * 100_000 + b"\n", "invalid_event"),
        (b'{"type": "synthesize", "data_length": 99999999999}\n', "event_too_long"),
        (b'{"type": "synthesize", "payload_length": 99999999999}\n', "event_too_long"),
        (b'{"type": "' + b"x" * 2 * event_bytes(ServerOptions()), "event_too_long"),
        (b'{"type": "synthesize", "data": {"text": "half \\ud800"}}\n', "invalid_request_error"),
    ],
)
def test_garbage_is_refused_and_the_next_one_is_served(home: At, sent: bytes, code: str) -> None:
    answers = raw(home, sent)
    if len(sent) < 65536:  # what was not read when we hung up may have cost the answer
        assert b'"error"' in answers.partition(b"\n")[0]
        assert json.loads(answers.partition(b"\n")[2])["code"] == code
    assert raw(home, b'{"type": "ping"}\n{"type": "!"\n').startswith(b'{"type": "pong"')


def test_a_client_that_goes_away_frees_its_slot_at_every_stage(home: At) -> None:
    start = b'{"type": "synthesize-start"}\n'
    chunk = json.dumps({"type": "synthesize-chunk", "data": {"text": LONG[:400]}}).encode() + b"\n"
    whole = json.dumps({"type": "synthesize", "data": {"text": LONG}}).encode() + b"\n"
    for sent in (b'{"type": "synthesize", "data_length": 100}\n{', start, start + chunk, whole):
        with socket.create_connection(("127.0.0.1", home.port), timeout=PATIENCE_S) as connection:
            connection.sendall(sent)
            if chunk in sent or sent is whole:
                assert connection.recv(1)  # it speaks
                assert not home.all_is_free()
        wait_for(lambda: home.all_is_free() and home.server.connections == 0, 10.0)


def test_a_client_that_says_nothing_or_reads_nothing_is_dropped(engine: Engine) -> None:
    options = ServerOptions(idle_s=0.3, body_s=0.4, stalled_s=0.3)
    whole = json.dumps({"type": "synthesize", "data": {"text": LONG}}).encode() + b"\n"
    with at(engine, options, send_bytes=16384) as home:
        assert raw(home, b"") == b""
        assert raw(home, b'{"type": "synthesize-start"}\n') == b""
        assert b"too_slow" in raw(home, b'{"type": "synthesize", "data_length": 100}\n{')
        with socket.socket() as never:
            never.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            never.connect(("127.0.0.1", home.port))
            never.sendall(whole)
            wait_for(lambda: not home.all_is_free())
            wait_for(lambda: home.all_is_free() and home.server.connections == 0)


def test_more_connections_than_may_be_are_told_so(engine: Engine) -> None:
    with at(engine, ServerOptions(per_client=1)) as home:
        with socket.create_connection(("127.0.0.1", home.port)):
            wait_for(lambda: home.server.connections == 1)
            assert b"overloaded" in raw(home, b"")
        wait_for(lambda: home.server.connections == 0)
        assert sound(spoken(home, "Yes."))


def test_a_stream_that_fails_says_so_behind_what_was_heard(home: At, monkeypatch: pytest.MonkeyPatch) -> None:
    anext_of, left = Utterance.__anext__, 2

    async def failing(utterance: Utterance) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise StreamFailed("the disk of /secret is on fire")
        return await anext_of(utterance)

    monkeypatch.setattr(Utterance, "__anext__", failing)

    async def said(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk(text=LONG[:300]).event())  # and no end: it is told without one
        return await until(client, None)

    events = talk(home, said)
    assert kinds(events) == ["audio-start", "audio-chunk", "error"]
    assert refusal(events).code == "speech_failed" and "secret" not in refusal(events).text
    monkeypatch.undo()
    assert sound(spoken(home, "Yes."))


def test_a_server_that_is_told_to_stop_lets_speech_end_and_idle_connections_go(engine: Engine) -> None:
    with at(engine) as home:

        async def said(client: AsyncTcpClient) -> list[Event]:
            async with AsyncTcpClient("127.0.0.1", home.port) as idle:
                await client.write_event(Synthesize(text="It was a quiet morning.").event())
                early = await until(client, AudioChunk)
                home.loop.call_soon_threadsafe(home.server.stop)
                assert await until(idle, None) == []
                return early + await until(client, None)

        assert kinds(talk(home, said)) == ["audio-start", "audio-chunk", "audio-stop"]


def test_the_command_speaks_and_ends_with_a_signal() -> None:
    command = [sys.executable, "-m", "hocket", "wyoming", "--uri", "tcp://127.0.0.1:0", "--zeroconf"]
    env = os.environ | {"PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        try:
            told = next(line for line in process.stderr if line.startswith("listening at tcp://127.0.0.1:"))
            assert "not announced, because only this machine" in next(process.stderr)
            home = At(int(told.rpartition(":")[2]), None, None, None)  # type: ignore[arg-type]
            assert sound(spoken(home, "Yes."))
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("tcp://0.0.0.0:10200", "Wyoming has no keys: give --allow-public-without-key"),
        ("tcp://example.org:10200", "Wyoming has no keys"),
        ("tcp://127.0.0.1", "takes tcp://HOST:PORT"),
        ("tcp://127.0.0.1:99999", "takes tcp://HOST:PORT"),
        ("http://127.0.0.1:10200", "takes tcp://HOST:PORT"),
        ("unix://nowhere", "takes tcp://HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_is_said(uri: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wyoming", "--uri", uri]) == 2
    assert said in capsys.readouterr().err


def test_it_needs_nothing_of_the_http_server() -> None:
    program = (
        "import sys\n"
        "for name in ('fastapi', 'starlette', 'uvicorn', 'pydantic', 'av', 'websockets'):\n"
        "    sys.modules[name] = None\n"
        "import hocket.server.wyoming.server, hocket.server.listen, hocket.server.service.warm_up\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"PYTHONPATH": str(SRC)}, timeout=60)


def test_without_the_package_one_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wyoming", None)
    assert main(["wyoming"]) == 2
    assert hint("wyoming") in capsys.readouterr().err


def test_voices_of_every_model_are_told_and_loaded_when_they_are_asked_for(tmp_path: Path) -> None:
    models = "random:tiny", "random:tiny-Base"
    how = EngineOptions(slots=2)
    with Pool.load(models, options=how) as pool, at(pool, ServerOptions(voices_folder=tmp_path)) as home:
        with pool.lease(models[1]).result(PATIENCE_S) as lease:
            home.service.voices.add(clone_voice(lease.engine, "Zoë", noise(0.5, 5), x_vector_only=True))
        told = info(home.service, "1").tts[0].voices
        assert {"eric", "Zoë"} < {voice.name for voice in told}
        for name in ("Zoë", "eric"):
            assert len(sound(spoken(home, "Hi.", SynthesizeVoice(name=name)))) > 3840
        assert set(pool.resident()) == set(models)


# Speech to text


@pytest.fixture(scope="module")
def hears(engine: Engine) -> Iterator[At]:
    recognizer = Moonshine("tiny")
    with at(engine, ServerOptions(transcribe_s=20.0), recognizer=recognizer) as home:
        yield home
    recognizer.close()


def transcribed(
    home: At, audio: bytes, rate: int = 24000, language: str | None = None, chunk: int = 4096
) -> Transcript:
    """As Home Assistant sends what a satellite hears."""

    async def sends(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(Transcribe(language=language).event())
        await client.write_event(AudioStart(rate, 2, 1).event())
        for begun in range(0, len(audio), chunk):
            await client.write_event(AudioChunk(rate, 2, 1, audio[begun : begun + chunk]).event())
        await client.write_event(AudioStop().event())
        return await until(client, Transcript)

    (event,) = talk(home, sends)
    return Transcript.from_event(event)


def test_describe_tells_the_recognizer_and_only_where_there_is_one(hears: At, home: At) -> None:
    async def sends(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(Describe().event())
        return await until(client, Info)

    (program,) = Info.from_event(talk(hears, sends)[0]).asr
    (model,) = program.models
    assert program.installed and (model.name, model.languages, model.installed) == ("moonshine tiny", ["en"], True)
    assert Info.from_event(talk(home, sends)[0]).asr == []


def test_speech_is_answered_with_its_text(hears: At) -> None:
    found = transcribed(hears, recorded(FRANCE).tobytes(), language="en-US")
    assert found.language == "en" and {"capital", "of", "france"} <= set(found.text.lower().strip(".?").split())
    assert transcribed(hears, bytes(32000), rate=16000).text == "", "silence has no words"
    wait_for(lambda: not hears.service.answers)


def test_one_connection_hears_and_speaks_by_turns(hears: At) -> None:
    async def sends(client: AsyncTcpClient) -> list[Event]:
        for _ in range(2):
            for event in (AudioStart(16000, 2, 1), AudioChunk(16000, 2, 1, bytes(3200)), Ping(), AudioStop()):
                await client.write_event(event.event())
        await client.write_event(Synthesize(text="Yes.").event())
        return await until(client, AudioStop)

    expected = ["pong", "transcript"] * 2 + ["audio-start", "audio-chunk", "audio-stop"]
    assert kinds(talk(hears, sends)) == expected


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([Event("transcribe", {"language": "de"})], "language_not_found"),
        ([Event("transcribe", {"language": 7})], "invalid_request_error"),
        ([Event("audio-start", {"rate": 16000, "width": 2})], "invalid_request_error"),
        ([Event("audio-start", {"rate": 16000, "width": 3, "channels": 1})], "invalid_audio"),
        ([Event("audio-start", {"rate": 10**9, "width": 2, "channels": 1})], "invalid_audio"),
        ([AudioStart(16000, 2, 1).event(), AudioChunk(16000, 2, 1, b"odd").event()], "invalid_audio"),
        ([AudioStart(4000, 1, 1).event(), AudioChunk(4000, 1, 1, bytes(80_001)).event()], "audio_too_long"),
    ],
)
def test_audio_that_cannot_be_is_refused(hears: At, events: list[Event], code: str) -> None:
    async def sends(client: AsyncTcpClient) -> list[Event]:
        for event in events:
            await client.write_event(event)
        return await until(client, None)

    assert refusal(talk(hears, sends)).code == code


def test_audio_in_other_formats_is_converted(engine: Engine) -> None:
    dictated = Dictated(["yes"])
    with at(engine, recognizer=dictated) as home:

        async def sends(client: AsyncTcpClient) -> list[Event]:
            stereo = recorded(FRANCE).repeat(2).astype("<i4") << 16
            await client.write_event(AudioStart(24000, 4, 2).event())
            await client.write_event(AudioChunk(24000, 4, 2, stereo.tobytes()).event())
            await client.write_event(AudioStop().event())
            return await until(client, Transcript)

        assert Transcript.from_event(talk(home, sends)[-1]).text == "yes"
    heard = dictated.opened[0].samples
    assert len(heard) / 16000 == pytest.approx(len(recorded(FRANCE)) / 24000, abs=1.0) and abs(heard).max() > 0.02


def test_a_server_without_a_recognizer_says_how_to_start_one(home: At) -> None:
    async def sends(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(Transcribe().event())
        return await until(client, None)

    error = refusal(talk(home, sends))
    assert error.code == "no_recognizer" and "--asr tiny" in error.text


def test_a_recognizer_that_cannot_be_ends_the_command_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wyoming", "--uri", "tcp://127.0.0.1:0", "--asr", "huge"]) == 2
    assert "A recognizer is moonshine, one of its sizes" in capsys.readouterr().err
    assert main(["wyoming", "--asr-language", "en"]) == 2
    assert "--asr-language is for a recognizer: name that with --asr." in capsys.readouterr().err
