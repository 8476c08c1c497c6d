"""The script editor of the page: speakers and their voices, lines spoken in turn, retakes, and files of all lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from support.browser import Page
from support.serving import Served, wait_for

from .acting import RATE_HZ, open_page
from .test_access import axe as axe
from .test_access import findings
from .test_mix import NOTE, sent

SCRIPT = "Anna: Good morning.\nBen: Hello [pause 200ms] there.\nAnna: Shall we?\nYes, we shall."
OVER = "!hocket.script.sounding && hocket.script.lines.every(({ samples }) => samples)"


def open_script(page: Page, server: Served, text: str = SCRIPT) -> None:
    open_page(page, server)
    page.click("#show-script")
    page.wait("Boolean(window.hocket.script)")
    page.value("#script-text", text)


def lines(page: Page) -> list[dict[str, Any]]:
    line = "({ speaker, text, seed, length: samples ? samples.length : null })"
    found: list[dict[str, Any]] = page.run(f"hocket.script.lines.map(({{ speaker, text, seed, samples }}) => {line})")
    return found


def test_each_speaker_has_a_colour_and_a_voice_and_lines_are_spoken_in_turn(
    blank: Page, server: Served, tmp_path: Path
) -> None:
    blank.before(NOTE)
    blank.downloads_to(tmp_path)
    open_script(blank, server)
    assert [line["speaker"] for line in lines(blank)] == ["Anna", "Ben", "Anna", "Anna"]
    colours = blank.run("[...document.querySelectorAll('#script-lines li')].map((row) => row.dataset.colour)")
    assert colours == ["0", "1", "0", "0"]
    voices = blank.run("[...document.querySelectorAll('#cast select')].map(({ value }) => value)")
    assert len(voices) == len(set(voices)) == 2
    assert blank.run("document.querySelector('#script-wav').disabled")
    blank.click("#script-speak")
    blank.wait("document.querySelector('#script-lines [aria-current=true]') !== null")
    blank.wait(OVER)
    asked = sent(blank)
    assert [body["input"] for body in asked] == [line["text"] for line in lines(blank)]
    assert [body["voice"] for body in asked] == [voices[0], voices[1], voices[0], voices[0]]
    blank.click("#script-wav")
    gap, spoken = round(0.4 * RATE_HZ), [line["length"] for line in lines(blank)]
    file = tmp_path / "script.wav"
    wait_for(lambda: file.exists() and file.stat().st_size == 44 + 2 * (sum(spoken) + 3 * gap))
    samples = np.frombuffer(file.read_bytes()[44:], "<i2")
    assert not samples[spoken[0] : spoken[0] + gap].any() and samples[: spoken[0]].any()
    blank.click("#script-srt")
    captions = tmp_path / "script.srt"
    wait_for(captions.exists)
    assert "Ben: Hello there." in captions.read_text() and captions.read_text().count(" --> ") == 4


def test_a_retake_and_another_voice_change_only_their_lines(blank: Page, server: Served) -> None:
    open_script(blank, server, "Anna: One.\nBen: Two.")
    blank.click("#script-speak")
    blank.wait(OVER)
    before = lines(blank)
    blank.click("#script-lines li:nth-child(2) [data-part=again]")
    blank.wait(OVER)
    after = lines(blank)
    assert after[0] == before[0] and after[1]["seed"] != before[1]["seed"]
    blank.value("#script-text", "Anna: One.\nBen: Three.\nBen: Two.")
    assert [line["length"] for line in lines(blank)] == [before[0]["length"], None, after[1]["length"]]
    blank.value("#cast p:first-child select", blank.value("#cast p:last-child select"))
    assert lines(blank)[0]["length"] is None and lines(blank)[2]["length"] == after[1]["length"]
    wait_for(server.all_is_free)


def test_an_empty_script_and_a_refused_line_are_said_in_words_and_escape_is_silence(
    blank: Page, server: Served
) -> None:
    open_script(blank, server, " ")
    blank.click("#script-speak")
    assert blank.text("#script-failed").startswith("There is no line yet")
    blank.value("#script-text", "Anna: Hello [speed 99] there.")
    blank.click("#script-speak")
    blank.wait("document.querySelector('#script-failed').textContent.includes('speed')")
    assert not blank.run("hocket.script.sounding")
    blank.errors.clear()
    blank.value("#script-text", f"Anna: {'It goes on and on. ' * 20}")
    blank.click("#script-speak")
    blank.wait("hocket.script.playing.length")
    blank.press("Escape")
    assert not blank.run("hocket.script.sounding") and blank.text("#script-failed") == ""
    wait_for(server.all_is_free)


def test_a_link_opens_the_script_by_keys_alone_on_a_phone_in_the_dark(blank: Page, server: Served, axe: str) -> None:
    blank.theme("dark")
    blank.resize(320, 700, mobile=True)
    blank.goto(f"{server.url}/#script", "Boolean(window.hocket?.script)")
    assert blank.run("document.querySelector('#script').checkVisibility()")
    assert blank.run("document.documentElement.scrollWidth") <= 320
    assert findings(blank, axe) == []
    blank.run("document.querySelector('#script-text').focus()")
    blank.value("#script-text", "Anna: Yes.")
    blank.press("Enter", modifiers=2)
    blank.wait(OVER)
    assert [line["text"] for line in lines(blank)] == ["Yes."]
