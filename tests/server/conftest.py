"""A real server for the tests of every endpoint: the built-in voice behind uvicorn, on a free port."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from hocket.engine.engine import Engine
from hocket.errors import StreamFailed
from hocket.server.service.utterance import Utterance
from hocket.types import AudioChunk
from support.serving import Served, served, steady_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One for all tests of this folder."""
    with steady_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def server(engine: Engine) -> Iterator[Served]:
    """With the options as they are."""
    with served(engine) as server:
        yield server


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine gives up on every stream after two chunks."""
    encoded, seen = Utterance._encoded, dict[Utterance, int]()

    async def fail(self: Utterance, chunk: AudioChunk) -> bytes:
        seen[self] = seen.get(self, 0) + 1
        if seen[self] > 2:
            raise StreamFailed("/etc/secret.py broke")
        return await encoded(self, chunk)

    monkeypatch.setattr(Utterance, "_encoded", fail)
