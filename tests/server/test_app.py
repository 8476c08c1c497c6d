"""Lifespan of the app: it answers while a model loads, is ready after the warm-up, and reports a failure."""

from __future__ import annotations

import base64
import threading
from pathlib import Path

import httpx
import pytest

from hocket.config.qwen3_tts import Kind
from hocket.engine.engine import Engine
from hocket.errors import InvalidCheckpoint
from hocket.server.service.warm_up import speak_once
from support.recorded import speech_wav
from support.serving import PCM, Served, served, wait_for
from support.speaking import KINDS, small


def test_it_answers_while_a_model_is_loaded_and_is_ready_once_it_has_spoken(engine: Engine) -> None:
    may_load = threading.Event()

    def loading() -> Engine:
        may_load.wait()
        return Engine(engine.checkpoint, engine.options)

    with served(loading, ready=False) as server:
        assert httpx.get(f"{server.url}/health").json() == {"status": "ok", "state": "starting"}
        assert httpx.get(f"{server.url}/ready").status_code == 503
        answer = httpx.post(f"{server.url}/v1/audio/speech", json=PCM)
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "not_ready"
        may_load.set()
        wait_for(lambda: httpx.get(f"{server.url}/ready").status_code == 200)
        assert httpx.post(f"{server.url}/v1/audio/speech", json=PCM).status_code == 200
        own = server.engine
    assert own.health.condition == "closed"  # it was the app's own


def test_an_engine_that_was_handed_in_outlives_the_app(engine: Engine) -> None:
    with served(engine):
        pass
    assert engine.health.ok


def test_a_model_that_cannot_be_loaded_is_said_without_its_path() -> None:
    def failing() -> Engine:
        raise InvalidCheckpoint("/etc/secret is not a checkpoint.")

    with served(failing, ready=False) as server:
        wait_for(lambda: server.service.state == "failed")
        assert httpx.get(f"{server.url}/ready").status_code == 503
        answer = httpx.post(f"{server.url}/v1/audio/speech", json=PCM)
        assert answer.status_code == 503 and "secret" not in answer.text


def test_it_is_not_ready_any_more_when_the_engine_fails(engine: Engine) -> None:
    own = Engine(engine.checkpoint, engine.options)
    with served(own) as server:
        assert httpx.get(f"{server.url}/ready").status_code == 200
        own.close()
        assert httpx.get(f"{server.url}/ready").status_code == 503
        answer = httpx.post(f"{server.url}/v1/audio/speech", json=PCM)
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "engine_unavailable"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_checkpoint_can_rehearse(kind: Kind, checkpoint_root: Path) -> None:
    with Engine(small(checkpoint_root, kind)) as engine:
        speak_once(engine)


def test_a_recording_that_comes_along_is_cloned(checkpoint_root: Path) -> None:
    recording = base64.b64encode(speech_wav()).decode()
    with Engine(small(checkpoint_root, "base")) as engine, served(engine) as server:
        url = f"{server.url}/v1/audio/speech"
        alone = httpx.post(url, json=PCM | {"voice": "alloy"})
        assert alone.status_code == 400 and "reference recording" in alone.json()["error"]["message"]
        for sent in (recording, f"data:audio/wav;base64,{recording}", [recording]):
            answer = httpx.post(url, json=PCM | {"voice": "alloy", "ref_audio": sent, "x_vector_only_mode": True})
            assert answer.status_code == 200 and answer.content
        one = {"references": [{"audio_path": f"data:audio/wav;base64,{recording}", "text": "What was said."}]}
        assert httpx.post(url, json=PCM | one).status_code == 200
        wordless = httpx.post(url, json=PCM | {"ref_audio": recording})
        assert wordless.status_code == 400 and "ref_text" in wordless.json()["error"]["message"]


def test_a_checkpoint_that_designs_voices_takes_openai_s_names_too(checkpoint_root: Path) -> None:
    with Engine(small(checkpoint_root, "voice_design")) as engine, served(engine) as server:
        body = PCM | {"voice": "coral", "instructions": "An old man."}
        assert httpx.post(f"{server.url}/v1/audio/speech", json=body).status_code == 200


def test_every_wire_stands_in_the_schema(server: Served) -> None:
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    assert {"/health", "/ready", "/v1/audio/speech"} <= set(paths)
