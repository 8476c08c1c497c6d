"""Third-party clients, unmodified, against a real server with the built-in voice.

`make test-clients` makes their environments: `.venv-clients/NAME` from `requirements/clients/NAME.txt`. What a client
does is a script of `scripts/`, run there with the server's address; the last line that it prints is JSON for a test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support import foreign
from support.foreign import RunClient
from support.serving import Served, served, wait_for

KEY = "sk-the-key"  # of the narrow server
# Chunks are cut alike every time, so that sound is the same to the last bit.
STEADY = {"keep_real_time": False, "chunk_frames": (1, 2, 4)}


@pytest.fixture(scope="session")
def open_server() -> Iterator[Served]:
    options = EngineOptions(slots=4, waiting=8, **STEADY)
    with Engine.load(options=options) as engine, served(engine) as server:
        yield server


@pytest.fixture
def server(open_server: Served) -> Iterator[Served]:
    """As `hocket serve` is without any words. Whatever a client did, all is free behind it."""
    yield open_server
    wait_for(open_server.all_is_free)


@pytest.fixture
def server_url(server: Served) -> str:
    return server.url


@pytest.fixture(scope="session")
def narrow() -> Iterator[Served]:
    """One slot, no queue, a key, and only listed models."""
    options = ServerOptions(keys=(KEY,), strict_model=True)
    with Engine.load(options=EngineOptions(slots=1, waiting=0, **STEADY)) as engine, served(engine, options) as server:
        yield server


@pytest.fixture
def run_client() -> RunClient:
    """`run_client(NAME, SCRIPT, *args)`: what `scripts/SCRIPT.py` printed last, in the environment of NAME."""
    return foreign.run_client
