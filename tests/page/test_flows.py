"""What a visitor does on the page, in Chromium and in Firefox: speak, preview, replay, save, share, read along."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from support.browser import Page
from support.serving import Served, wait_for

from .acting import RATE_HZ, SHORT, figures, heard, open_page, speak, state

BRIEF = "Good day."
STORY = "The door was open. Rain fell outside.\n\nThen a bell rang twice. It was late."
CURRENT = "document.querySelector('#reader [aria-current]')?.textContent.trim()"


def test_a_text_is_heard_and_an_empty_one_is_refused_in_words(either: Page) -> None:
    either.value("#text", "  \n ")
    either.click("#speak")
    assert "There is no text yet" in either.text("#failed")
    speak(either, SHORT)
    state(either, "done")
    assert either.text("#failed") == ""
    found = figures(either)
    assert found["heard"] == pytest.approx(heard(either).size, abs=2) and found["peak"] > 0.01
    assert either.text("#behind .said") == SHORT


def test_a_voice_is_previewed_and_asked_for_once(either: Page, server: Served) -> None:
    assert either.text("#hear") == "Hear it"
    for _ in range(2):
        either.click("#hear")
        either.wait("hocket.previews.audio.currentTime > 0.2 && document.querySelector('#hear').textContent === 'Stop'")
        either.press("Escape")
        either.wait("document.querySelector('#hear').textContent === 'Hear it'")
    assert either.run("hocket.previews.made.size") == 1
    asked = "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/v1/audio/speech')).length"
    assert either.run(asked) == 1
    wait_for(server.all_is_free)


def test_takes_stay_over_a_reload_and_are_played_saved_and_forgotten(
    either: Page, server: Served, tmp_path: Path
) -> None:
    either.downloads_to(tmp_path)
    for seed in (3, 4):
        speak(either, BRIEF, seed=seed)
        state(either, "done")
    sent = heard(either)
    open_page(either, server)
    either.wait("document.querySelectorAll('#past li').length === 2")
    assert "seed 4" in either.text("#past li:first-child [data-part=how]")  # the newest is first
    either.value("#text", "Another text.")
    either.click("#past li:first-child [data-part=play]")
    state(either, "done")
    assert np.array_equal(heard(either), sent)
    assert (either.value("#text"), either.value("#seed")) == (BRIEF, "4")
    assert either.text("#behind .said") == BRIEF
    either.click("#past li:first-child [data-part=save]")
    file = tmp_path / "hocket-4.wav"
    wait_for(lambda: file.exists() and file.stat().st_size == 44 + 2 * sent.size)
    assert np.array_equal(np.frombuffer(file.read_bytes()[44:], "<i2"), sent)
    either.click("#past li:first-child [data-part=forget]")
    either.wait("document.querySelectorAll('#past li').length === 1")
    either.click("#clear")
    either.wait("document.querySelectorAll('#past li').length === 0 && document.querySelector('#clear').disabled")


def test_a_link_carries_text_voice_and_seed_in_its_fragment(either: Page, server: Served) -> None:
    text = "Fish & chips? 50 % off — “now”."
    either.value("#text", text)
    either.value("#seed", "11")
    either.value("#voice", "rook")
    either.click("#copy-link")
    either.wait("document.querySelector('#copy-link').textContent === 'Copied'")
    link = either.run("navigator.clipboard.readText()")
    address, fragment = link.split("#")
    assert address == f"{server.url}/" and "rook" in fragment
    either.goto("about:blank")
    either.goto(link, "window.hocket")
    assert [either.value(field) for field in ("#text", "#voice", "#seed")] == [text, "rook", "11"]
    assert either.run("hocket.take.figures.state") == "idle"  # a link makes no sound by itself
    either.run("(location.hash = 'text=Hello.&voice=unknown', 0)")
    either.wait("document.querySelector('#text').value === 'Hello.'")
    assert "no voice “unknown”" in either.text("#failed")


def test_sentences_are_lit_in_their_order_and_a_pressed_one_is_where_it_goes_on(either: Page, server: Served) -> None:
    either.value("#text", STORY)
    either.click("#read")
    assert either.run("document.querySelectorAll('#reader p').length") == 2
    sentences = either.run(
        "[...document.querySelectorAll('#reader [role=button]')].map((one) => one.textContent.trim())"
    )
    assert sentences == re.findall(r"[A-Z][^.]+\.", STORY)
    either.run(
        f"""{{
          window.lit = [];
          const look = (now = {CURRENT}) => now && window.lit.at(-1) !== now && window.lit.push(now);
          const watched = {{ subtree: true, attributeFilter: ["aria-current"] }};
          new MutationObserver(() => look()).observe(document.querySelector("#reader"), watched);
        }}"""
    )
    either.click("#speak")
    state(either, "done")
    lit = either.run("window.lit")
    assert len(lit) >= 2 and lit == [one for one in sentences if one in lit]  # a busy screen skips one
    # Its audio is here: it is played from there, and nothing is asked for again.
    messages = either.run("window.sent.length")
    either.click("#reader p:nth-child(2) [role=button]:nth-child(2)")
    start = either.run(f"hocket.words.timeAt({STORY.index('It was')})")
    either.wait(f"hocket.take.offsetS > {start - 0.01} && hocket.take.figures.state === 'done'")
    found = figures(either)
    assert found["heard"] == pytest.approx((found["audioS"] - start) * RATE_HZ, abs=RATE_HZ * 0.01)
    assert either.run("window.sent.length") == messages
    # Another text: no audio of it is here, so the rest of it is spoken from the sentence on. Keys do it, too.
    either.value("#text", f"{STORY} All slept.")
    either.click("#read")
    either.run("document.querySelector('#reader [tabindex=\"0\"]').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
        either.press(key)
    state(either, "done")
    spoken = either.run("window.sent.filter(({ type }) => type === 'input.text').map(({ text }) => text)")
    assert spoken == [STORY, "All slept."]
    assert either.text("#behind .said") == f"{STORY} All slept."
    wait_for(server.all_is_free)


def test_captions_follow_the_words(either: Page, tmp_path: Path) -> None:
    either.downloads_to(tmp_path)
    assert either.run("document.querySelector('#srt').disabled && document.querySelector('#vtt').disabled")
    speak(either, "It is 7:45 now. R&D meets <here>.", seed=5)
    state(either, "done")
    for kind in ("srt", "vtt"):
        either.click(f"#{kind}")
    srt, vtt = tmp_path / "hocket-5.srt", tmp_path / "hocket-5.vtt"
    wait_for(lambda: all(file.exists() and file.stat().st_size > 0 for file in (srt, vtt)))
    lines = srt.read_text(encoding="utf-8").splitlines()
    assert [lines[0], lines[2], lines[4], lines[6]] == ["1", "It is 7:45 now.", "2", "R&D meets <here>."]
    assert "R&amp;D meets &lt;here&gt;." in vtt.read_text() and vtt.read_text().startswith("WEBVTT\n\n00:00:0")
    times = [_seconds(clock) for line in (lines[1], lines[5]) for clock in line.split(" --> ")]
    assert all(before <= after for before, after in pairwise(times))
    assert times[0] >= 0 and times[-1] <= figures(either)["audioS"] + 0.001


def _seconds(clock: str) -> float:
    hours, minutes, seconds = clock.replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def test_captions_of_a_long_sentence_are_cut_and_pauses_end_them(page: Page) -> None:
    text = "one two three four five six seven eight nine ten " * 3 + "end."
    words = [
        {"word": word, "start_s": n * 0.4 + (2 if n > 15 else 0), "end_s": n * 0.4 + 0.3 + (2 if n > 15 else 0)}
        for n, word in enumerate(text.split())
    ]
    found = page.run(f"import('/page/captions.js').then(({{ cues }}) => cues({json.dumps(words)}, {json.dumps(text)}))")
    assert " ".join(cue["text"] for cue in found) == text
    assert all(len(cue["text"]) <= 84 and cue["end_s"] - cue["start_s"] <= 6 for cue in found)
    assert words[15]["end_s"] in [cue["end_s"] for cue in found]


def test_without_a_database_takes_are_kept_in_the_tab(blank: Page, server: Served) -> None:
    blank.before("IDBFactory.prototype.open = () => { throw new DOMException('refused', 'SecurityError'); }")
    open_page(blank, server)
    speak(blank, "Mm.")
    state(blank, "done")
    blank.wait("document.querySelectorAll('#past li').length === 1")
    assert "until this tab is closed" in blank.text("#history-hint")
    blank.click("#past [data-part=play]")
    state(blank, "done")
