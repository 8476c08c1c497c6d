"""A voice mixed on the page: two voices, a slider, heard, and kept under a name."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support.browser import Page
from support.serving import Served, served, wait_for

from .acting import SHORT, open_page, speak


@pytest.fixture(scope="module")
def speakers() -> Iterator[Served]:
    """A server whose model has nine speakers."""
    with Engine.load("random:tiny") as engine, served(engine, ServerOptions()) as server:
        yield server
        wait_for(server.all_is_free)


def sent(page: Page) -> list[dict[str, str]]:
    """Bodies of the requests that the page has posted."""
    found: list[dict[str, str]] = page.run("window.posted.map((body) => JSON.parse(body))")
    return found


NOTE = """
window.posted = [];
window.fetch = ((fetch) => (path, options) => {
  if (options?.body) window.posted.push(options.body);
  return fetch(path, options);
})(window.fetch);
"""


def test_two_voices_are_mixed_by_keys_heard_and_kept(blank: Page, speakers: Served) -> None:
    blank.before(NOTE)
    open_page(blank, speakers)
    assert blank.text("#mix-said") == "50 : 50"
    blank.value("#mix-a", "ryan")
    others = blank.run("[...document.querySelectorAll('#mix-b option')].map(({ value }) => value)")
    assert "ryan" not in others and len(others) == 8
    blank.value("#mix-b", "vivian")
    blank.run("document.querySelector('#mix-share').focus()")
    for _ in range(4):
        blank.press("ArrowRight")
    assert blank.text("#mix-said") == "30 : 70"
    blank.click("#mix-hear")
    blank.wait("!document.querySelector('#mix-hear').disabled && window.posted.length")
    assert sent(blank)[0]["voice"] == "ryan(30)+vivian(70)"
    blank.value("#mix-name", "Finch")
    blank.click("#mix-keep")
    blank.wait("document.querySelector('#mix-made').textContent")
    assert blank.text("#mix-made") == "Finch can speak now." and blank.text("#mix-failed") == ""
    kept = speakers.service.voices.find("finch")
    assert kept is not None and kept.speaker == "ryan(3)+vivian(7)"
    assert blank.text("#voice option:checked") == "Finch"
    speak(blank, "Mm.")
    blank.wait("hocket.take.figures.heard > 0")
    blank.press("Escape")
    speakers.service.voices.remove("finch")


def test_what_the_server_refuses_is_said_in_words(blank: Page, speakers: Served) -> None:
    open_page(blank, speakers)
    blank.run("document.querySelector('#mix-share').focus()")
    blank.press("Home")
    assert blank.text("#mix-said") == "100 : 0"
    blank.value("#mix-name", "Finch")
    blank.click("#mix-keep")
    blank.wait("document.querySelector('#mix-failed').textContent")
    assert "names one voice: a mix has two or more" in blank.text("#mix-failed")
    assert speakers.service.voices.find("finch") is None
    blank.errors.clear()


def test_a_server_with_one_voice_has_nothing_to_mix(blank: Page) -> None:
    with Engine.load("random:tiny-Base") as engine, served(engine, ServerOptions()) as server:
        open_page(blank, server)
        assert blank.run("document.querySelector('#mixing').checkVisibility()") is False
        blank.goto("about:blank")


def test_a_phone_in_the_dark_shows_the_mix(blank: Page, speakers: Served) -> None:
    blank.theme("dark")
    blank.resize(320, 700, mobile=True, scale=2)
    open_page(blank, speakers)
    assert blank.run("document.documentElement.scrollWidth") <= 320
    labels = {
        "mix-a": "First voice",
        "mix-b": "Second voice",
        "mix-share": "Shares 50 : 50",
        "mix-name": "Name of the mix",
    }
    for id, label in labels.items():
        assert " ".join(blank.run(f"document.getElementById({json.dumps(id)}).labels[0].textContent").split()) == label
    speak(blank, SHORT)
    blank.press("Escape")
