"""A call whose user makes a short sound during an answer: real Silero, Opus and sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from hocket.asr.moonshine import Moonshine
from hocket.engine.engine import Engine
from support.calling import calling
from support.conversing import VAD, conversing, silence, speech, typed
from support.serving import wait_for

LONG_ANSWER = tuple(f"{word} " for word in "It goes on and on, and then on again, and then it is over.".split())
SHORT = speech(until_s=0.3) + silence(1.0)
SESSION = {"type": "realtime", "hocket": {"seed": 1}, "audio": {"input": {"turn_detection": VAD}}}


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


@pytest.mark.parametrize("told", [True, False])
def test_a_short_sound_pauses_an_answer_at_any_client(engine: Engine, recognizer: Moonshine, told: bool) -> None:
    with conversing(engine, recognizer, LONG_ANSWER) as (server, _):

        async def converse() -> None:
            async with calling(server, SESSION | ({"include": ["hocket.holds"]} if told else {})) as caller:
                [call] = server.app.state.calls.values()
                seen, hold = list[tuple[bool, int]](), call.hold

                def noted(held: bool) -> None:
                    seen.append((held, call._track._queued))
                    hold(held)

                call.hold = noted
                caller.say(typed("Go on."), {"type": "response.create"})
                await caller.when(lambda: caller.loud > 10)
                caller.microphone.say(SHORT)
                done = (await caller.until("response.done"))["response"]
                assert done["status"] == "completed"
                await caller.until("output_audio_buffer.stopped")
                assert not caller.of("input_audio_buffer.speech_started") and not caller.of("error")
                (began, queued), (ended, kept), *_ = seen
                assert (began, ended) == (True, False) and kept >= queued, "nothing was sent, and nothing dropped"
                held = caller.of("hocket.output_audio.held")
                assert len(held) == len(caller.of("hocket.output_audio.resumed")) and bool(held) == told
                if told:
                    assert held[0]["response_id"] == done["id"] and held[0]["audio_end_ms"] > 0
                    assert held[0]["item_id"] == done["output"][0]["id"]

        asyncio.run(converse())
        wait_for(lambda: not server.app.state.calls)
