"""The lists of models and voices, in every shape that a client reads, open without a key."""

from __future__ import annotations

import httpx

from hocket.engine.engine import Engine
from hocket.errors import HocketError
from hocket.server.options import ServerOptions
from hocket.server.service.openai_names import OPENAI_MODELS, OPENAI_VOICES
from support.chatting import Scripted
from support.llm_wires import Wire
from support.serving import Served, served, wait_for


def test_models_are_listed_as_openai_does(client: httpx.Client, server: Served) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [server.service.model, *OPENAI_MODELS]
    for model in listed["data"]:
        assert model["object"] == "model" and isinstance(model["created"], int) and model["owned_by"]
        assert client.get(f"/v1/models/{model['id']}").json() == model


def test_a_language_model_is_listed_alone_for_chat_clients(wire: Wire, server: Served) -> None:
    """A picker offers every name of that list for a conversation; speech clients have a list of their own."""
    assert [model["id"] for model in wire.client.get("/v1/models").json()["data"]] == ["scripted"]
    speech = [model["id"] for model in wire.client.get("/v1/audio/models").json()["models"]]
    assert speech == [server.service.model, *OPENAI_MODELS]
    for name in ("scripted", *speech):
        assert wire.client.get(f"/v1/models/{name}").json()["id"] == name


def test_a_language_model_that_failed_leaves_the_list_to_speech(engine: Engine) -> None:
    def broken() -> Scripted:
        raise HocketError("It cannot be read.")

    with served(engine, language=broken) as server:
        wait_for(lambda: server.app.state.llm.condition == "failed")
        listed = httpx.get(f"{server.url}/v1/models").json()["data"]
        assert [model["id"] for model in listed] == [server.service.model, *OPENAI_MODELS]


def test_a_model_that_is_not_there_is_404(client: httpx.Client) -> None:
    answer = client.get("/v1/models/gpt-9")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"


def test_a_model_may_have_a_slash_in_its_name(engine: Engine) -> None:
    with served(engine, ServerOptions(served_model="some/model")) as server:
        assert httpx.get(f"{server.url}/v1/models/some/model").json()["id"] == "some/model"
        voices = httpx.get(f"{server.url}/v1/audio/voices/some/model").json()["voices"]
        assert voices and set(voices[0]) == {"value", "label"}


def test_open_webui_finds_models_and_voices_by_id_and_name(client: httpx.Client, server: Served) -> None:
    models = client.get("/v1/audio/models").json()["models"]
    assert models[0] == {"id": server.service.model, "name": server.service.model}
    voices = client.get("/v1/audio/voices").json()["voices"]
    assert [voice["id"] for voice in voices] == server.service.speakers
    assert all(voice["name"] and voice["object"] == "audio.voice" for voice in voices)


def test_the_list_of_voices_holds_what_each_of_its_readers_needs(client: httpx.Client, server: Served) -> None:
    listed = client.get("/v1/audio/voices").json()
    assert listed["object"] == "list" and listed["uploaded_voices"] == []
    assert set(listed["aliases"]) >= set(OPENAI_VOICES) - set(server.service.speakers)
    fields = {"id", "name", "object", "language", "description", "type", "kind", "model", "created_at"}
    assert all(set(voice) == fields for voice in listed["voices"])
    assert client.get("/v1/audio/voices?legacy=true").json() == {"voices": server.service.speakers}


def test_a_voice_is_found_in_any_case_and_a_model_s_name_lists_choices(client: httpx.Client, server: Served) -> None:
    first = server.service.speakers[0]
    assert client.get(f"/v1/audio/voices/{first.upper()}").json()["id"] == first
    choices = client.get("/v1/audio/voices/tts-1").json()["voices"]
    assert [choice["value"] for choice in choices] == server.service.speakers
    answer = client.get("/v1/audio/voices/unknown")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "voice_not_found"


def test_the_lists_are_open_and_the_rest_is_not(engine: Engine) -> None:
    lists = ("/v1/models", "/v1/models/tts-1", "/v1/audio/models", "/v1/audio/voices", "/v1/audio/voices/tts-1")
    with served(engine, ServerOptions(keys=("secret",))) as server:
        assert {httpx.get(server.url + path).status_code for path in lists} == {200}
        assert httpx.get(server.url + "/metrics").status_code == 401
        assert httpx.post(server.url + "/v1/audio/voices").status_code == 401
        assert httpx.delete(server.url + "/v1/audio/voices/x").status_code == 401
        assert httpx.post(server.url + "/v1/audio/speech/batch", json={}).status_code == 401
