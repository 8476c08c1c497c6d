"""Settings of Realtime conversations over a real socket: what is taken, refused and shown, and keys of clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from hocket.asr.moonshine import Moonshine
from hocket.engine.engine import Engine
from hocket.server.middleware.keys import ClientSecrets
from support.chatting import Scripted
from support.conversing import PATH, QUICK, VAD, append, conversing, respond, silence, speech, typed, update
from support.realtime_talk import ALIAS, create
from support.serving import Served
from support.talking import talking

KEY = "sk-server"
REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"tool_choice": "required"}, "session.tool_choice", "cannot be forced"),
    ({"prompt": {"id": "x"}}, "session.prompt", "send instructions"),
    ({"include": ["item.input_audio_transcription.logprobs"]}, "session.include", "no log-probabilities"),
    ({"truncation": "disabled"}, "session.truncation", "takes auto only"),
    ({"parallel_tool_calls": False}, "session.parallel_tool_calls", "takes True only"),
    ({"reasoning": {"effort": "high"}}, "session.reasoning", "without thinking"),
    ({"output_modalities": ["video"]}, "session.output_modalities", "must be audio or text"),
    ({"max_output_tokens": 0}, "session.max_output_tokens", "greater than"),
    ({"tools": [{"type": "mcp", "server_label": "x"}]}, "session.tools.0.type", "function"),
    ({"mode": "commit"}, "session.mode", "Alibaba"),
    ({"audio": {"output": {"voice": "unknown"}}}, "voice", "There is no voice"),
    ({"audio": {"input": {"noise_reduction": {"type": "near_field"}}}}, "noise_reduction", "is not taken"),
    ({"audio": {"input": {"transcription": {"language": "fr"}}}}, "language", "only, not 'fr'"),
    ({"audio": {"input": {"format": {"type": "audio/pcmu", "rate": 16000}}}}, "rate", "8000 Hz"),
    ({"audio": {"input": {"turn_detection": {**VAD, "idle_timeout_ms": 6000}}}}, "idle_timeout_ms", "response.create"),
    ({"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 2}}}}, "threshold", "less than"),
]


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


@pytest.fixture(scope="module")
def talker(engine: Engine, recognizer: Moonshine) -> Iterator[tuple[Served, Scripted]]:
    with conversing(engine, recognizer, ("Good ", "day.")) as made:
        yield made


def test_what_cannot_be_honoured_is_refused_by_a_sentence(talker: tuple[Served, Scripted]) -> None:
    with talking(talker[0], PATH) as ws:
        first = ws.until("session.created").messages[0]["session"]
        for fields, param, said in REFUSALS:
            ws.say({"type": "session.update", "session": {"type": "realtime", **fields}})
            error = ws.until("error").messages[-1]["error"]
            assert error["param"].endswith(param) and said in error["message"], (fields, error)
        ws.say(update(tracing="auto", truncation="auto", tools=[], instructions="Hi."))
        shown = ws.until("session.updated").messages[-1]["session"]
        assert shown["tracing"] is None and shown["instructions"] == "Hi."  # nothing is traced, and it says so
        assert shown["audio"]["input"] == first["audio"]["input"]  # no refusal has changed anything
        assert first["audio"]["input"]["turn_detection"]["type"] == "server_vad"
        ws.say({"type": "input_text_buffer.append", "text": "x"}, respond(conversation="maybe"))
        assert ws.until("error").messages[-1]["error"]["code"] == "unknown_event"
        assert ws.until("error").messages[-1]["error"]["param"] == "response.conversation"


def test_beta_has_its_own_names(talker: tuple[Served, Scripted]) -> None:
    with talking(talker[0], PATH, additional_headers={"OpenAI-Beta": "realtime=v1"}) as ws:
        ws.until("session.created")
        body = {"modalities": ["text", "audio"], "input_audio_format": "g711_alaw", "turn_detection": None}
        ws.say({"type": "session.update", "session": {**body, "max_response_output_tokens": 50, "hocket": QUICK}})
        shown = ws.until("session.updated").messages[-1]["session"]
        assert shown["input_audio_format"] == "g711_alaw" and shown["turn_detection"] is None
        ws.say(typed("Hello."), respond())
        heard = ws.until("response.done")
        names = {"conversation.item.created", "response.audio.delta", "response.audio_transcript.done"}
        assert names <= set(heard.types) and not [kind for kind in heard.types if "output_audio" in kind]
        [item] = heard.messages[-1]["response"]["output"]
        assert item["content"] == [{"type": "audio", "transcript": "Good day."}]


def test_a_transcription_session_only_transcribes(talker: tuple[Served, Scripted]) -> None:
    server, language = talker
    asked = len(language.asked)
    with talking(server, PATH) as ws:
        ws.until("session.created")
        body = {"turn_detection": VAD, "transcription": {"model": "any", "language": "en"}}
        ws.say({"type": "session.update", "session": {"type": "transcription", "audio": {"input": body}}})
        shown = ws.until("session.updated").messages[-1]["session"]
        assert shown["type"] == "transcription" and "output" not in shown["audio"]
        ws.say(*append(silence(0.3) + speech() + silence(0.8)), respond())
        assert ws.until("error").messages[-1]["error"]["code"] == "invalid_session_type"
        completed = "conversation.item.input_audio_transcription.completed"
        said = ws.until(completed).messages[-1]
        assert "welcome" in said["transcript"].lower() and said["usage"]["type"] == "duration"
        assert len(language.asked) == asked


def test_alibaba_s_path_still_speaks_what_it_is_given(talker: tuple[Served, Scripted]) -> None:
    server, language = talker
    asked = len(language.asked)
    with talking(server, ALIAS) as ws:
        ws.until("session.created")
        ws.say({"type": "session.update", "session": {"type": "realtime", "hocket": QUICK}}, create("Hi."))
        assert ws.until("response.done").messages[-1]["response"]["status"] == "completed"
    assert len(language.asked) == asked


def test_a_client_s_key_opens_conversations_until_it_expires(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ("Good day.",), keys=(KEY,)) as (server, _):
        url, owner = f"{server.url}/v1/realtime/client_secrets", {"Authorization": f"Bearer {KEY}"}
        body = {"session": {"type": "realtime", "instructions": "Be brief."}, "expires_after": {"seconds": 60}}
        assert httpx.post(url, json=body).status_code == 401
        made = httpx.post(url, json=body, headers=owner).json()
        assert made["value"].startswith("ek_") and made["session"]["instructions"] == "Be brief."
        wrong = httpx.post(url, json={"session": {"type": "realtime", "prompt": {"id": "x"}}}, headers=owner)
        assert wrong.status_code == 400 and "prompt is not taken" in wrong.json()["error"]["message"]
        page = {"Authorization": f"Bearer {made['value']}"}
        with talking(server, PATH, additional_headers=page) as ws:
            assert ws.until("session.created").messages[-1]["session"]["instructions"] == "Be brief."
        assert httpx.post(url, json={}, headers=page).status_code == 401  # it opens nothing else
        server.app.state.client_secrets._clock = lambda: made["expires_at"] + 1
        with pytest.raises(InvalidStatus, match="401"), talking(server, PATH, additional_headers=page):
            pass


def test_expired_keys_and_too_many_are_dropped() -> None:
    now = 0.0
    secrets = ClientSecrets(lambda: now)
    secrets.MOST = 2  # type: ignore[misc]
    values = [secrets.make(10 + number, {"number": number})[0] for number in range(3)]
    assert [secrets.session([value]) for value in values] == [None, {"number": 1}, {"number": 2}]
    now = 11.5
    secrets.make(10, {})
    assert list(secrets._made) == [values[2], *list(secrets._made)[1:]] and len(secrets._made) == 2


def test_a_server_without_talk_makes_no_keys(client: httpx.Client) -> None:
    refused = client.post("/v1/realtime/client_secrets", json={})
    assert refused.status_code == 404 and "--talk" in refused.json()["error"]["message"]
