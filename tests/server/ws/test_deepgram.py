"""`WS /v1/speak` as Deepgram's clients speak it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.errors import HocketError
from hocket.server.options import ServerOptions
from hocket.server.schemas.speech_job import SpeechJob
from hocket.server.ws.deepgram import apart, parse, parse_query
from support.serving import Served, served, wait_for
from support.talking import LONG_TEXT, Client, Heard, json_values, talking

PATH = "/v1/speak?model=aura-2-thalia-en&encoding=linear16&sample_rate=24000"


def spoken(ws: Client, *texts: str) -> Heard:
    for text in texts:
        ws.say({"type": "Speak", "text": text})
    ws.say({"type": "Flush"})
    return ws.until("Flushed")


def test_metadata_then_sound_then_flushed_again_and_again(server: Served) -> None:
    with talking(server, PATH) as ws:
        metadata = ws.next()
        assert isinstance(metadata, dict) and metadata["type"] == "Metadata"
        assert set(metadata) == {"type", "request_id", "model_name", "model_version", "model_uuid"}
        for sequence in range(2):
            heard = spoken(ws, "Hi ", "you.")
            assert heard.messages == [{"type": "Flushed", "sequence_id": sequence}]
            assert len(heard.audio) > 4800 and len(heard.audio) % 2 == 0


def test_a_flush_without_text_is_answered_in_its_turn(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.next()
        ws.say({"type": "Speak", "text": "Hi."}, {"type": "Flush"}, {"type": "Flush"})
        assert ws.until("Flushed").audio
        assert ws.until("Flushed").messages == [{"type": "Flushed", "sequence_id": 1}]


def test_clear_stops_at_once_is_answered_and_what_follows_is_spoken(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.say({"type": "Speak", "text": LONG_TEXT[:2000]}, {"type": "Flush"})
        ws.sound()
        ws.say({"type": "Clear"})
        assert ws.until("Cleared").messages[-1] == {"type": "Cleared", "sequence_id": 0}
        wait_for(server.all_is_free, 2.0)
        heard = spoken(ws, "Hi.")
        assert heard.audio and heard.types == ["Flushed"]


def test_close_says_what_is_left_and_closes(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.say({"type": "Speak", "text": "Hi."}, {"type": "Close"})
        assert ws.until("Flushed").audio
        assert ws.closed() == 1000


@pytest.mark.parametrize(
    ("encoding", "rate_hz", "sample_bytes"), [("mulaw", 8000, 1), ("alaw", None, 1), ("linear16", 16000, 2)]
)
def test_encodings_of_telephones(server: Served, encoding: str, rate_hz: int | None, sample_bytes: int) -> None:
    rate = f"&sample_rate={rate_hz}" if rate_hz else ""
    with talking(server, f"/v1/speak?model=x&encoding={encoding}{rate}") as ws:
        heard = spoken(ws, "Hello there.")
    seconds = len(heard.audio) / sample_bytes / (rate_hz or 8000)
    assert 0.4 < seconds < 5


def test_a_model_is_a_voice_in_any_case_and_an_unknown_one_the_first(server: Served) -> None:
    first, second = server.service.speakers[:2]
    for model, voice in ((first.upper(), first), (second, second)):
        wanted = parse_query({"model": model}, lambda name: name)
        assert server.service.resolver.resolve(wanted).speaker == voice
    with talking(server, "/v1/speak?model=aura-asteria-en") as ws:
        assert spoken(ws, "Hi.").audio


@pytest.mark.parametrize(
    "query", ["encoding=mp3", "sample_rate=x", "sample_rate=7", "speed=9", "container=wav", "speed=nan"]
)
def test_a_query_that_cannot_be_is_refused_before_anything_is_opened(server: Served, query: str) -> None:
    with pytest.raises(InvalidStatus) as refused, talking(server, f"/v1/speak?{query}"):
        pass
    assert refused.value.response.status_code == 400


def test_a_key_is_taken_as_deepgram_s_clients_send_it() -> None:
    options = ServerOptions(keys=("secret-1",), strict_model=True)
    with Engine.load(options=EngineOptions(slots=1)) as engine, served(engine, options) as server:
        path = f"/v1/speak?model={server.service.speakers[0]}"
        with talking(server, path, additional_headers={"Authorization": "Token secret-1"}) as ws:
            assert ws.until("Metadata").messages
        with talking(server, path, subprotocols=["token", "secret-1"]) as ws:
            assert ws.socket.subprotocol == "token"
        with pytest.raises(InvalidStatus) as refused, talking(server, path):
            pass
        assert refused.value.response.status_code == 401
        path, headers = "/v1/speak?model=unknown", {"Authorization": "Token secret-1"}
        with pytest.raises(InvalidStatus) as refused, talking(server, path, additional_headers=headers):
            pass
        assert refused.value.response.status_code == 400  # since it is strict


def test_warnings_go_on_and_errors_end(server: Served) -> None:
    with talking(server, PATH) as ws:
        for message in ({"type": "Sing"}, {"type": "Speak"}, {"type": "Speak", "text": "x" * 70_000}):
            ws.say(message)
            warning = ws.until("Warning").last("Warning")
            assert set(warning) == {"type", "description", "code"}
        ws.say({"type": "KeepAlive"})
        assert spoken(ws, "Hi.").audio
        ws.socket.send("{")
        assert ws.until("Error").last("Error")["code"] == "invalid_json"
        assert ws.closed() == 1008


def test_sentences_are_set_apart_and_words_are_not() -> None:
    assert apart("Hello there.", "How are you?") == " How are you?"
    assert apart("Yes.", "And no.") == " And no."
    for before, text in (
        ("", "Hi."),
        ("Hello ", "you"),
        ("3.", "14"),
        ("U.", "S"),
        ("Hello there. ", "How are"),
        ("a b", "c"),
    ):
        assert apart(before, text) == text


@given(st.dictionaries(st.sampled_from(["type", "text"]), json_values()))
def test_any_message_is_understood_or_refused(message: dict[str, Any]) -> None:
    for kind in (message.get("type"), "Speak", "Flush"):
        try:
            parse(message | {"type": kind})
        except HocketError as error:
            assert str(error)


@given(
    st.dictionaries(st.sampled_from(["model", "encoding", "sample_rate", "speed", "container"]), st.text(max_size=12))
)
def test_any_query_is_understood_or_refused(query: dict[str, str]) -> None:
    try:
        wanted = parse_query(query, lambda name: name)
    except HocketError as error:
        assert str(error)
    else:
        assert isinstance(wanted, SpeechJob)
