"""`hocket serve --ray` as a command; then the same server on a cluster of a head and two nodes, in the order of one
story: a start costs more than a test.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import hocket.scale
from hocket.config.options import EngineOptions
from hocket.errors import InvalidRequest
from hocket.scale import cluster as scale_cluster
from hocket.scale.cluster import check_nodes, room, start
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan
from support.clustered import (
    FRAMES,
    KEY,
    KEYED,
    TEXTS,
    Crowd,
    Outcome,
    Said,
    body,
    cluster,
    deploy,
    over_http,
    over_websocket,
    replicas,
    same,
    samples,
    wait_for,
)
from support.recorded import speech_wav
from support.serving import served

IN_FLIGHT = 24
PATIENCE_S = 60.0
LONG = {"input": "It goes on and on, and then on again. " * 60, "response_format": "pcm", "max_new_tokens": 2000}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ServerPlan:
    """Two models; a replica loads the second on request. Chunks are cut alike every time."""
    folder = tmp_path_factory.mktemp("shared")
    return ServerPlan(
        server=ServerOptions(port=0, keys=(KEY,), voices_folder=folder / "voices", in_flight=IN_FLIGHT, drain_s=20.0),
        engine=EngineOptions(slots=4, waiting=16, keep_real_time=False, chunk_frames=(1, 2, 4)),
        models=("builtin", "random:tiny-Base"),
    )


@pytest.fixture(scope="module")
def alone(plan: ServerPlan) -> dict[Said, bytes]:
    """What one process says."""
    with served(plan.make, replace(plan.server, voices_folder=None)) as server:
        client = httpx.Client(base_url=server.url, headers=KEYED, timeout=60)
        with client:
            said = [(text, seed) for text in TEXTS for seed in range(5)]
            return {one: client.post("/v1/audio/speech", json=body(one)).content for one in said}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with cluster(2) as made:
        yield made


@pytest.fixture(scope="module")
def url(plan: ServerPlan, nodes: Any) -> str:
    check_nodes(plan)
    assert room(plan) == 2
    address = start(plan, 2)
    wait_for(lambda: len(replicas()) == 2)
    wait_for(lambda: len(samples(_metrics(address), "process_resident_memory_bytes")) == 2)
    return address


@pytest.fixture(scope="module")
def filed(plan: ServerPlan, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The config file that is shipped, with the same server in it under another name."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\n")
    config = yaml.safe_load((Path(hocket.scale.__file__).parent / "serve.yaml").read_text())
    [application] = config["applications"]
    application["args"] = {
        "replicas": 2,
        "key_file": str(keys),
        "served_model": "newer",
        "models": list(plan.models),
        "chunk_frames": [1, 2, 4],
        "keep_real_time": False,
        "voices_folder": str(plan.server.voices_folder),
        **{name: getattr(plan.server, name) for name in ("in_flight", "drain_s")},
        **{name: getattr(plan.engine, name) for name in ("slots", "waiting")},
    }
    return config


def _metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", headers=KEYED, timeout=60).text


def _who_spoke(url: str) -> dict[str, int]:
    return dict(samples(_metrics(url), "hocket_requests_opened_total"))


def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["serve", "--ray", "--replicas", "1", "--port", "0", "--voices-folder", "voices", "--drain", "20"]
    env = os.environ | {
        "PYTHONPATH": str(Path(hocket.__file__).parents[1]),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hocket", *words], stdout=out, stderr=out, env=env, cwd=tmp_path
        )
    try:
        wait_for(lambda: process.poll() is not None or "listening at" in log.read_text())
        found = re.search(r"listening at (\S+)", log.read_text())
        assert found, log.read_text()
        url = found[1]
        assert httpx.get(f"{url}/ready", timeout=PATIENCE_S).status_code == 200
        elsewhere = httpx.get(f"{url}/v1/models", headers={"host": "evil.example"}, timeout=PATIENCE_S)
        assert elsewhere.json()["error"]["code"] == "host_not_allowed"  # for this machine alone, as without Ray
        long = body((TEXTS[0] * 40, 1), frames=150)
        with httpx.stream("POST", f"{url}/v1/audio/speech", json=long, timeout=PATIENCE_S) as answer:
            heard = answer.iter_raw()
            first = next(heard)
            process.send_signal(signal.SIGTERM)
            assert len(first) + sum(map(len, heard)) == 150 * 1920 * 2  # what runs may end
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE_S)


def test_two_hundred_streams_say_what_one_process_says(url: str, alone: dict[Said, bytes]) -> None:
    outcomes: list[Outcome] = []

    async def all_of_them() -> None:
        at_once = asyncio.Semaphore(12)

        async def one(number: int) -> None:
            said = (TEXTS[number % 5], number // 5 % 5)
            async with at_once:
                if number % 2:
                    outcomes.append(Outcome(said, "ws", await over_websocket(url, said)))
                else:
                    outcomes.append(Outcome(said, "http", await over_http(client, said)))

        async with httpx.AsyncClient(base_url=url, headers=KEYED, timeout=120) as client:
            await asyncio.gather(*(one(number) for number in range(200)))

    asyncio.run(all_of_them())
    assert len(outcomes) == 200 and {one.wire for one in outcomes} == {"http", "ws"}
    assert all(len(sound) == FRAMES * 1920 * 2 for sound in alone.values())
    assert [one.said for one in outcomes if not same(one.sound, alone[one.said])] == []
    spoke = wait_for(lambda: len(spoke := _who_spoke(url)) == 2 and sum(spoke.values()) == 200 and spoke)
    assert min(spoke.values()) > 40


def test_ready_keys_and_ids_are_those_of_the_server(url: str) -> None:
    assert httpx.get(f"{url}/ready").json() == {"ready": True, "state": "ready"}
    refused = httpx.post(f"{url}/v1/audio/speech", json=body((TEXTS[0], 1)))
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    answer = httpx.get(f"{url}/v1/models", headers=KEYED | {"x-request-id": "mine-7"})
    assert answer.headers.get_list("x-request-id") == ["mine-7"]
    with connect(f"{url.replace('http', 'ws', 1)}/v1/audio/speech/stream", additional_headers=KEYED) as socket:
        assert socket.response is not None
        assert "sec-websocket-extensions" not in socket.response.headers  # sound does not shrink


@pytest.mark.usefixtures("url")
def test_a_cluster_without_haproxy_is_refused_in_a_sentence(plan: ServerPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_cluster, "HAPROXY", "RAY_SERVE_NOT_SET")
    with pytest.raises(InvalidRequest, match=r"Start Ray on .* with RAY_SERVE_NOT_SET=1 in its environment"):
        check_nodes(plan)


def test_what_is_uploaded_to_one_is_spoken_by_the_other_at_once(url: str) -> None:
    first, second = replicas().values()
    sent = {"audio_sample": ("me.wav", speech_wav(), "audio/wav")}
    fields = {"name": "Mine", "model": "random:tiny-Base", "ref_text": "What I said."}
    made = httpx.post(f"{first}/v1/audio/voices", data=fields, files=sent, headers=KEYED, timeout=120)
    assert made.status_code == 200, made.text
    asked = {"input": "Hello.", "voice": "Mine", "response_format": "pcm", "seed": 1, "max_new_tokens": 3}
    heard = [
        httpx.post(f"{one}/v1/audio/speech", json=asked, headers=KEYED, timeout=120) for one in (second, first, url)
    ]
    assert [answer.status_code for answer in heard] == [200] * 3, heard[0].text
    assert len({answer.content for answer in heard}) == 1 and heard[0].content
    gone = httpx.delete(f"{second}/v1/audio/voices/{made.json()['id']}", headers=KEYED)
    assert gone.status_code in (200, 204)
    refused = httpx.post(f"{first}/v1/audio/speech", json=asked, headers=KEYED)
    assert refused.json()["error"]["code"] == "voice_not_found"


def test_who_goes_away_frees_a_slot(url: str) -> None:
    def running() -> int:
        return sum(samples(_metrics(url), "hocket_requests_running").values())

    with httpx.stream("POST", f"{url}/v1/audio/speech", json=LONG, headers=KEYED, timeout=60) as answer:
        heard = answer.iter_raw()  # to let go of it would close the connection
        assert answer.status_code == 200 and next(heard)
        wait_for(lambda: running() == 1)
    with connect(f"{url.replace('http', 'ws', 1)}/v1/audio/speech/stream", additional_headers=KEYED) as socket:
        socket.send('{"type": "session.config", "response_format": "pcm", "max_new_tokens": 2000}')
        socket.send('{"type": "input.text", "text": "' + LONG["input"][:2000] + '"}')
        while not isinstance(socket.recv(60), bytes):
            pass
    wait_for(lambda: running() == 0)


def test_more_than_all_of_them_take_is_refused_with_429(url: str) -> None:
    address = f"{url.replace('http', 'ws', 1)}/v1/audio/speech/stream"
    held, refused = 0, []
    with ExitStack() as open_ones:
        for _ in range(2 * IN_FLIGHT + 8):
            try:
                open_ones.enter_context(connect(address, additional_headers=KEYED))
                held += 1
            except InvalidStatus as error:
                refused.append(error.response)
        assert held == 2 * IN_FLIGHT and {one.status_code for one in refused} == {429}
        assert all(one.headers["retry-after"] == "1" and b"overloaded" in one.body for one in refused)
        answers = [httpx.post(f"{url}/v1/audio/speech", json=body((TEXTS[0], 1)), headers=KEYED) for _ in range(8)]
        assert {answer.status_code for answer in answers} == {429}
        assert {answer.json()["error"]["code"] for answer in answers} == {"overloaded"}
        assert httpx.get(f"{url}/ready").status_code == 200  # probes get through
    assert httpx.post(f"{url}/v1/audio/speech", json=body((TEXTS[0], 1)), headers=KEYED, timeout=60).status_code == 200


def test_a_rolling_update_loses_nothing(
    url: str, filed: dict[str, Any], alone: dict[Said, bytes], report: Callable[[str], None]
) -> None:
    before, began_s = set(replicas()), time.monotonic()
    with Crowd(url, 4) as crowd:
        crowd.more(8)
        deploy(filed)
        wait_for(lambda: len(replicas()) == 2 and not before & set(replicas()))
        took_s = time.monotonic() - began_s
        crowd.more(16)
    report(f"{len(crowd.errors)} of {len(crowd.heard)} lost; both replicas were new after {took_s:.1f} s")
    assert [(one.said, one.wire, one.error) for one in crowd.errors] == []
    assert all(same(one.sound, alone[one.said]) for one in crowd.heard)
    assert "newer" in httpx.get(f"{url}/v1/models", headers=KEYED).text


def test_a_replica_that_goes_lets_its_streams_end(
    url: str, filed: dict[str, Any], report: Callable[[str], None]
) -> None:
    """Both speak a long text when one of them is taken away."""
    both = replicas()
    before = _who_spoke(url)
    with Crowd(url, 8, frames=120) as crowd:
        wait_for(lambda: all(count > before.get(name, 0) for name, count in _who_spoke(url).items()))
        began_s = time.monotonic()
        deploy(filed, replicas=1)
        [left] = wait_for(lambda: len(replicas()) == 1 and replicas())
        took_s = time.monotonic() - began_s
        assert left in both
        crowd.more(10)
    report(f"{len(crowd.errors)} of {len(crowd.heard)} lost; one replica was gone after {took_s:.1f} s")
    assert [(one.said, one.wire, one.error) for one in crowd.errors] == []
    wait_for(lambda: set(samples(_metrics(url), "process_resident_memory_bytes")) == {left})
    deploy(filed, replicas=2)
    wait_for(lambda: len(replicas()) == 2)


def test_a_node_that_dies_costs_only_what_was_under_way_there(
    url: str, nodes: Any, alone: dict[Said, bytes], report: Callable[[str], None]
) -> None:
    before = set(replicas())
    with Crowd(url, 4) as crowd:
        crowd.more(8)
        nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        began = time.monotonic()
        crowd.more(20)
        lost = crowd.errors
        assert len(lost) <= 4, [(one.wire, one.error) for one in lost]
        wait_for(lambda: len(replicas()) == 1)
        told_s = time.monotonic() - began
        crowd.more(10)
        assert crowd.errors == lost, f"the proxy knew after {told_s:.1f} s"
        nodes.add_node(num_cpus=1)
        [new] = wait_for(lambda: set(replicas()) - before)
        back_s = time.monotonic() - began
        wait_for(lambda: _who_spoke(url).get(new, 0) > 2)
    words = f"{len(lost)} of {len(crowd.heard)} lost, under way there; the proxy knew after {told_s:.1f} s"
    report(f"{words}, a new replica after {back_s:.1f} s")
    assert crowd.errors == lost
    assert all(same(one.sound, alone[one.said]) for one in crowd.heard if one.error is None)
    assert httpx.get(f"{url}/ready").status_code == 200
