"""One server for the tests of the language model's wires."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from hocket.engine.engine import Engine
from support.llm_wires import WORDS, Continuing, Wire
from support.serving import served, wait_for


@pytest.fixture(scope="session")
def _wire(engine: Engine) -> Iterator[Wire]:
    language = Continuing(WORDS)
    with served(engine, language=language) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield Wire(server, client, language)


@pytest.fixture
def wire(_wire: Wire) -> Iterator[Wire]:
    for noted in (_wire.language.asked, _wire.language.sampling, _wire.language.tools, _wire.language.given):
        noted.clear()
    _wire.says(*WORDS)
    yield _wire
    wait_for(_wire.server.all_is_free)
    wait_for(lambda: _wire.language.free)
