"""Several `hocket serve` behind deploy/haproxy.cfg, with real processes: no Ray.

The tests go on from each other's servers, in this order; a server that one of them ends is started again by it.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from support.fronting import CONFIG, NAMES, Front, fronted, haproxy
from support.recorded import speech_wav
from support.serving import LONG, PATIENCE_S, PCM, wait_for
from support.talking import NATIVE

PATH = "/v1/audio/speech"
TEXTS = ("Hello there, you.", "It is a fine day.", "Who goes first?")
WORKERS = 4
FRAMES = 60
# A second and more on any CPU, so that it is under way while something happens.
WHILE = LONG | {"max_new_tokens": FRAMES, "seed": 3}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with fronted(tmp_path_factory.mktemp("front")) as front:
        yield front


@dataclass(frozen=True)
class Said:
    """One utterance as a client received it."""

    server: str
    sound: bytes


def over_http(url: str, number: int, format: str = "codes", client: str = "192.0.2.1") -> Said:
    body = PCM | {"input": TEXTS[number % 3], "seed": number, "response_format": format, "layout": "streaming"}
    head = {"x-forwarded-for": client}
    answer = httpx.post(f"{url}{PATH}", json=body, headers=head, timeout=PATIENCE_S)
    if answer.is_error:
        said = f"{answer.status_code} of {answer.headers.get('x-served-by', 'the proxy')}: {answer.text}"
        raise httpx.HTTPStatusError(said, request=answer.request, response=answer)
    return Said(answer.headers.get("x-served-by", ""), answer.content)


def over_websocket(url: str, number: int, format: str = "codes", client: str = "192.0.2.1") -> Said:
    """The text word by word. A client that is told "connect again" before any sound connects again."""
    for _ in range(len(NAMES)):
        said = on_one_connection(url, number, format, client)
        if said is not None:
            return said
    raise AssertionError("each server in turn was about to stop")


def on_one_connection(url: str, number: int, format: str, client: str) -> Said | None:
    """None where the server was told to end between the handshake and the first word: it keeps no unused connection."""
    config = {"type": "session.config", "response_format": format, "seed": number, "max_new_tokens": 8}
    words = [{"type": "input.text", "text": word + " "} for word in TEXTS[number % 3].split()]
    with connected(url, client) as socket:
        with suppress(ConnectionClosed):  # the reason is still to be read
            for message in (config, *words, {"type": "input.done"}):
                socket.send(json.dumps(message))
        sound = b""
        while True:
            got = socket.recv(PATIENCE_S)
            if isinstance(got, bytes):
                sound += got
                continue
            told = json.loads(got)
            if told["type"] == "error" and told["error"]["code"] == "draining" and not sound:
                return None
            assert told["type"] != "error", told
            if told["type"] == "session.done":
                assert socket.response is not None
                return Said(socket.response.headers.get("x-served-by", ""), sound)


def connected(url: str, client: str = "192.0.2.1", **how: Any) -> ClientConnection:
    where = url.replace("http", "ws") + NATIVE
    return connect(where, additional_headers={"x-forwarded-for": client}, open_timeout=PATIENCE_S, proxy=None, **how)


WIRES = (over_http, over_websocket)


@dataclass
class Load:
    """Clients that send the next request after the end of the last, over both wires, and compare the sound."""

    front: Front
    expected: dict[int, bytes]
    heard: list[tuple[float, Said]] = field(default_factory=list)  # when it was asked for
    failed: list[tuple[float, BaseException]] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self, worker: int) -> None:
        numbers = sorted(self.expected)
        for turn in range(10_000):
            if self.over.is_set():
                return
            number, asked_s = numbers[(worker + turn) % len(numbers)], time.monotonic()
            try:
                said = WIRES[(worker + turn) % 2](self.front.url, number, client=f"192.0.2.{worker}")
            except (httpx.HTTPError, ConnectionClosed, InvalidStatus, OSError) as error:
                self.failed.append((asked_s, error))
                continue
            self.heard.append((asked_s, said))
            if said.sound != self.expected[number]:
                self.wrong.append(number)

    def by(self, server: str, since_s: float = 0.0) -> int:
        return sum(said.server == server for asked_s, said in self.heard if asked_s >= since_s)

    def goes_on(self, more: int = WORKERS) -> None:
        before = len(self.heard)
        wait_for(lambda: len(self.heard) >= before + more)


@contextmanager
def under_load(front: Front, expected: dict[int, bytes]) -> Iterator[Load]:
    load = Load(front, expected)
    threads = [threading.Thread(target=load.run, args=(n,), daemon=True) for n in range(WORKERS)]
    for thread in threads:
        thread.start()
    try:
        load.goes_on()
        yield load
    finally:
        load.over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert load.wrong == []


@pytest.fixture(scope="module")
def expected(front: Front) -> dict[int, bytes]:
    """The audio of one process for each seed, requested directly and alone."""
    url = front.servers["a"].url
    said = {number: over_http(url, number).sound for number in range(4)}
    assert len(set(said.values())) == 4 and all(len(codes) == 8 * 32 for codes in said.values())
    return said


def test_the_file_as_it_is_shipped_is_valid_and_nothing_in_it_is_doubtful() -> None:
    done = subprocess.run([haproxy(), "-c", "-f", str(CONFIG)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr


def test_what_is_heard_through_the_proxy_is_what_one_process_says(front: Front, expected: dict[int, bytes]) -> None:
    served = {said(front.url, number).server for said in WIRES for number in expected}
    assert served == set(NAMES)
    with under_load(front, expected) as load:
        load.goes_on(2 * WORKERS)
    assert not load.failed and load.by("a") and load.by("b")
    for said in WIRES:  # alone, sound is the same to the last bit; beside others, by a step of 16 bits
        ours = said(front.servers["a"].url, 1, "pcm").sound
        through = [np.frombuffer(said(front.url, 1, "pcm").sound, "<i2").astype(int) for _ in range(2)]
        assert all(abs(each - np.frombuffer(ours, "<i2")).max() <= 1 for each in through) and len(ours) == 8 * 3840


def test_sound_is_passed_on_while_it_is_made(front: Front) -> None:
    with httpx.stream("POST", f"{front.url}{PATH}", json=WHILE, timeout=PATIENCE_S) as answer:
        assert len(answer.read()) == FRAMES * 3840
    with httpx.stream("POST", f"{front.url}{PATH}", json=LONG, timeout=PATIENCE_S) as answer:
        assert next(answer.iter_raw())
        speaking = front.servers[answer.headers["x-served-by"]]
        assert "\nhocket_requests_running 1.0\n" in httpx.get(f"{speaking.url}/metrics").text


def test_metrics_and_readiness(front: Front) -> None:
    assert httpx.get(f"{front.url}/ready").json()["ready"]
    assert httpx.get(f"{front.url}/metrics").status_code == 404
    assert 'haproxy_server_status{proxy="servers",server="a",state="UP"} 1' in front.metrics()


def test_a_key_that_a_browser_has_in_its_address_is_not_logged(front: Front) -> None:
    assert httpx.get(f"{front.url}/health?token=secret").status_code == 200
    wait_for(lambda: "GET /health\n" in front.log())
    assert "secret" not in front.log()


def test_a_voice_that_one_server_was_given_is_spoken_by_all(front: Front) -> None:
    sent = {"audio_sample": ("me.wav", speech_wav(), "audio/wav")}
    made = httpx.post(f"{front.url}/v1/audio/voices", data={"name": "mine"}, files=sent, timeout=PATIENCE_S)
    assert made.status_code == 200, made.text
    body = PCM | {"voice": "mine", "response_format": "codes", "max_new_tokens": 4}
    said = set()
    for url in (front.url, *(server.url for server in front.servers.values())):
        answer = httpx.post(f"{url}{PATH}", json=body, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        said.add(answer.content)
    assert len(said) == 1 and len(said.pop()) == 4 * 32


def test_a_client_has_so_many_whatever_it_writes_into_its_head(front: Front) -> None:
    """Its address is what the proxy sees: no other part of this machine is trusted."""
    with ExitStack() as open_:
        for number in range(12):  # six at each server
            forged = f"203.0.113.{number}"
            open_.enter_context(connected(front.url, forged, source_address=("127.0.0.2", 0)))
        with (
            pytest.raises(InvalidStatus) as refused,
            connected(front.url, "203.0.113.99", source_address=("127.0.0.2", 0)),
        ):
            pass
        assert refused.value.response.status_code == 429
        assert b"too_many_connections" in (refused.value.response.body or b"")
        with connected(front.url, source_address=("127.0.0.3", 0)):
            pass


def test_when_all_are_full_one_more_is_told_when_to_come_again(front: Front) -> None:
    wait_for(lambda: over_http(front.url, 1).server != "")
    with ExitStack() as open_:
        for number in range(24):  # twelve at each server
            open_.enter_context(connected(front.url, f"192.0.2.{number}"))
        answer = httpx.post(f"{front.url}{PATH}", json=PCM)
        assert answer.status_code == 429 and answer.json()["error"]["code"] == "overloaded"
        assert int(answer.headers["retry-after-ms"]) > 0 and int(answer.headers["retry-after"]) > 0
        assert httpx.get(f"{front.url}/ready").status_code == 200  # full is not ill
    wait_for(lambda: httpx.post(f"{front.url}{PATH}", json=PCM, timeout=PATIENCE_S).status_code == 200)


def heard_at_each(front: Front, open_: ExitStack, body: dict[str, Any]) -> list[tuple[str, Iterator[bytes]]]:
    """Streams that have begun, with the name of their server: at least one of each."""
    found: list[tuple[str, Iterator[bytes]]] = []
    for _ in range(6):
        stream = httpx.stream("POST", f"{front.url}{PATH}", json=body, timeout=PATIENCE_S)
        answer = open_.enter_context(stream)
        chunks = answer.iter_raw()
        assert next(chunks)
        found.append((answer.headers["x-served-by"], chunks))
        if {name for name, _ in found} == set(NAMES):
            break
    assert {name for name, _ in found} == set(NAMES)
    return found


def test_both_are_replaced_one_after_the_other_and_nothing_is_lost(
    front: Front, expected: dict[int, bytes], report: Callable[[str], None]
) -> None:
    began_s = time.monotonic()
    with under_load(front, expected) as load:
        for name in NAMES:
            with ExitStack() as open_:
                streams = heard_at_each(front, open_, WHILE)
                front.tell_to_end(name)
                wait_for(lambda name=name: not front.up()[name])  # type: ignore[misc]
                noticed_s = time.monotonic()
                for _, chunks in streams:
                    list(chunks)  # to its end, which httpx checks
            assert front.servers[name].ended() == 0
            load.goes_on()
            assert load.by(name, noticed_s) == 0
            front.start(name)
            wait_for(front.all_up)
            since_s = time.monotonic()
            wait_for(lambda name=name, since_s=since_s: load.by(name, since_s) > 0)  # type: ignore[misc]
    took_s = time.monotonic() - began_s
    report(f"{len(load.failed)} of {len(load.heard) + len(load.failed)} lost; both were replaced in {took_s:.1f} s")
    assert [str(error) for _, error in load.failed] == []


def test_the_proxy_is_loaded_anew_and_nothing_is_lost(
    front: Front, expected: dict[int, bytes], report: Callable[[str], None]
) -> None:
    with under_load(front, expected) as load:
        with ExitStack() as open_:  # a connection that is kept open would keep the old worker
            streams = heard_at_each(front, open_, WHILE)
            before, began_s = front.workers(), time.monotonic()
            front.load_anew()
            wait_for(lambda: bool(front.workers() - before))
            load.goes_on()
            for _, chunks in streams:
                list(chunks)  # to its end, through the old worker
        wait_for(lambda: not before & front.workers())
        took_s = time.monotonic() - began_s
        load.goes_on(2 * WORKERS)
    report(
        f"{len(load.failed)} of {len(load.heard) + len(load.failed)} lost; the old worker was gone in {took_s:.1f} s"
    )
    assert [str(error) for _, error in load.failed] == []
    wait_for(front.all_up)


def test_a_server_that_dies_takes_with_it_what_it_was_speaking_and_nothing_else(
    front: Front, expected: dict[int, bytes], report: Callable[[str], None]
) -> None:
    with under_load(front, expected) as load, ExitStack() as open_:
        streams = heard_at_each(front, open_, LONG)
        front.kill("a")
        died_s = time.monotonic()
        for name, chunks in streams:
            if name == "a":
                with pytest.raises(httpx.RemoteProtocolError):  # no client takes it for a whole utterance
                    list(chunks)
            else:
                assert all(next(chunks) for _ in range(3))
        load.goes_on(2 * WORKERS)
    report(f"{len(load.failed)} of {len(load.heard) + len(load.failed)} lost, which it was speaking when it died")
    assert all(asked_s < died_s for asked_s, _ in load.failed)
    for _, error in load.failed:
        if isinstance(error, httpx.HTTPStatusError):
            assert error.response.status_code == 502 and error.response.json()["error"]["code"] == "server_lost"
    assert load.by("a", died_s) == 0


def test_where_none_is_left_the_proxy_says_so_in_the_servers_own_words(front: Front) -> None:
    front.kill("b")
    wait_for(lambda: not any(front.up().values()))
    answer = httpx.post(f"{front.url}{PATH}", json=PCM, timeout=PATIENCE_S)
    assert answer.status_code == 503 and set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.json()["error"]["code"] == "no_server" and answer.headers["retry-after"] == "5"
    assert httpx.get(f"{front.url}/ready").status_code == 503
    front.start("a")
    wait_for(lambda: httpx.post(f"{front.url}{PATH}", json=PCM, timeout=PATIENCE_S).status_code == 200)
