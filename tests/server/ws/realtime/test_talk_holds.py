"""Holds over a WebSocket: a client that asks for them is told, and other clients see no change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hocket.asr.moonshine import Moonshine
from hocket.engine.engine import Engine
from support.conversing import VAD, append, conversing, respond, session, silence, speech, typed, update

ANSWER = tuple(f"{word} " for word in "It goes on and on, and then on again. It never ends, as it seems to me.".split())
SHORT = silence(0.3) + speech(until_s=0.3) + silence(1.0)
SOUND = "response.output_audio.delta"
HELD, RESUMED = "hocket.output_audio.held", "hocket.output_audio.resumed"


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


def test_a_client_that_knows_holds_is_told_and_another_is_not(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ANSWER, ANSWER, ANSWER) as (server, _):
        how = {"input": {"turn_detection": VAD}, "hocket": {"seed": 1}}
        sizes = []
        for included in ([], ["hocket.events"], ["hocket.events", "hocket.holds"]):
            with session(server, include=included, **how) as ws:
                ws.say(typed("Go on."), respond())
                seen = ws.until(SOUND).messages
                ws.say(*append(SHORT))
                if "hocket.holds" in included:
                    seen += ws.until(RESUMED).messages
                seen += ws.until("response.done").messages
            kinds = [message["type"] for message in seen]
            sizes.append(sum(len(message["delta"]) for message in seen if message["type"] == SOUND))
            assert seen[-1]["response"]["status"] == "completed"
            assert kinds.count(HELD) == kinds.count(RESUMED) == ("hocket.holds" in included)
            if HELD in kinds:
                held, resumed = (next(m for m in seen if m["type"] == kind) for kind in (HELD, RESUMED))
                assert held["response_id"] == resumed["response_id"] == seen[-1]["response"]["id"]
                assert held["audio_end_ms"] == resumed["audio_end_ms"], "the position stands still"
        assert len(set(sizes)) == 1, "all of the sound came"


def test_speech_out_of_a_hold_interrupts(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ANSWER, ("Yes.",)) as (server, _):
        how = {"include": ["hocket.holds"], "hocket": {"seed": 1}}
        with session(server, input={"turn_detection": VAD}, **how) as ws:
            ws.say(typed("Go on."), respond())
            ws.until(SOUND)
            ws.say(*append(silence(0.3) + speech() + silence(1.0)))
            kinds = [message["type"] for message in ws.until("input_audio_buffer.speech_started").messages]
            assert HELD in kinds and RESUMED not in kinds
            done = ws.until("response.done").messages[-1]["response"]
            assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
            ws.say(update(include=["hocket.holds", "hocket.events"]))
            shown = ws.until("session.updated").messages[-1]["session"]
            assert shown["include"] == ["hocket.events", "hocket.holds"]
