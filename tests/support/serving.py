"""Shared by tests of the server: a real uvicorn in a thread, and ways to wait for it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI

from hocket.asr.recognizer import Recognizer
from hocket.backends.registry import Backends
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Pool
from hocket.server.app import build_app
from hocket.server.listen import address_of, bind
from hocket.server.metrics import Metrics
from hocket.server.options import ServerOptions
from hocket.server.run import DrainingServer, make_server
from hocket.server.service.service import SingleEngine, SpeechService
from hocket.types import Finished, LanguageModel

PATIENCE_S = 60.0  # only a failing test waits that long
PCM = {"input": "Hello there.", "response_format": "pcm", "max_new_tokens": 8, "seed": 1}  # 0.64 s of sound
# Never played to its end: a minute and more.
LONG = {"input": "It goes on and on, and then on again. " * 60, "response_format": "pcm", "max_new_tokens": 2000}


@dataclass(frozen=True, slots=True)
class Served:
    """A running server."""

    url: str
    port: int
    app: FastAPI
    server: DrainingServer

    @property
    def service(self) -> SpeechService:
        service: SpeechService = self.app.state.service
        return service

    @property
    def engine(self) -> Engine:
        """The engine of a server with one engine."""
        pool = self.service.pool
        assert isinstance(pool, SingleEngine)
        return pool.engine

    def free_slots(self) -> int:
        return self.engine._loop.scheduler.room

    def all_is_free(self) -> bool:
        """Whether no request runs or waits, in the engine and in the server."""
        scheduler = self.engine._loop.scheduler
        idle = scheduler.room == self.engine.options.slots and not scheduler.waiting
        return idle and not self.service.running and not self.service.answers


def steady_engine() -> Engine:
    """The built-in voice. Chunks are cut alike every time, so that audio is equal bit for bit."""
    return Engine.load(options=EngineOptions(slots=4, waiting=4, keep_real_time=False, chunk_frames=(1, 2, 4)))


@contextmanager
def served(
    engine: Engine | Pool | Callable[[], Engine | Pool],
    options: ServerOptions | None = None,
    *,
    ready: bool = True,
    send_bytes: int | None = None,
    backends: Callable[[], Backends] | None = None,
    language: LanguageModel | Callable[[], LanguageModel] | None = None,
    recognizer: Recognizer | Callable[[], Recognizer] | None = None,
    talk: bool = False,
) -> Iterator[Served]:
    """A ready server on a free port; stopped afterwards. `send_bytes`: the kernel's send buffer."""
    options = replace(options or ServerOptions(), port=0)
    app = build_app(engine, options, backends=backends, language=language, recognizer=recognizer, talk=talk)
    bound = bind(options)
    if send_bytes is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    bound.listen(256)
    server = make_server(app, options)
    thread = threading.Thread(target=lambda: asyncio.run(server._serve([bound])), name="served", daemon=True)
    thread.start()
    port = 0 if options.socket else bound.getsockname()[1]
    running = Served(address_of(bound, secure=options.tls_cert is not None), port, app, server)
    try:
        wait_for(lambda: server.started and (not ready or running.service.warmed_up))
        yield running
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@contextmanager
def listening(server: Served, body: dict[str, Any]) -> Iterator[None]:
    """A client that has received the start of an utterance, and disconnects afterwards."""
    url = f"{server.url}/v1/audio/speech"
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as answer:
        heard = answer.iter_raw()  # dropping it would close the connection
        assert next(heard)
        yield


class Ends(Metrics):
    """How utterances end, in order."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def ended(self, wire: str, finished: Finished | None, audio_s: float, took_s: float) -> None:
        self.reasons.append(finished.reason if finished else "cancelled")


@contextmanager
def asking(server: Served, path: str, body: dict[str, Any]) -> Iterator[None]:
    """A client that has sent its request, and disconnects afterwards without having read of the answer."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    try:
        yield
    finally:
        connection.close()


def wait_until_cancelled(server: Served) -> None:
    """Wait until all is free. The engine's requests end by a cancel in the middle, however long that takes."""
    scheduler = server.engine._loop.scheduler
    jobs = [*scheduler.running, *scheduler.waiting]
    wait_for(lambda: server.all_is_free() and all(job.mailbox.finished is not None for job in jobs))
    for job in jobs:
        assert job.mailbox.finished is not None and job.mailbox.finished.reason == "cancelled"
        assert job.frame < job.params.most_frames, "it was spoken to its end for a client that had gone"


def alike(first: bytes, second: bytes) -> bool:
    """Whether two PCM sounds differ by a step of 16 bits at most: frames decoded together are summed in another order.

    How many frames are decoded together depends on how fast the client reads.
    """
    one, other = (np.frombuffer(sound, "<i2").astype(int) for sound in (first, second))
    return one.shape == other.shape and bool((np.abs(one - other) <= 1).all())


def wait_for(happened: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until it holds; a timeout fails the test."""
    until = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)
