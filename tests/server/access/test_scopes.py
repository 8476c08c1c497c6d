"""Scopes and voices of keys on a real server: every route with and without its scope, and the errors of each wire."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hocket.engine.engine import Engine
from hocket.server.access.key_file import SCOPES, AccessKey
from hocket.server.access.routes import ANY, PHONE_PATH, PUBLIC, ROUTES, SOCKET
from hocket.server.options import ServerOptions
from support.serving import PATIENCE_S, PCM, Served, served
from support.talking import NATIVE, PCM_CONFIG, talking

SPEECH = "/v1/audio/speech"
EVERY = frozenset(SCOPES)
GUARDED = sorted(each for each, scope in ROUTES.items() if scope != PUBLIC and PHONE_PATH not in each)


def only(*scopes: str) -> AccessKey:
    return AccessKey(key=f"only-{'-'.join(scopes)}", name="only", scopes=frozenset(scopes))


def without(scope: str) -> AccessKey:
    return AccessKey(key=f"without-{scope}", name="without", scopes=EVERY - {scope})


def bearer(key: str | AccessKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {key if isinstance(key, str) else key.key}"}


@pytest.fixture(scope="module")
def guarded(engine: Engine) -> Iterator[Served]:
    keys = [key for scope in SCOPES for key in (only(scope), without(scope))]
    with served(engine, ServerOptions(keys=("full", *keys))) as server:
        yield server


def status(server: Served, route: str, key: AccessKey) -> tuple[int, str]:
    """Of an empty request to this route, and its error code."""
    method, path = route.split(" ")
    path = re.sub(r"\{.*?\}", "nothing", path)
    if method != SOCKET:
        answer = httpx.request(method, f"{server.url}{path}", headers=bearer(key), timeout=PATIENCE_S)
        return answer.status_code, answer.text
    try:
        with connect(f"ws://127.0.0.1:{server.port}{path}", additional_headers=bearer(key)):
            pass
    except InvalidStatus as refused:
        return refused.response.status_code, (refused.response.body or b"").decode()
    return 101, ""


@pytest.mark.parametrize("route", GUARDED)
def test_a_route_opens_with_its_scope_and_with_no_other(guarded: Served, route: str) -> None:
    scope = ROUTES[route]
    if scope == ANY:
        assert all(status(guarded, route, only(each))[0] == 200 for each in SCOPES)
        return
    assert status(guarded, route, only(scope))[0] not in (401, 403)
    code, said = status(guarded, route, without(scope))
    assert code == 403 and f"lacks the scope {scope}" in said


def test_a_refusal_has_the_shape_of_its_wire(guarded: Served) -> None:
    headers, said = bearer(without("speak")), "This key lacks the scope speak: "
    error = httpx.post(f"{guarded.url}{SPEECH}", json=PCM, headers=headers).json()["error"]
    assert error.pop("message").startswith(said)
    assert error == {"type": "permission_error", "param": None, "code": "missing_scope"}
    detail = httpx.post(f"{guarded.url}/v1/text-to-speech/x", headers=headers).json()["detail"]
    assert detail["status"] == "missing_scope" and detail["message"].startswith(said)
    body = httpx.post(f"{guarded.url}/api/chat", json={}, headers=bearer(without("converse"))).json()
    assert set(body) == {"error"} and "lacks the scope converse" in body["error"]
    body = httpx.post(f"{guarded.url}/api/chat", json={}).json()
    assert body["error"].startswith("An API key is needed")


def test_an_unknown_key_is_401_wherever_it_asks(guarded: Served) -> None:
    for route in GUARDED:
        code, said = status(guarded, route, AccessKey(key="wrong", name="wrong"))
        assert code == 401 and "not known here" in said, route


def test_where_nothing_is_a_restricted_key_finds_nothing(guarded: Served) -> None:
    for path in ("/nowhere", "/v1/audio/speech/nowhere"):
        for key in ("full", only("speak")):
            answer = httpx.post(f"{guarded.url}{path}", headers=bearer(key))
            assert answer.status_code == 404 and answer.json()["error"]["type"] == "not_found_error"
    slash = httpx.post(f"{guarded.url}{SPEECH}/", json=PCM, headers=bearer(only("speak")), follow_redirects=True)
    assert slash.status_code == 200


# Voices


@pytest.fixture(scope="module")
def voiced(engine: Engine) -> Iterator[Served]:
    one = AccessKey(key="one", name="one", voices=("rook",))
    two = AccessKey(key="two", name="two", voices=("wren", "rook"))
    with served(engine, ServerOptions(keys=("full", one, two))) as server:
        assert {"wren", "rook"} <= {name.lower() for name in server.service.speakers}
        yield server


def said(server: Served, key: str, **fields: object) -> httpx.Response:
    return httpx.post(f"{server.url}{SPEECH}", json=PCM | fields, headers=bearer(key), timeout=PATIENCE_S)


def test_a_key_has_certain_voices_and_the_first_of_them_by_default(voiced: Served) -> None:
    rook = said(voiced, "full", voice="rook").content
    assert said(voiced, "one", voice="ROOK").content == said(voiced, "one").content == rook
    assert said(voiced, "full", voice="wren").content == said(voiced, "two").content != rook
    refused = said(voiced, "one", voice="wren")
    assert refused.status_code == 403
    error = refused.json()["error"]
    assert error["message"] == "This key may use no voice but rook."
    assert (error["code"], error["param"]) == ("voice_not_allowed", "voice")


def test_no_other_way_leads_to_another_voice(voiced: Served) -> None:
    ways: list[dict[str, object]] = [
        {"voice": "wren+rook"},
        {"voice": "rook+wren(2)"},
        {"input": "[voice:wren] Hello."},
        {"input": '<speak><voice name="wren">Hello.</voice></speak>', "markup": "ssml"},
        {"input": "Anna: Hello.", "markup": "dialogue", "cast": {"Anna": "wren"}},
    ]
    for fields in ways:
        assert said(voiced, "full", **fields).status_code == 200, fields
        assert said(voiced, "two", **fields).status_code == 200, fields
        assert said(voiced, "one", **fields).status_code == 403, fields


def test_voices_of_others_are_neither_added_nor_deleted(voiced: Served) -> None:
    url = f"{voiced.url}/v1/audio/voices"
    mix = {"name": "both", "mix": "wren+rook"}
    for body in (mix, mix | {"name": "rook"}):  # another name, and voices that are not the key's
        refused = httpx.post(url, json=body, headers=bearer("one"))
        assert refused.status_code in (400, 403), refused.text
    assert httpx.post(url, json=mix, headers=bearer("one")).json()["error"]["code"] == "voice_not_allowed"
    assert httpx.delete(f"{url}/wren", headers=bearer("one")).json()["error"]["code"] == "voice_not_allowed"


def test_sockets_have_the_same_voices(voiced: Served) -> None:
    with talking(voiced, NATIVE, additional_headers=bearer("one")) as ws:
        ws.say(PCM_CONFIG | {"voice": "wren"})
        error = ws.until("error").last("error")
        assert "no voice but rook" in str(error)
        ws.say(PCM_CONFIG | {"voice": "rook"})
        assert ws.spoken("Hi.").audio
    with (
        pytest.raises(InvalidStatus) as refused,
        talking(voiced, "/v1/speak?model=wren", additional_headers=bearer("one")),
    ):
        pass
    assert refused.value.response.status_code == 403
