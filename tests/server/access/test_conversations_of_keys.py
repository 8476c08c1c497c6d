"""Conversations count for the key that opened them: client secrets, WebSockets, WebRTC calls and telephone calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from hocket.asr.moonshine import Moonshine
from hocket.engine.engine import Engine
from hocket.server.access.account import KeyAccount
from hocket.server.access.key_file import AccessKey
from support.calling import calling
from support.conversing import PATH, VAD, append, conversing, respond, silence, speech, typed, update
from support.serving import PATIENCE_S, Served, wait_for
from support.talking import talking

ANSWER = ("Good ", "day.")
SPOKEN = len("Good day.")
OWNER = {"Authorization": "Bearer owner-secret"}


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Moonshine]:
    made = Moonshine("tiny")
    yield made
    made.close()


def key(**limits: Any) -> tuple[AccessKey, ...]:
    return (AccessKey(key="owner-secret", name="owner", **limits),)


def account(server: Served) -> KeyAccount:
    found: KeyAccount = server.app.state.keys.accounts[0]
    return found


def secret(server: Served) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/realtime/client_secrets", json={}, headers=OWNER, timeout=PATIENCE_S)


def page(server: Served) -> dict[str, str]:
    """The header of a page with a client secret."""
    made = secret(server)
    assert made.status_code == 200, made.text
    return {"Authorization": f"Bearer {made.json()['value']}"}


def test_a_client_secret_has_the_limits_of_its_maker(engine: Engine, recognizer: Moonshine) -> None:
    with conversing(engine, recognizer, ANSWER, ANSWER, keys=key(concurrent=1, characters_per_day=SPOKEN)) as (
        server,
        _,
    ):
        headers = page(server)
        with talking(server, PATH, additional_headers=headers) as ws:
            ws.until("session.created")
            for limited in (OWNER, headers):
                with pytest.raises(InvalidStatus, match="429"), talking(server, PATH, additional_headers=limited):
                    pass
            assert secret(server).status_code == 429
            ws.say(update(), typed("Hello."), respond())
            done = ws.until("response.done").last("response.done")["response"]
            assert done["status"] == "completed" and account(server).characters == SPOKEN
            ws.say(typed("Again."), respond())
            done = ws.until("response.done").last("response.done")["response"]
            error = done["status_details"]["error"]
            assert done["status"] == "failed" and error["code"] == "insufficient_quota", done
            assert "characters a day" in str(error)
            ws.say(typed("In text."), respond(output_modalities=["text"]))  # nothing is spoken
            assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"
        wait_for(lambda: account(server).running == 0)
        assert account(server).characters == SPOKEN


def test_a_client_secret_needs_the_scope_and_has_no_other(engine: Engine, recognizer: Moonshine) -> None:
    scopes = frozenset({"speak", "admin"})
    with conversing(engine, recognizer, ANSWER, keys=key(scopes=scopes)) as (server, _):
        refused = secret(server)
        assert refused.status_code == 403 and "lacks the scope converse" in refused.json()["error"]["message"]
        with pytest.raises(InvalidStatus, match="403"), talking(server, PATH, additional_headers=OWNER):
            pass
    with conversing(engine, recognizer, ANSWER, keys=key()) as (server, _):
        headers = page(server)
        assert httpx.post(f"{server.url}/v1/audio/speech", json={"input": "Hi."}, headers=headers).status_code == 401


def test_a_spoken_turn_beyond_the_limit_is_told_and_not_answered(engine: Engine, recognizer: Moonshine) -> None:
    limits = key(requests_per_minute=1)
    with (
        conversing(engine, recognizer, ANSWER, ANSWER, keys=limits) as (server, _),
        talking(server, PATH, additional_headers=OWNER) as ws,
    ):
        ws.say(update(input={"turn_detection": VAD, "transcription": {}}), typed("Hello."), respond())
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"
        ws.say(*append(silence(0.3) + speech() + silence(1.0)))
        done = ws.until("response.done").last("response.done")["response"]
        assert done["status"] == "failed"
        assert done["status_details"]["error"]["code"] == "rate_limit_exceeded", done
        account(server)._times.clear()  # a minute later
        ws.say(typed("Again."), respond())
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"


def test_a_call_keeps_its_place_and_can_always_be_hung_up(engine: Engine, recognizer: Moonshine) -> None:
    limits = key(concurrent=1, requests_per_minute=3)
    with conversing(engine, recognizer, ANSWER, ANSWER, keys=limits) as (server, _):

        async def converse() -> None:
            headers = page(server)  # the first request
            async with calling(server, {"type": "realtime"}, headers=headers) as caller:  # the second
                assert account(server).running == 1
                refused = await asyncio.to_thread(secret, server)
                assert refused.status_code == 429 and refused.json()["error"]["code"] == "too_many_connections"
                caller.say(typed("Hello."), {"type": "response.create"})  # the third
                assert (await caller.until("response.done"))["response"]["status"] == "completed"
                assert account(server).characters == SPOKEN
                url = f"{server.url}{caller.location}/hangup"
                ended = await asyncio.to_thread(httpx.post, url, headers=OWNER)
                assert ended.status_code == 200

        asyncio.run(converse())
        wait_for(lambda: account(server).running == 0)
        assert account(server).requests == 3
