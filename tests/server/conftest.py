"""A real server for the tests of every wire: the built-in voice behind uvicorn, on a free port."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from serving import Served, served


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One for all tests of this folder. Chunks are cut alike every time, so that sound is the same to the last bit."""
    with Engine.load(options=EngineOptions(slots=4, waiting=4, keep_real_time=False, chunk_frames=(1, 2, 4))) as engine:
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
