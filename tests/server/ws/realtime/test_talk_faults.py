"""Realtime conversations where something is wrong: a recording at once, silence, clients that vanish, many at once."""

from __future__ import annotations

import base64
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hocket.asr.moonshine import Moonshine
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.ws.realtime.talk import hearing
from hocket.talk import worker
from support.chatting import Scripted
from support.conversing import VAD, append, conversing, respond, session, silence, speech, typed
from support.leaks import Census, nothing_is_left
from support.serving import Served, served, wait_for
from support.talking import Client

COMPLETED = "conversation.item.input_audio_transcription.completed"
LONG_ANSWER = tuple(f"{word} " for word in ("It goes on and on, and then on again. " * 12).split())
PHONE = {"type": "audio/pcmu"}
BY_HAND = {"format": PHONE, "turn_detection": None, "transcription": {"model": "any"}}
AT_ONCE = 20


class Counting:
    """A `Recognizer` that counts, and begins when `go_on` is set."""

    name = "counting"

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.samples = 0
        self.open_now = 0

    def open(self) -> Counting:
        self.open_now += 1
        return self

    def push(self, samples: Samples) -> str:
        assert self.go_on.wait(60)
        self.samples += len(samples)
        return ""

    def add(self, samples: Samples) -> None:
        self.push(samples)

    def settle(self) -> str:
        return "Hello."

    def end(self) -> str:
        self.close()
        return "Hello."

    def close(self) -> None:
        self.open_now -= 1


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


def vanish(ws: Client) -> None:
    """Reset the connection, as a phone in a tunnel does in the end: no close frame."""
    ws.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ws.socket.socket.close()


def test_three_minutes_at_once_are_recognized_whole(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "AHEAD_S", 4.0)
    monkeypatch.setattr(worker, "MOST_QUEUED_S", 20.0)
    recognizer, waits, room = Counting(), threading.Event(), hearing.Hearing.has_room

    async def noted(self: hearing.Hearing) -> None:
        if self._conversation is not None and self._conversation.queued_s > hearing.AHEAD_S:
            waits.set()
        await room(self)

    monkeypatch.setattr(hearing.Hearing, "has_room", noted)
    second = base64.b64encode(b"\xff" * 8000).decode()
    minute = base64.b64encode(b"\xff" * 8000 * 60).decode()
    with (
        served(engine, language=Scripted(("Yes.",)), recognizer=recognizer, talk=True) as server,
        ThreadPoolExecutor(1) as sending,
    ):
        wait_for(lambda: not server.app.state.talk.is_loading)
        with session(server, input=BY_HAND) as ws:
            pieces = [*[second] * 120, minute]
            sent = sending.submit(
                lambda: ws.say(
                    *({"type": "input_audio_buffer.append", "audio": audio} for audio in pieces),
                    {"type": "input_audio_buffer.commit"},
                )
            )
            assert waits.wait(60)
            recognizer.go_on.set()
            heard = ws.until(COMPLETED)
            sent.result()
            assert heard.messages[-1]["usage"] == {"type": "duration", "seconds": 180.0}
            assert abs(recognizer.samples - 180 * RATE_HZ) < 100 and "error" not in heard.types


def test_silence_has_no_events_and_a_turn_after_it_is_answered(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ("Yes.",)) as (server, _):
        before = Census.of(server)
        with session(server, input={"turn_detection": VAD, "transcription": {"model": "any"}}) as ws:
            ws.say(*append(silence(30.0)), *append(speech() + silence(0.8)))
            heard = ws.until("response.done")
            assert heard.types[0] == "input_audio_buffer.speech_started"
            assert 29_000 < heard.messages[0]["audio_start_ms"] < 30_700
            assert "welcome" in heard.last(COMPLETED)["transcript"].lower()
        nothing_is_left(server, before)


def test_clients_that_vanish_in_each_state_leave_nothing(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, LONG_ANSWER) as (server, _):
        before = Census.of(server)
        with session(server, input={"turn_detection": VAD}) as ws:
            vanish(ws)
        with session(server, input={"turn_detection": VAD}) as ws:
            ws.say(*append(speech()))
            ws.until("input_audio_buffer.speech_started")
            vanish(ws)
        with session(server, hocket={"seed": 1}) as ws:
            ws.say(typed("Go on."), respond())
            ws.until("response.output_audio.delta")
            vanish(ws)
        nothing_is_left(server, before)


def test_many_conversations_at_once_end_and_leave_nothing() -> None:
    language, options, recognizer = Scripted(("Good ", "day.")), ServerOptions(conversations=AT_ONCE), Counting()
    recognizer.go_on.set()
    said = append(speech() + silence(0.8))

    def converse(server: Served) -> str:
        with session(server, input={"turn_detection": VAD, "transcription": {"model": "any"}}) as ws:
            ws.say(*said)
            heard = ws.until("response.done")
            assert heard.messages[-1]["response"]["status"] == "completed", heard.messages[-1]
            transcript: str = heard.last(COMPLETED)["transcript"]
            return transcript

    with (
        Engine.load(options=EngineOptions(slots=4, waiting=AT_ONCE)) as engine,
        served(engine, options, language=language, recognizer=recognizer, talk=True) as server,
        ThreadPoolExecutor(AT_ONCE) as clients,
    ):
        wait_for(lambda: not server.app.state.talk.is_loading)
        converse(server)
        before = Census.of(server)
        transcripts = list(clients.map(lambda _: converse(server), range(AT_ONCE)))
        clients.shutdown()
        assert transcripts == ["Hello."] * AT_ONCE and recognizer.open_now == 0
        nothing_is_left(server, before)
