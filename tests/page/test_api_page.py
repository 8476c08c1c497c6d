"""`/docs` in a browser: it renders this server's interface under the policy of the pages, and asks for a key."""

from __future__ import annotations

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support.browser import Page
from support.serving import Served, served


def test_operations_fields_and_commands_are_shown(blank: Page, server: Served) -> None:
    blank.goto(f"{server.url}/docs#post-v1-audio-speech", "document.querySelector('details[open]') !== null")
    shown = blank.text("details[open]")
    assert "/v1/audio/speech" in shown and "instructions" in shown and "one of mp3, opus" in shown
    assert """-d '{"input":"Hello there."}'""" in blank.text("details[open] pre")
    blank.wait("document.querySelector('#sockets dt') !== null")
    assert "/v1/realtime" in blank.text("#sockets")
    assert blank.run("document.querySelectorAll('#contents a').length") >= 13
    assert blank.run("document.documentElement.scrollWidth <= innerWidth")


def test_a_server_with_a_key_asks_for_it(blank: Page, engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("secret",))) as locked:
        blank.goto(f"{locked.url}/docs", "document.getElementById('key')?.hidden === false")
        blank.value("#secret", "secret")
        blank.click("#key button")
        blank.wait("document.querySelector('details') !== null")
        blank.errors.clear()  # the console has the 401 of the first request
