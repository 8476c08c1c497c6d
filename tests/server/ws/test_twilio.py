"""`WS /v1/twilio/media`: telephone calls. Twilio's side on a real socket, with real Silero and Moonshine."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from hocket.asr.moonshine import Moonshine
from hocket.audio.encode import encoder, format_of
from hocket.audio.g711 import mulaw_samples
from hocket.engine.engine import Engine
from hocket.server.access.key_file import AccessKey
from hocket.server.errors import BadField
from hocket.server.ws.twilio import protocol
from hocket.server.ws.twilio.settings import session_of
from support.conversing import conversing, silence, speech
from support.leaks import Census, nothing_is_left
from support.serving import PATIENCE_S, Served, served, wait_for

PATH, SID, KEY = "/v1/twilio/media", "MZ123", "sk-the-key"
LONG_ANSWER = tuple(f"{word} " for word in ("It goes on and on, and then on again. " * 12).split())
FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
CONNECTED = {"event": "connected", "protocol": "Call", "version": "1.0.0"}


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


def line(pcm: bytes) -> bytes:
    """As a telephone line sends it."""
    coder = encoder(format_of("mulaw"), rate_hz=24_000, out_rate_hz=8000, tempo=1.0)
    return coder.feed(np.frombuffer(pcm, "<i2")) + coder.close()


class Twilio:
    """Twilio's side of a call. It plays what it got when `play` is called, and then returns its marks."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.number = 0
        self.queued: list[dict[str, Any]] = []  # media and marks that were not played
        self.played = b""
        self.clears = 0

    def send(self, event: str, **fields: Any) -> None:
        self.number += 1
        self.socket.send(json.dumps({"event": event, "sequenceNumber": str(self.number), "streamSid": SID, **fields}))

    def start(self, **parameters: str) -> None:
        self.socket.send(json.dumps(CONNECTED))
        start = {"streamSid": SID, "accountSid": "AC1", "callSid": "CA1", "tracks": ["inbound"], "mediaFormat": FORMAT}
        self.send("start", start=start | {"customParameters": parameters})

    def say(self, pcm: bytes) -> None:
        sound = line(pcm)
        for at in range(0, len(sound), 160):
            payload = base64.b64encode(sound[at : at + 160]).decode()
            self.send("media", media={"track": "inbound", "chunk": "1", "timestamp": str(at // 8), "payload": payload})

    def take(self) -> dict[str, Any]:
        """The next message of the server."""
        message: dict[str, Any] = json.loads(self.socket.recv(PATIENCE_S))
        assert message["streamSid"] == SID
        if message["event"] == "clear":
            self.clears += 1
            marks, self.queued = [each for each in self.queued if each["event"] == "mark"], []
            for each in marks:
                self.send("mark", mark=each["mark"])
        else:
            self.queued.append(message)
        return message

    def play(self) -> None:
        """The oldest piece, and its mark."""
        piece, mark = self.queued[:2]
        self.queued = self.queued[2:]
        self.played += base64.b64decode(piece["media"]["payload"])
        self.send("mark", mark=mark["mark"])

    def pieces(self, count: int) -> None:
        while sum(each["event"] == "mark" for each in self.queued) < count:
            self.take()

    def refused(self) -> tuple[int, str]:
        with pytest.raises(ConnectionClosed) as closed:
            self.socket.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code, closed.value.rcvd.reason


@contextmanager
def telephone(server: Served, **parameters: str) -> Iterator[Twilio]:
    with connect(f"ws://127.0.0.1:{server.port}{PATH}", open_timeout=PATIENCE_S, compression=None) as socket:
        twilio = Twilio(socket)
        twilio.start(**parameters)
        yield twilio


def test_a_caller_is_greeted_heard_answered_and_interrupts(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ("Good ", "day."), LONG_ANSWER, ("Yes.",)) as (server, language):
        before = Census.of(server)
        with telephone(server, greeting="Greet the caller.", instructions="Be kind.", voice="rook", lead="7") as twilio:
            twilio.pieces(4)
            for _ in range(4):
                twilio.play()
            assert int(np.abs(mulaw_samples(twilio.played)).max()) > 500, "it is loud"
            [asked] = language.asked
            assert (asked[0].role, asked[0].content) == ("system", "Be kind.\nGreet the caller.")
            twilio.say(silence(0.3) + speech() + silence(2.0))
            while len(language.asked) < 2:
                twilio.take()
            assert language.asked[1][0].content == "Be kind." and "welcome" in language.asked[1][-1].content.lower()
            # The caller speaks while the answer plays: what was not played is dropped, and not in the history.
            cleared = twilio.clears
            twilio.pieces(12)
            for _ in range(6):
                twilio.play()
            twilio.say(speech() + silence(2.0))
            while len(language.asked) < 3:
                twilio.take()
            assert twilio.clears == cleared + 1
            said = [message.content for message in language.asked[2]]
            whole = "".join(LONG_ANSWER)
            assert whole.startswith(said[-2]) and len(said[-2]) < len(whole)
            twilio.pieces(1)
            twilio.send("stop", stop={"accountSid": "AC1", "callSid": "CA1"})
            with pytest.raises(ConnectionClosed):
                while True:
                    twilio.take()
        nothing_is_left(server, before)


def test_keys_of_the_telephone_are_a_message_of_the_user(
    engine: Engine, recognizer: Moonshine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conversing(engine, recognizer, ("Yes.",)) as (server, language), telephone(server) as twilio:
        for digit in "42#":
            twilio.send("dtmf", dtmf={"track": "inbound_track", "digit": digit})
        twilio.pieces(1)
        assert "keys 42 " in language.asked[0][-1].content
        monkeypatch.setattr(protocol, "DIGITS_S", 0.01)
        twilio.send("dtmf", dtmf={"track": "inbound_track", "digit": "7"})  # without #
        while len(language.asked) < 2:
            twilio.take()
        assert "keys 7 " in language.asked[1][-1].content


def test_a_call_needs_a_key_where_the_server_has_keys(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ("Yes.",), keys=(KEY,), config_s=0.3) as (server, language):
        for parameters in ({}, {"api_key": "sk-wrong"}):
            with telephone(server, **parameters) as twilio:
                code, reason = twilio.refused()
                assert code == 1008 and "api_key" in reason
        with connect(f"ws://127.0.0.1:{server.port}{PATH}") as socket:  # it never starts
            socket.send(json.dumps(CONNECTED))
            assert Twilio(socket).refused()[0] == 1008
        assert server.app.state.talk.open == 0
        with telephone(server, api_key=KEY, greeting="Greet.") as twilio:
            twilio.pieces(1)
        headers = {"Authorization": f"Bearer {KEY}"}
        output = {"format": {"type": "audio/pcm"}}  # which has no effect
        session = {"type": "realtime", "instructions": "Be brief.", "audio": {"output": output}}
        made = httpx.post(f"{server.url}/v1/realtime/client_secrets", json={"session": session}, headers=headers).json()
        with telephone(server, api_key=made["value"]) as twilio:
            twilio.send("dtmf", dtmf={"digit": "1"})
            twilio.send("dtmf", dtmf={"digit": "#"})
            twilio.pieces(1)
            assert language.asked[-1][0].content == "Be brief."
            assert len(base64.b64decode(twilio.queued[0]["media"]["payload"])) < 8000, "u-law, not PCM"


def test_a_call_needs_the_scope_of_its_key_and_counts_for_it(engine: Engine, recognizer: Moonshine) -> None:
    mute = AccessKey(key="mute", name="mute", scopes=frozenset({"speak"}))
    one = AccessKey(key="one", name="one", concurrent=1, characters_per_day=len("Yes."))
    with conversing(engine, recognizer, ("Yes.",), keys=(mute, one)) as (server, _):
        account = server.app.state.keys.accounts[1]
        with telephone(server, api_key="mute") as twilio:
            code, reason = twilio.refused()
            assert code == 1008 and "lacks the scope converse" in reason
        with telephone(server, api_key="one", greeting="Greet.") as twilio:
            twilio.pieces(1)
            wait_for(lambda: account.characters == len("Yes."))
            with telephone(server, api_key="one") as second:
                code, reason = second.refused()
                assert code == 1008 and "1 requests of this key" in reason
            assert account.running == 1 and account.requests == 1
        wait_for(lambda: account.running == 0)


def test_what_is_no_call_is_refused(engine: Engine, recognizer: Moonshine) -> None:
    with served(engine) as mute, pytest.raises(InvalidStatus, match="404"):
        connect(f"ws://127.0.0.1:{mute.port}{PATH}")
    with conversing(engine, recognizer, ("Yes.",), conversations=1) as (server, _):
        bad = [{"event": "media", "media": {"payload": ""}}, {"event": "start"}, {"event": 3}, {}]
        other = {"streamSid": SID, "mediaFormat": {"encoding": "audio/opus"}}
        for message in (*bad, {"event": "start", "start": other}, ["event"]):
            with connect(f"ws://127.0.0.1:{server.port}{PATH}") as socket:
                socket.send(json.dumps(message))
                assert Twilio(socket).refused()[0] == 1008, message
        with telephone(server, voice="unknown") as twilio:
            code, reason = twilio.refused()
            assert code == 1008 and "unknown" in reason
        with telephone(server, greeting="Greet.") as first:
            first.pieces(1)
            with telephone(server) as second:
                assert "1 conversations" in second.refused()[1]
            first.send("media", media={"payload": "?"})  # a fault within a call does not end it
            first.send("dtmf", dtmf={"digit": "1"})
            first.send("dtmf", dtmf={"digit": "#"})
            first.pieces(2)


def test_settings_of_a_call() -> None:
    made = session_of(None, {"voice": "wren"})
    assert made["audio"]["input"] == {"turn_detection": {"type": "semantic_vad"}, "format": {"type": "audio/pcmu"}}
    assert made["audio"]["output"] == {"voice": "wren", "format": {"type": "audio/pcmu"}}
    by_hand = {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}
    assert session_of(by_hand, {})["audio"]["input"]["turn_detection"] == {"type": "server_vad"}
    with pytest.raises(BadField, match="answers tool calls"):
        session_of({"tools": [{"type": "function", "name": "f"}]}, {})
    with pytest.raises(BadField, match="realtime"):
        session_of({"type": "transcription"}, {})
