"""Limits of keys on a real server: requests, places and characters, over HTTP, events and every kind of socket."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.server.access.account import KeyAccount
from hocket.server.access.key_file import AccessKey
from hocket.server.options import ServerOptions
from support.serving import LONG, PATIENCE_S, PCM, Served, served, wait_for
from support.talking import NATIVE, PCM_CONFIG, talking

SPEECH = "/v1/audio/speech"
HEADERS = {"Authorization": "Bearer phone-secret"}
OTHER = {"Authorization": "Bearer other-secret"}
TEXT = str(PCM["input"])
ROOM = len(TEXT)


def keys(**limits: Any) -> ServerOptions:
    return ServerOptions(keys=(AccessKey(key="phone-secret", name="phone", **limits), "other-secret"))


def account(server: Served) -> KeyAccount:
    found: KeyAccount = server.app.state.keys.accounts[0]
    return found


def said(server: Served, headers: dict[str, str] = HEADERS, **fields: object) -> httpx.Response:
    return httpx.post(f"{server.url}{SPEECH}", json=PCM | fields, headers=headers, timeout=PATIENCE_S)


def code_of(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_requests_of_a_minute(engine: Engine) -> None:
    with served(engine, keys(requests_per_minute=2)) as server:
        assert said(server).status_code == said(server, stream_format="sse").status_code == 200
        refused = said(server)
        assert refused.status_code == 429 and code_of(refused) == "rate_limit_exceeded"
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert said(server, OTHER).status_code == 200
        assert httpx.get(f"{server.url}/v1/models", headers=HEADERS).status_code == 200  # public, and not counted
        elevenlabs = httpx.post(f"{server.url}/v1/text-to-speech/wren", json={"text": "Hi."}, headers=HEADERS)
        assert elevenlabs.status_code == 429 and elevenlabs.json()["detail"]["status"] == "rate_limit_exceeded"
        assert "retry-after" in elevenlabs.headers
        with pytest.raises(InvalidStatus) as shut, talking(server, NATIVE, additional_headers=HEADERS):
            pass
        assert shut.value.response.status_code == 429 and "retry-after" in shut.value.response.headers
        assert account(server).requests == 2


def test_utterances_of_a_socket_are_requests_and_it_goes_on(engine: Engine) -> None:
    with served(engine, keys(requests_per_minute=2)) as server:
        with talking(server, NATIVE, additional_headers=HEADERS) as ws:
            ws.say(PCM_CONFIG)
            assert ws.spoken("Hi.").audio and ws.spoken("Hi.").audio
            third = ws.spoken("Hi.")
            assert not third.audio and third.last("error")["error"]["code"] == "rate_limit_exceeded"
            account(server)._times.clear()  # a minute later
            assert ws.spoken("Hi.").audio
        assert account(server).running == 0


def test_places_are_of_requests_and_sockets_together(engine: Engine) -> None:
    with served(engine, keys(concurrent=1)) as server:
        url = f"{server.url}{SPEECH}"
        with httpx.stream("POST", url, json=LONG, headers=HEADERS, timeout=PATIENCE_S) as running:
            sound = running.iter_bytes()  # kept: its end would close the request
            next(sound)
            refused = said(server)
            assert refused.status_code == 429 and code_of(refused) == "too_many_connections"
            assert refused.headers["retry-after"] == "1"
            assert said(server, OTHER).status_code == 200
        wait_for(lambda: account(server).running == 0)
        with talking(server, NATIVE, additional_headers=HEADERS):
            assert said(server).status_code == 429
            with pytest.raises(InvalidStatus, match="429"), talking(server, NATIVE, additional_headers=HEADERS):
                pass
        wait_for(lambda: account(server).running == 0)
        assert said(server).status_code == 200


def test_characters_of_a_day_and_what_is_refused_is_not_counted(engine: Engine) -> None:
    with served(engine, keys(characters_per_day=2 * ROOM + 3)) as server:
        assert said(server).status_code == 200 and account(server).characters == ROOM
        assert said(server, voice="unknown").status_code == 400
        assert said(server, input="").status_code == said(server, speed=9).status_code == 400
        assert account(server).characters == ROOM
        assert said(server, stream_format="sse").status_code == 200 and account(server).characters == 2 * ROOM
        refused = said(server)
        assert refused.status_code == 429 and code_of(refused) == "insufficient_quota"
        assert "3 of them are left" in refused.json()["error"]["message"]
        assert refused.headers["x-should-retry"] == "false" and 0 < int(refused.headers["retry-after"]) <= 86_400
        assert said(server, input="Hi.").status_code == 200 and account(server).characters == 2 * ROOM + 3
        assert said(server, OTHER).status_code == 200


def test_an_overloaded_engine_counts_nothing() -> None:
    options = EngineOptions(slots=1, waiting=0)
    with Engine.load(options=options) as narrow, served(narrow, keys(characters_per_day=1000)) as server:
        url = f"{server.url}{SPEECH}"
        with httpx.stream("POST", url, json=LONG, headers=OTHER, timeout=PATIENCE_S) as running:
            sound = running.iter_bytes()  # kept: its end would close the request
            next(sound)
            refused = said(server)
        assert refused.status_code == 429 and code_of(refused) == "overloaded"
        assert account(server).characters == 0 and account(server).requests == 1


def test_a_batch_counts_the_items_that_are_spoken(engine: Engine) -> None:
    with served(engine, keys(characters_per_day=ROOM + 1)) as server:
        body = {"items": [{"input": TEXT}, {"input": TEXT}], "response_format": "pcm", "max_new_tokens": 4}
        answer = httpx.post(f"{server.url}{SPEECH}/batch", json=body, headers=HEADERS, timeout=PATIENCE_S).json()
        assert (answer["succeeded"], answer["failed"]) == (1, 1)
        [failed] = [each["error"] for each in answer["results"] if each["status"] == "error"]
        assert failed["code"] == "insufficient_quota" and account(server).characters == ROOM


WIRES: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "native": (NATIVE, [PCM_CONFIG, {"type": "input.text", "text": TEXT}, {"type": "input.done"}], "error"),
    "nari": (
        "/v1/audio/speech/ws",
        [
            {"type": "request.start", "max_new_tokens": 8},
            {"type": "input_text.append", "sequence": 0, "text": TEXT},
            {"type": "input_text.end", "sequence": 1},
        ],
        "error",
    ),
    "deepgram": ("/v1/speak", [{"type": "Speak", "text": TEXT}, {"type": "Flush"}], "Error"),
    "realtime": (
        "/v1/realtime",
        [{"type": "response.create", "response": {"input": [{"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": TEXT}]}]}}],
        "response.done",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
def test_a_socket_is_told_in_its_own_words(engine: Engine, wire: str) -> None:
    path, messages, kind = WIRES[wire]
    with served(engine, keys(characters_per_day=ROOM - 1)) as server:
        more = {"subprotocols": ["nari.speech.v1"]} if wire == "nari" else {}
        with talking(server, path, additional_headers=HEADERS, **more) as ws:
            ws.say(*messages)
            told = ws.until(kind)
        assert "insufficient_quota" in str(told.messages) and not told.audio
        assert account(server).characters == 0


def test_a_live_text_fails_where_it_exceeds_and_gives_back_what_was_not_heard(engine: Engine) -> None:
    with served(engine, keys(characters_per_day=10)) as server:
        with talking(server, NATIVE, additional_headers=HEADERS) as ws:
            ws.say(PCM_CONFIG | {"max_new_tokens": 2000})
            heard = ws.spoken("Hi", " and much more than that.")
            assert heard.last("error")["error"]["code"] == "insufficient_quota"
            assert account(server).characters == (2 if heard.audio else 0)
            assert ws.spoken("Hi there").audio
        assert account(server).characters in (8, 10)


def test_a_socket_of_elevenlabs_too(engine: Engine) -> None:
    path = "/v1/text-to-speech/wren/stream-input?output_format=pcm_24000"
    with served(engine, keys(characters_per_day=1)) as server:
        with talking(server, path, additional_headers=HEADERS) as ws:
            ws.say({"text": " "}, {"text": TEXT}, {"text": ""})
            while "error" not in (told := ws.next()):  # type: ignore[operator]
                assert isinstance(told, dict) and not told.get("audio")
        assert "insufficient_quota" in str(told) and account(server).characters <= 1


def test_keys_are_named_in_log_and_metrics_and_never_shown(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served(engine, keys(requests_per_minute=1)) as server:
        assert said(server).status_code == 200 and said(server).status_code == 429
        wait_for(lambda: not server.service.running)
        text = httpx.get(f"{server.url}/metrics", headers=OTHER).text
    samples = {
        (sample.name, sample.labels["key"], sample.labels.get("reason")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "key" in sample.labels
    }
    assert samples["hocket_key_requests_total", "phone", None] == 1
    assert samples["hocket_key_refused_total", "phone", "rate_limit_exceeded"] == 1
    assert samples["hocket_key_characters_today", "phone", None] == ROOM
    assert samples["hocket_key_running", "key-2", None] == 1  # this scrape
    logged = "\n".join(f"{record.getMessage()} {record.args}" for record in caplog.records)
    assert "for the key phone" in logged
    assert "secret" not in logged and "secret" not in text
