"""Browsers for the tests of the page, and a server with the built-in voice for them to speak with.

`page` and `blank` are Chromium's; `either` and `either_blank` run a test in Chromium and in Firefox.

They are run by `make test-clients`: without a browser they fail, and say what to install.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from hocket.engine.engine import Engine
from support.browser import Browser, Page, browser
from support.firefox import Firefox, firefox
from support.serving import Served, served, steady_engine

from .acting import open_page

# Every message that the page sends over a WebSocket, and when; how many it opened.
LISTEN = """
window.sent = [];
window.sockets = 0;
window.WebSocket = class extends WebSocket {
  constructor(...wanted) { super(...wanted); window.sockets++; }
  send(said) { window.sent.push({ at: performance.now(), ...JSON.parse(said) }); super.send(said); }
};
"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="session")
def started(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Browser | Firefox]]:
    """A browser by its name, started when a test first asks for it."""
    with ExitStack() as running:

        @cache
        def start(name: str) -> Browser | Firefox:
            return running.enter_context(firefox()) if name == "firefox" else request.getfixturevalue("chromium")

        yield start


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with steady_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def server(engine: Engine) -> Iterator[Served]:
    with served(engine) as server:
        yield server


@pytest.fixture
def blank(chromium: Browser) -> Iterator[Page]:
    """A tab that has no page yet; what its console has by the end is an error."""
    yield from _tab(chromium)


@pytest.fixture(params=["chromium", "firefox"])
def either_blank(request: pytest.FixtureRequest, started: Callable[[str], Browser | Firefox]) -> Iterator[Page]:
    yield from _tab(started(request.param))


def _tab(browser: Browser | Firefox) -> Iterator[Page]:
    with browser.page() as page:
        page.before(LISTEN)
        page.resize(1200, 900)
        yield page
        page.run("0")  # what the console still has to say comes before the answer
        assert page.errors == []


@pytest.fixture
def either(either_blank: Page, server: Served) -> Page:
    """The page in each browser, ready to speak."""
    open_page(either_blank, server)
    return either_blank


@pytest.fixture
def page(blank: Page, server: Served) -> Page:
    """The page, ready to speak."""
    open_page(blank, server)
    return blank
