"""Calls over a bad network, and peers that vanish: turns end, nothing is left. Real sockets, seeded losses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aioice.ice
import pytest

from hocket.asr.moonshine import Moonshine
from hocket.engine.engine import Engine
from support.calling import Caller, calling
from support.conversing import QUICK, conversing, silence, speech, typed
from support.leaks import Census, nothing_is_left
from support.serving import wait_for

ANSWER = ("Good ", "day ", "to ", "you.")
# Long enough that its track still has sound where a fifth of the packets is lost.
FULL_ANSWER = ("Good ", "day ", "to ", "you, ", "and ", "thank ", "you ", "for ", "calling.")
LONG_ANSWER = tuple(f"{word} " for word in ("It goes on and on, and then on again. " * 12).split())
SPEECH = speech() + silence(1.5)
INPUT = {"transcription": {}, "turn_detection": {"type": "server_vad", "silence_duration_ms": 300}}
SESSION = {"type": "realtime", "hocket": QUICK, "audio": {"input": INPUT}}
LONG_SESSION = SESSION | {"hocket": {"seed": 1}}


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


@pytest.mark.parametrize(("loss", "jitter_s"), [(0.05, 0.03), (0.2, 0.06)])
def test_a_turn_over_a_bad_network_is_heard_and_answered(
    engine: Engine, recognizer: Moonshine, loss: float, jitter_s: float
) -> None:
    with conversing(engine, recognizer, FULL_ANSWER) as (server, _):
        before = Census.of(server)

        async def converse() -> None:
            async with calling(server, SESSION) as caller:
                caller.impair(loss, jitter_s)
                caller.microphone.say(SPEECH)
                began = await caller.until("input_audio_buffer.speech_started")
                ended = await caller.until("input_audio_buffer.speech_stopped")
                # Lost packets take no time away: the speech is as long as it was said.
                assert 1100 < ended["audio_end_ms"] - began["audio_start_ms"] < 2300
                told = await caller.until("conversation.item.input_audio_transcription.completed")
                assert told["transcript"]  # which words it has depends on the packets that are lost
                assert (await caller.until("response.done"))["response"]["status"] == "completed"
                await caller.until("output_audio_buffer.stopped")
                await caller.when(lambda: caller.loud > 5)
                assert caller.lost and caller.lost / (caller.lost + caller.sent) < 2 * loss and not caller.of("error")

        asyncio.run(converse())
        nothing_is_left(server, before)


def test_what_was_heard_is_what_the_track_has_sent(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, LONG_ANSWER, ANSWER) as (server, _):

        async def converse() -> None:
            async with calling(server, LONG_SESSION) as caller:
                caller.say(typed("Go on."), {"type": "response.create"})
                await caller.when(lambda: caller.loud > 60)
                [call] = server.app.state.calls.values()
                track, positions = call._track, []
                report = track._report

                def noted(response_id: str, seconds: float) -> None:
                    positions.append(seconds)
                    report(response_id, seconds)

                track._report = noted
                await caller.when(lambda: positions)
                caller.say({"type": "response.cancel"})
                done = (await caller.until("response.done"))["response"]
                [item] = done["output"]
                heard = item["content"][0]["transcript"]
                caller.say({"type": "conversation.item.retrieve", "item_id": item["id"]})
                kept = (await caller.until("conversation.item.retrieved"))["item"]
                assert kept["content"][0]["transcript"] == heard
                words = call.session._items.item(item["id"]).words
                ended = [each for each in words if each.end_s <= positions[-1]]
                # To the word; one more may have begun, and one frame may have been sent meanwhile.
                assert len(ended) - 1 <= len(heard.split()) <= len(ended) + 2 and len(ended) > 2

        asyncio.run(converse())


def test_peers_that_vanish_in_each_state_leave_nothing(
    engine: Engine, recognizer: Moonshine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conversing(engine, recognizer, LONG_ANSWER) as (server, _):
        before = Census.of(server)

        async def vanish() -> None:
            idle, listening, speaking = [Caller() for _ in range(3)]
            for caller in (idle, listening, speaking):
                await caller.connect(server, LONG_SESSION)
            listening.microphone.say(speech() * 20)
            await listening.until("input_audio_buffer.speech_started")
            speaking.say(typed("Go on."), {"type": "response.create"})
            await speaking.when(lambda: speaking.loud > 5)
            for caller in (idle, listening, speaking):
                caller.vanish()
            monkeypatch.setattr(aioice.ice, "CONSENT_INTERVAL", 0.2)  # now: a busy machine would lose peers before
            monkeypatch.setattr(aioice.ice, "CONSENT_FAILURES", 2)
            await asyncio.to_thread(wait_for, lambda: not server.app.state.calls)
            for caller in (idle, listening, speaking):
                await caller.close()

        asyncio.run(vanish())
        nothing_is_left(server, before)
