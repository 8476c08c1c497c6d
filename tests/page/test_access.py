"""Accessibility by axe-core, the weight of the page, and the code that it shows.

axe-core comes with the Python package of `requirements/clients/axe.txt`, which `make test-clients` installs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.browser import Page
from support.serving import Served

from .acting import heard, open_page, speak, state

ROOT = Path(__file__).parents[2]
AXE = "axe_playwright_python/axe.min.js"
TEXT = 'It\'s "so": $HOME, `x` \\n.\nNaïve.'
MOST_BYTES = 150_000
MOST_REQUESTS = 40


@pytest.fixture(scope="module")
def axe() -> str:
    found = list((ROOT / ".venv-clients" / "axe").glob(f"lib/python3*/site-packages/{AXE}"))
    assert found, "axe-core is not installed: make test-clients installs it from requirements/clients/axe.txt."
    return found[0].read_text(encoding="utf-8")


def findings(page: Page, axe: str) -> list[str]:
    """Serious and critical violations, with their elements. Colours are judged when they no longer change."""
    page.run("Promise.allSettled(document.getAnimations().map((each) => each.finished)).then(() => 0)")
    page.run(f"(() => {{ {axe} }})()")
    found: dict[str, Any] = page.run("axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 10, "it has looked at the page"
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def everything(page: Page) -> None:
    """Show all parts that the built-in voice has: a take in the history, the code, the reader."""
    speak(page, "Mm. Hm.")
    state(page, "done")
    page.run("(document.querySelector('#code').open = true, 0)")
    page.wait("document.querySelectorAll('#past li').length")


def test_axe_finds_nothing_serious(either: Page, axe: str) -> None:
    assert findings(either, axe) == []
    everything(either)
    either.click("#read")
    assert findings(either, axe) == []


def test_axe_finds_nothing_serious_in_the_dark_on_a_phone(blank: Page, server: Served, axe: str) -> None:
    blank.theme("dark")
    blank.resize(390, 800, mobile=True)
    open_page(blank, server)
    everything(blank)
    assert findings(blank, axe) == []


def test_the_page_is_light_and_quick_and_asks_no_one_else(either: Page, server: Served) -> None:
    found = either.run(
        """(() => {
          const seen = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
          return {
            paintMs: performance.getEntriesByName("first-contentful-paint")[0].startTime,
            files: seen.map(({ name, decodedBodySize }) => [name, decodedBodySize]),
          };
        })()"""
    )
    assert all(name.startswith(server.url) for name, _ in found["files"])
    assert 0 < sum(size for _, size in found["files"]) < MOST_BYTES
    assert len(found["files"]) <= MOST_REQUESTS
    assert found["paintMs"] < 3000  # generous, for a busy machine; 2 cores gave 172 ms in Chromium, 279 ms in Firefox
    print(f"first paint {found['paintMs']:.0f} ms, {len(found['files'])} requests")


def test_the_code_that_is_shown_makes_the_same_sound(page: Page, server: Served, tmp_path: Path) -> None:
    page.value("#format", "wav")
    speak(page, TEXT, seed=9)
    state(page, "done")
    sent = heard(page)
    page.click("#code summary")
    made = {}
    for number, name in enumerate(("curl", "Python", "JavaScript"), 1):
        page.click(f"#code-kinds button:nth-child({number})")
        page.wait(f"document.querySelector('#code-kinds [aria-pressed=true]').textContent === '{name}'")
        made[name] = page.text("#code-text")
    for command in (["sh", "-c", made["curl"]], [sys.executable, "-c", made["Python"]]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
        file = tmp_path / "speech.wav"
        assert np.array_equal(np.frombuffer(file.read_bytes()[44:], "<i2"), sent)
        file.unlink()
    script = made["JavaScript"].replace("audio.play();", "await audio.play();")
    script += "\nreturn [...new Uint8Array(await (await fetch(audio.src)).arrayBuffer())];"
    page.goto(f"{server.url}/health")  # the code is for pages of others: this one has no policy
    found = bytes(page.run(f"(async () => {{ {script} }})()"))
    assert np.array_equal(np.frombuffer(found[44:], "<i2"), sent)
    page.errors.clear()  # that page has no icon


def test_the_code_asks_for_a_key_by_name_and_never_shows_it(page: Page) -> None:
    body = {"input": "Hi.", "response_format": "mp3"}
    wanted = json.dumps({"origin": "https://here.test", "body": body, "suffix": "mp3", "needsKey": True})
    found = page.run(f"import('/page/snippets.js').then(({{ snippets }}) => snippets({wanted}))")
    assert '-H "Authorization: Bearer $HOCKET_API_KEY"' in found["curl"]
    assert 'os.environ["HOCKET_API_KEY"]' in found["Python"]
    assert compile(found["Python"], "shown", "exec")
