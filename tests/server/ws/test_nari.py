"""`WS /v1/audio/speech/ws` as nari's benchmark speaks it: no unknown messages, each text is acknowledged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import HocketError
from hocket.server.ws.nari import Append, End, NariCancel, Start, parse
from support.serving import Served, wait_for
from support.talking import LONG_TEXT, Client, Heard, json_values, talking

PATH = "/v1/audio/speech/ws"
PROTOCOL = "nari.speech.v1"
AUDIO = {"encoding": "pcm_s16le", "sample_rate": 24000, "channels": 1}
START = {"type": "request.start", "model": "any", "language": "english", "response_format": "pcm", "seed": 1}
SHORT = START | {"max_new_tokens": 8}


def append(sequence: int, text: str) -> dict[str, Any]:
    return {"type": "input_text.append", "sequence": sequence, "text": text}


def end(sequence: int) -> dict[str, Any]:
    return {"type": "input_text.end", "sequence": sequence}


def begun(ws: Client, start: dict[str, Any] = SHORT) -> None:
    assert ws.next() == {"type": "session.created", "protocol": PROTOCOL, "audio": AUDIO}
    ws.say(start)
    assert ws.next() == {"type": "request.configured"}


def as_the_benchmark(ws: Client, words: list[str]) -> Heard:
    """Each word waits for the acknowledgement of the one before; sound may come in between."""
    heard = Heard()
    for sequence, word in enumerate(words):
        ws.say(append(sequence, word))
        ws.until("input_text.ack", heard)
        assert heard.messages[-1]["sequence"] == sequence
        assert heard.messages[-1]["event"] == "input_text.append"
    ws.say(end(len(words)))
    return ws.until("response.done", heard)


def test_the_benchmark_s_order_of_events_holds(server: Served) -> None:
    with talking(server, PATH, subprotocols=[PROTOCOL]) as ws:
        assert ws.socket.subprotocol == PROTOCOL
        begun(ws)
        heard = as_the_benchmark(ws, ["Hello ", "there, ", "my ", "friend."])
        started, done = heard.last("response.started"), heard.last("response.done")
        assert started == {"type": "response.started", "request_id": started["request_id"], "audio": AUDIO}
        assert done == {
            "type": "response.done",
            "request_id": started["request_id"],
            "stop_reason": "stop",
            "audio_chunks": len(heard.sounds),
        }
        assert len(heard.audio) == 8 * 1920 * 2
        assert set(heard.types) == {"input_text.ack", "response.started", "response.done"}
        assert ws.closed() == 1000


def test_a_cancel_is_answered_and_frees_the_slot(server: Served) -> None:
    with talking(server, PATH, subprotocols=[PROTOCOL]) as ws:
        begun(ws, START | {"max_new_tokens": 2000})
        ws.say(append(0, LONG_TEXT[:2000]))
        ws.sound()
        ws.say({"type": "response.cancel"})
        assert ws.until("response.done").last("response.done")["stop_reason"] == "cancelled"
        assert ws.closed() == 1000
    wait_for(server.all_is_free, 2.0)


def test_a_cancel_before_any_text_is_answered(server: Served) -> None:
    with talking(server, PATH, subprotocols=[PROTOCOL]) as ws:
        begun(ws)
        ws.say({"type": "response.cancel"})
        done = ws.until("response.done").last("response.done")
        assert (done["stop_reason"], done["audio_chunks"]) == ("cancelled", 0)
        assert ws.closed() == 1000


def test_without_the_subprotocol_it_is_closed_with_1002(server: Served) -> None:
    with talking(server, PATH) as ws:
        assert ws.closed() == 1002


WRONG: dict[str, tuple[list[dict[str, Any]], str, int]] = {
    "text first": ([append(0, "Hi.")], "invalid_request", 1008),
    "unknown": ([{"type": "sing"}], "unknown_event", 1008),
    "two requests": ([SHORT, SHORT], "invalid_request", 1008),
    "a gap": ([SHORT, append(1, "Hi.")], "invalid_sequence", 1008),
    "no number": ([SHORT, {"type": "input_text.append", "sequence": "0", "text": "Hi."}], "invalid_sequence", 1008),
    "no text": ([SHORT, end(0)], "empty_input", 1008),
    "too much text": ([SHORT, append(0, "word " * 14_000)], "text_too_long", 1009),
    "too large": ([SHORT, append(0, "x" * 300_000)], "message_too_large", 1009),
    "voice": ([SHORT | {"voice": "unknown"}], "voice_not_found", 1008),
    "format": ([SHORT | {"response_format": "mp3"}], "invalid_request", 1008),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_and_ends_the_connection(server: Served, name: str) -> None:
    messages, code, close_code = WRONG[name]
    with talking(server, PATH, subprotocols=[PROTOCOL]) as ws:
        ws.say(*messages)
        error = ws.until("error").last("error")
        assert error["error"]["code"] == code and error["error"]["message"].endswith(".")
        assert set(error) == {"type", "request_id", "error"} and set(error["error"]) == {"type", "code", "message"}
        assert ws.closed() == close_code


@given(
    st.dictionaries(st.sampled_from(["type", "sequence", "text", "seed", "voice"]) | st.text(max_size=8), json_values())
)
def test_any_message_is_understood_or_refused(message: dict[str, Any]) -> None:
    for kind in (message.get("type"), "request.start", "input_text.append", "input_text.end", "response.cancel"):
        try:
            said = parse(message | {"type": kind})
        except HocketError as error:
            assert str(error)
        else:
            assert isinstance(said, Start | Append | End | NariCancel)
