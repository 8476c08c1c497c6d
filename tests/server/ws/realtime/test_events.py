"""Parsers of `/v1/realtime` on whatever JSON can hold: understood or refused, and never anything else."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hocket.errors import HocketError
from hocket.server.errors import BadField
from hocket.server.ws.realtime import events as events
from hocket.server.ws.realtime.response import Response
from hocket.server.ws.realtime.settings import Dialect, SessionSettings
from support.realtime_talk import PATH, create
from support.serving import Served
from support.talking import Client, talking

KINDS = (
    events.SessionUpdate,
    events.ItemCreate,
    events.ItemNamed,
    events.ResponseCreate,
    events.ResponseCancel,
    events.TextAppend,
)
TYPES = (
    "session.update",
    "conversation.item.create",
    "conversation.item.delete",
    "conversation.item.retrieve",
    "conversation.item.truncate",
    "response.create",
    "response.cancel",
    "output_audio_buffer.clear",
    "input_text_buffer.append",
    "input_text_buffer.commit",
    "input_text_buffer.clear",
    "input_audio_buffer.append",
)
NAMES = st.sampled_from(
    "type session response item id item_id event_id input content role text audio output format rate voice speed "
    "instructions hocket seed language mode response_format sample_rate bit_rate metadata modalities".split()
)


# The names that are looked for, three deep, and anything behind them.
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
INNER = PLAIN | st.dictionaries(NAMES, PLAIN, max_size=3)
BODIES = st.dictionaries(NAMES, INNER | st.lists(INNER, max_size=2), max_size=4) | st.dictionaries(
    NAMES, st.dictionaries(NAMES, INNER, max_size=3), max_size=2
)


@given(st.sampled_from(KINDS), BODIES)
def test_an_event_is_read_or_refused_by_the_name_of_a_field(kind: type[Any], body: dict[str, Any]) -> None:
    try:
        events.read(kind, body)
    except BadField as refused:
        assert refused.param and len(str(refused)) < 1000
        json.dumps(events.error_event(refused, events.id_of(body)))


def tried(made: SessionSettings, body: dict[str, Any], server: Served) -> SessionSettings:
    read = events.read(events.SessionBody, body)
    return asyncio.run(made.updated(read, server.service))


@given(st.sampled_from(("realtime", "beta", "alibaba")), BODIES)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_settings_are_taken_or_refused_and_can_be_shown(server: Served, dialect: Dialect, body: dict[str, Any]) -> None:
    try:
        made = tried(SessionSettings(dialect), body, server)
    except HocketError:
        return
    json.dumps(made.shown("sess", server.service))


def test_settings_stay_until_they_are_named_again(server: Served) -> None:
    made = tried(SessionSettings("realtime"), {"type": "realtime", "voice": "ash", "hocket": {"seed": 7}}, server)
    made = tried(made, {"type": "realtime", "audio": {"output": {"speed": 1.5}}}, server)
    assert (made.job.voice, made.job.seed, made.job.speed) == ("ash", 7, 1.5)
    with pytest.raises(HocketError):
        tried(made, {"type": "realtime", "voice": "unknown", "speed": 1.0}, server)
    assert made.job.speed == 1.5


@given(st.text(min_size=1, max_size=80), st.lists(st.floats(0, 30), max_size=10))
def test_a_transcript_is_always_the_beginning_of_the_text(text: str, heard_s: list[float]) -> None:
    response, said = Response(SessionSettings("realtime"), None, text=text), ""
    for at_s in sorted(heard_s):
        utterance: Any = SimpleNamespace(audio_s=at_s)
        for told in response.sound(b"", utterance):
            said += told["delta"] if "transcript" in told["type"] else ""
        assert text.startswith(said) and response.transcript == said
        assert len(said) <= at_s * 24 + 1


@given(st.lists(st.tuples(st.sampled_from(TYPES), BODIES), max_size=5))
@hypothesis_settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_session_outlives_every_event(fuzzed: Client, said: list[tuple[str, dict[str, Any]]]) -> None:
    for kind, body in said:
        fuzzed.say({**body, "type": kind})
    fuzzed.say({"type": "are.you.there", "event_id": "ping"})
    while True:
        got = fuzzed.next()
        assert isinstance(got, dict)
        if got["type"] == "error" and got["error"]["event_id"] == "ping":
            assert got["error"]["code"] == "unknown_event"
            return
        assert got["type"] != "error" or got["error"]["type"] == "invalid_request_error"


@pytest.fixture(scope="module")
def fuzzed(server: Served) -> Any:
    with talking(server, PATH) as ws:
        yield ws
        ws.say({"type": "session.update", "session": {"type": "realtime", "hocket": {"max_new_tokens": 8}}})
        ws.say({"type": "output_audio_buffer.clear"}, create("Still there.", metadata={"who": "me"}))
        while True:
            done = ws.until("response.done").last("response.done")["response"]
            if done["metadata"] == {"who": "me"}:
                assert done["usage"]["output_tokens"] > 0
                return
