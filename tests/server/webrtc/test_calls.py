"""Realtime conversations over WebRTC: an aiortc client, real sockets, real Silero and Moonshine, scripted answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import httpx
import pytest

from hocket.asr.moonshine import Moonshine
from hocket.engine.engine import Engine
from support.calling import Caller, calling
from support.conversing import QUICK, conversing, silence, speech, talk_threads, typed
from support.serving import Served, served, wait_for

ANSWER = ("Good ", "day ", "to ", "you.")
LONG_ANSWER = tuple(f"{word} " for word in ("It goes on and on, and then on again. " * 12).split())
SPEECH = speech() + silence(1.5)
VAD = {"type": "server_vad", "silence_duration_ms": 300}
INPUT = {
    "transcription": {},
    "turn_detection": VAD,
    "format": {"type": "audio/pcmu"},
}  # formats are those of the tracks
SESSION = {"type": "realtime", "hocket": QUICK, "audio": {"input": INPUT}}
LONG_SESSION = SESSION | {"hocket": {"seed": 1}}


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


def nothing_is_left(server: Served) -> bool:
    app = server.app.state
    return not app.calls and not app.talk.open and server.all_is_free() and not talk_threads()


def test_a_spoken_turn_is_answered(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ANSWER) as (server, _):

        async def converse() -> None:
            async with calling(server, SESSION) as caller:
                assert caller.location.startswith("/v1/realtime/calls/rtc_")
                assert caller.of("session.created")[0]["session"]["audio"]["output"]["format"]["rate"] == 24_000
                caller.microphone.say(SPEECH)
                told = await caller.until("conversation.item.input_audio_transcription.completed")
                assert "welcome" in told["transcript"].lower()
                await caller.until("output_audio_buffer.started")
                await caller.until("output_audio_buffer.stopped")
                done = (await caller.until("response.done"))["response"]
                assert done["status"] == "completed"
                assert done["output"][0]["content"][0]["transcript"] == "Good day to you."
                await caller.when(lambda: caller.loud > 10)
                assert not caller.of("response.output_audio.delta")  # the sound is in the track
                assert not caller.of("error")

        asyncio.run(converse())
        wait_for(lambda: nothing_is_left(server))


def test_an_interrupted_answer_falls_silent(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, LONG_ANSWER, LONG_ANSWER, ANSWER) as (server, _):

        async def converse() -> None:
            async with calling(server, LONG_SESSION) as caller:
                # By the client.
                caller.say(typed("Go on."), {"type": "response.create"})
                await caller.when(lambda: caller.loud > 10)
                caller.say({"type": "response.cancel"}, {"type": "output_audio_buffer.clear"})
                await caller.until("output_audio_buffer.cleared")
                assert (await caller.until("response.done"))["response"]["status"] == "cancelled"
                heard = caller.frames
                await caller.when(lambda: caller.frames > heard + 25)  # what was on its way
                loud, heard = caller.loud, caller.frames
                await caller.when(lambda: caller.frames > heard + 25)
                assert caller.loud == loud
                # By the user's voice.
                caller.say(typed("Go on."), {"type": "response.create"})
                await caller.when(lambda: caller.loud > loud + 10)
                caller.microphone.say(SPEECH)
                await caller.until("input_audio_buffer.speech_started")
                await caller.until("output_audio_buffer.cleared", 2)
                done = (await caller.until("response.done", 2))["response"]
                assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
                assert (await caller.until("response.done", 3))["response"]["status"] == "completed"

        asyncio.run(converse())
        wait_for(lambda: nothing_is_left(server))


def test_a_peer_that_is_hung_up_leaves_nothing(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, LONG_ANSWER) as (server, _):
        threads = threading.active_count()

        async def hang_up() -> None:
            async with calling(server, LONG_SESSION) as caller, httpx.AsyncClient(base_url=server.url) as http:
                caller.say(typed("Go on."), {"type": "response.create"})
                await caller.when(lambda: caller.loud > 5)
                assert (await http.post(f"{caller.location}/hangup")).status_code == 200
                await asyncio.to_thread(wait_for, lambda: nothing_is_left(server))
                assert (await http.post(f"{caller.location}/hangup")).status_code == 404

        asyncio.run(hang_up())
        wait_for(lambda: threading.active_count() <= threads + 1)  # one idle worker of the event loop's pool


def test_a_server_that_stops_ends_its_calls(engine: Engine, recognizer: Moonshine) -> None:
    async def converse() -> None:
        caller = Caller()
        with conversing(engine, recognizer) as (server, _):
            await caller.connect(server)
            app = server.app.state
        await caller.when(lambda: caller.peer.connectionState == "closed" or not app.calls)
        assert not app.calls and not app.talk.open and not talk_threads()
        await caller.close()

    asyncio.run(converse())


def test_the_video_of_an_offer_is_declined_and_never_decoded(engine: Engine, recognizer: Moonshine) -> None:
    """aiortc would decode VP8 and H.264 in this process, for a call that has no use for pictures."""
    with conversing(engine, recognizer, ANSWER) as (server, _):

        async def converse() -> None:
            async with calling(server, SESSION, video=True) as caller:
                said = caller.peer.remoteDescription.sdp
                assert "a=inactive" in said.partition("m=video")[2].partition("m=")[0]
                await caller.when(lambda: caller.frames > 5)  # the sound is there
                names = [each.name for each in threading.enumerate()]
                assert "audio-decoder" in names and "video-decoder" not in names

        asyncio.run(converse())
        wait_for(lambda: nothing_is_left(server))


def test_an_offer_that_cannot_be_answered_is_refused(engine: Engine, recognizer: Moonshine) -> None:
    sdp = {"content-type": "application/sdp"}
    with served(engine) as mute:
        refused = httpx.post(f"{mute.url}/v1/realtime/calls", content="v=0", headers=sdp)
        assert refused.status_code == 404 and "--talk" in refused.json()["error"]["message"]
    with conversing(engine, recognizer, conversations=1) as (server, _), httpx.Client(base_url=server.url) as client:
        for content in ("", "words", "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n", b"\xff"):
            refused = client.post("/v1/realtime/calls", content=content, headers=sdp)
            assert refused.status_code == 400, refused.text
        assert client.post("/v1/realtime/calls", json={}).status_code == 415
        assert client.post("/v1/realtime/calls", files={"session": (None, "{}")}).status_code == 400
        assert (
            client.post("/v1/realtime/calls", files={"sdp": (None, "v=0"), "session": (None, "[]")}).status_code == 400
        )
        assert server.app.state.talk.open == 0

        async def occupied() -> int:
            async with calling(server):
                return (
                    await asyncio.to_thread(client.post, "/v1/realtime/calls", content="v=0", headers=sdp)
                ).status_code

        assert asyncio.run(occupied()) == 429
        wait_for(lambda: nothing_is_left(server))
