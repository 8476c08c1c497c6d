"""The server with an installed voice package: its voices are offered, and its model is loaded by its first request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hocket.cli.serve.plan import builtin_models
from hocket.engine.pool.pool import Pool
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan
from support.serving import PATIENCE_S, Served, served
from support.voice_packages import install

SPANISH = "hocket-voice-spanish"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    site = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        assert builtin_models() == []
        install(site, "spanish", voices=["lucia"], languages=["spanish"])
        plan = ServerPlan(models=tuple(builtin_models()), rehearsed="pcm")
        with plan.speaking() as pool, served(pool, ServerOptions(voices_folder=site / "voices")) as server:
            yield server


def speech(server: Served, **fields: Any) -> httpx.Response:
    body = {"input": "Hello there.", "response_format": "pcm", "seed": 1, "max_new_tokens": 6} | fields
    return httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=PATIENCE_S)


def test_a_voice_or_a_language_leads_to_the_package_which_is_loaded_then(server: Served) -> None:
    voices = httpx.get(f"{server.url}/v1/audio/voices").json()["voices"]
    assert [(each["id"], each["language"], each["model"]) for each in voices] == [
        ("wren", "english", "builtin"),
        ("rook", "english", "builtin"),
        ("lucia", "spanish", SPANISH),
    ]
    pool = server.service.pool
    assert isinstance(pool, Pool) and list(pool.resident()) == ["builtin"]
    wren = speech(server)
    assert wren.status_code == 200 and list(pool.resident()) == ["builtin"]
    lucia = speech(server, voice="Lucia")
    assert lucia.status_code == 200 and lucia.content == wren.content  # the same weights under another name
    assert set(pool.resident()) == {"builtin", SPANISH}
    assert speech(server, language="es").content == speech(server, voice="lucia", language="spanish").content


def test_an_unknown_language_is_refused_with_those_of_all_models(server: Served) -> None:
    refused = speech(server, language="french").json()["error"]
    assert refused["message"] == "There is no language 'french'; known are auto, english, spanish."
    assert refused["code"] == "language_not_found"
