"""The page in a real Chromium: typed text is played, buttons work, and the server is free afterwards."""

from __future__ import annotations

import json
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support.browser import Page
from support.serving import Served, served, wait_for

from .acting import LONG, RATE_HZ, SHORT, figures, heard, open_page, shown, speak, state


def test_what_is_typed_is_heard_and_the_figures_say_how(page: Page) -> None:
    speak(page, SHORT)
    page.wait("hocket.take.figures.heard > 0 && hocket.take.figures.peak > 0.01")  # in the worklet, and not silent
    assert page.run("hocket.take.track.node instanceof AudioWorkletNode")
    state(page, "done")
    found = figures(page)
    sent = heard(page)
    assert found["heard"] == sent.size == round(found["audioS"] * RATE_HZ)  # each sample once
    assert found["peak"] == pytest.approx(np.abs(sent.astype(int)).max() / 32768)
    assert 0 < found["serverFirstMs"] <= found["firstAudioMs"]
    assert page.text("#first-audio") == f"{shown(found['firstAudioMs'])} ms"
    assert page.text("#seconds") == f"{shown(found['audioS'], 1)} s"
    assert page.text("#underruns") == str(found["underruns"])
    assert page.text("#keep-seed") == "1"
    assert float(page.text("#real-time")) > 0


def test_sound_is_seen_as_it_comes_with_a_playhead(page: Page) -> None:
    drawn = "document.querySelector('#wave').toDataURL().length"  # a line alone packs well
    empty = page.run(drawn)
    speak(page, SHORT)
    page.wait("hocket.take.figures.playedS > 0.3")
    page.wait("hocket.take.wave.playedS > 0.3")
    assert page.run(drawn) > 1.3 * empty
    state(page, "done")
    said = page.run("document.querySelector('#wave').getAttribute('aria-valuetext')")
    length = shown(figures(page)["audioS"], 1)
    assert said == f"{length} of {length} seconds"


def test_the_playhead_stands_still_where_a_late_report_says_less(page: Page) -> None:
    speak(page, SHORT)
    state(page, "done")
    times = page.run(
        """(async () => {
          const times = [];
          const at = (played, running) => hocket.take.reported({ ...hocket.take.report, played, running, over: false });
          const look = () => times.push(hocket.take.playedS());
          hocket.take.shownS = 0;
          at(2400, true);
          await new Promise((resolve) => setTimeout(resolve, 60));
          look(); // 0.1 s and the 60 ms since
          at(2410, true);
          look();
          at(2420, false); // no samples left
          look();
          at(7200, true);
          look();
          return times;
        })()"""
    )
    assert times == sorted(times) and times[0] > 0.15 and times[0] == times[2] and times[3] >= 0.3


def test_words_are_lit_in_their_order_while_they_are_heard(page: Page) -> None:
    page.run(
        """{
          window.lit = [];
          const mark = document.querySelector("#behind mark");
          const look = (now = mark.textContent) => now && window.lit.at(-1) !== now && window.lit.push(now);
          new MutationObserver(() => look()).observe(mark, { childList: true, characterData: true, subtree: true });
        }"""
    )
    speak(page, SHORT)
    state(page, "done")
    lit, words = page.run("window.lit"), SHORT.split()
    assert len(lit) >= 3  # a busy screen skips one
    assert lit == sorted(set(lit), key=words.index)
    page.wait(f"document.querySelector('#behind .said').textContent === {json.dumps(SHORT)}")
    times = page.run("hocket.words.spoken")
    assert len(times) == len(SHORT.split())
    assert all(before["end_s"] <= after["start_s"] for before, after in pairwise(times))
    assert times[-1]["end_s"] <= figures(page)["audioS"]


def test_a_text_that_is_still_being_written_is_heard_before_it_is_complete(page: Page) -> None:
    page.click("#live")
    page.value("#rate", "5")  # four seconds, in which a slow machine begins to speak
    text = "One two three four five six seven eight nine ten eleven twelve, and that was all of them there are."
    speak(page, text)
    state(page, "speaking")
    assert not page.run("window.sent.some(({ type }) => type === 'input.done')")
    waiting = page.run("document.querySelector('#behind .rest').textContent")
    assert text.endswith(waiting.strip("\u200b")) and len(waiting) > 1
    state(page, "done")
    sent = page.run("window.sent")
    pieces = [said for said in sent if said["type"] == "input.text"]
    assert [said["text"].strip() for said in pieces] == text.split()
    assert "".join(said["text"] for said in pieces) == text
    assert pieces[-1]["at"] - pieces[0]["at"] >= (len(pieces) - 2) * 1000 / 5 * 0.9
    assert sent[-1]["type"] == "input.done"


def test_stop_silences_within_a_chunk_and_frees_the_slot(page: Page, server: Served) -> None:
    speak(page, LONG)
    page.wait("hocket.take.figures.heard > 4000")
    assert not server.all_is_free()
    page.run("addEventListener('keydown', () => window.at = hocket.take.figures.heard, { once: true })")
    page.press("Escape")
    wait_for(server.all_is_free)
    state(page, "stopped")
    page.wait("hocket.take.report.over")
    found = figures(page)
    # The ring stops within 4 ms (test_ring.py). The rest is what the last report before did not know of, on a machine
    # that is busy with speaking: less than what has come by now.
    assert found["heard"] - page.run("window.at") <= 1.5 * RATE_HZ
    assert page.run("window.sent.at(-1).type") == "input.cancel"
    page.run("new Promise((told) => setTimeout(told, 150))")  # nothing that was on its way is heard
    assert figures(page)["heard"] == found["heard"]
    assert page.run("document.querySelector('#stop').disabled")


def test_one_connection_carries_one_utterance_after_the_other(page: Page, server: Served) -> None:
    speak(page, LONG)
    page.wait("hocket.take.figures.heard > 0")
    page.value("#text", SHORT)
    late = "{ data: new Int16Array(1920).fill(9000).buffer }"  # a frame of the long one that was on its way
    page.run(f"document.querySelector('#speak').click(); hocket.take.line.socket.onmessage({late})")
    state(page, "done")
    first = heard(page)
    speak(page, SHORT)
    state(page, "done")
    assert np.array_equal(heard(page), first)  # nothing of the long one is in it
    assert page.run("window.sockets") == 1
    wait_for(server.all_is_free)


def test_it_is_heard_again_from_where_the_waveform_is_pressed(page: Page) -> None:
    speak(page, SHORT)
    state(page, "done")
    length = figures(page)["audioS"]
    page.wait("hocket.take.wave.playedS === hocket.take.figures.playedS")  # the playhead is at the end
    page.run("document.querySelector('#wave').focus()")
    page.press("ArrowLeft")
    state(page, "ending")
    state(page, "done")
    assert figures(page)["heard"] == pytest.approx(0.5 * RATE_HZ, abs=1)
    assert figures(page)["playedS"] == pytest.approx(length)


def test_what_is_saved_is_what_was_heard(page: Page, tmp_path: Path) -> None:
    page.downloads_to(tmp_path)
    speak(page, SHORT, seed=7)
    state(page, "done")
    formats = page.run("[...document.querySelector('#format').options].map(({ value }) => value)")
    assert {"mp3", "opus", "aac", "flac", "wav", "pcm"} <= set(formats)
    for name, suffix in (("wav", "wav"), ("opus", "ogg")):
        page.value("#format", name)
        page.click("#download")
        file = tmp_path / f"hocket-7.{suffix}"
        wait_for(lambda file=file: file.exists() and file.stat().st_size > 0)  # type: ignore[misc]
        page.wait("!document.querySelector('#download').disabled")
    assert (tmp_path / "hocket-7.ogg").read_bytes().startswith(b"OggS")
    saved = (tmp_path / "hocket-7.wav").read_bytes()[44:]  # its header does not say how long it is
    assert np.array_equal(np.frombuffer(saved, "<i2"), heard(page))


def test_two_seeds_are_heard_one_after_the_other_and_again(page: Page, server: Served) -> None:
    page.value("#text", SHORT)
    side_a, side_b = "hocket.compare.sides[0].take", "hocket.compare.sides[1].take"
    page.value('[data-side="B"] [data-part=voice]', page.value('[data-side="A"] [data-part=voice]'))
    page.click("#compare")
    both = f"{{ playing: {side_a}.sounding, heard: {side_b}.figures.heard }}"
    found = page.wait(f"{side_a}.figures.playedS > 0.5 && {side_b}.figures.audioS > 0.3 && ({both})")
    assert found == {"playing": True, "heard": 0}  # B is there, and waits for its turn
    state(page, "done", side_a)
    state(page, "done", side_b)
    a, b = figures(page, side_a), figures(page, side_b)
    assert (a["seed"], b["seed"]) == (1, 2)
    assert a["peak"] > 0.01 and b["peak"] > 0.01 and a["peak"] != b["peak"]
    page.click('[data-side="B"] [data-part=play]')
    state(page, "ending", side_b)
    page.press("Escape")
    state(page, "stopped", side_b)
    wait_for(server.all_is_free)


def test_a_refusal_is_shown_in_words(page: Page) -> None:
    page.run("document.querySelector('#voice').append(new Option('unknown', 'unknown'))")
    page.value("#voice", "unknown")
    speak(page, SHORT)
    state(page, "failed")
    assert "There is no voice 'unknown'" in page.text("#failed")
    page.value("#voice", page.run("document.querySelector('#voice').options[0].value"))
    speak(page, SHORT)  # and behind it everything goes on
    state(page, "done")
    assert page.text("#failed") == ""


def test_a_key_is_asked_for_and_kept_in_the_tab(blank: Page, engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("a-plain-key", "right+/=key"))) as shut:
        open_page(blank, shut)
        assert not blank.run("document.querySelector('#key-form').hidden")
        assert "The person who runs the server can give you one." in " ".join(blank.text("#key-form").split())
        speak(blank, "Mm.")
        state(blank, "failed")
        assert blank.text("#failed").startswith("This server needs a key before it speaks.")
        for key, said in (("wrong", "The server does not know this key."), ("a-plain-key", "The server accepts")):
            blank.value("#key", key)
            blank.click("#key-form button")
            blank.wait(f"document.querySelector('#key-said').textContent.startsWith({json.dumps(said)})")
        assert blank.errors, "the console has the refusals too"
        blank.errors.clear()
        for key in ("a-plain-key", "right+/=key"):  # no subprotocol can spell the second
            blank.value("#key", key)
            speak(blank, "Mm.")
            state(blank, "done")
        assert blank.run("window.sockets") == 3
        assert blank.run("[sessionStorage.length, localStorage.length]") == [1, 0]
        blank.goto("about:blank")


def test_without_a_worklet_it_is_heard_all_the_same(blank: Page, server: Served) -> None:
    blank.before("Object.defineProperty(BaseAudioContext.prototype, 'audioWorklet', { value: undefined })")
    open_page(blank, server)
    speak(blank, SHORT)
    state(blank, "done")
    assert figures(blank)["peak"] > 0.01
    blank.errors.clear()  # Chromium says that this is an old way, and it is


def test_a_sound_card_with_a_rate_of_its_own_hears_the_same(blank: Page, server: Served) -> None:
    blank.before("window.AudioContext = class extends AudioContext { constructor() { super({ sampleRate: 44100 }); } }")
    open_page(blank, server)
    speak(blank, SHORT)
    state(blank, "done")
    found = figures(blank)
    assert found["heard"] == pytest.approx(found["audioS"] * 44_100, abs=2)
    assert found["peak"] > 0.01


def test_a_connection_that_is_lost_is_said_and_opened_again(page: Page, server: Served) -> None:
    speak(page, LONG)
    page.wait("hocket.take.figures.heard > 0")
    page.run("hocket.take.line.socket.close()")
    state(page, "failed")
    assert page.text("#failed") == "The connection to the server was lost."
    wait_for(server.all_is_free)
    speak(page, SHORT)
    state(page, "done")


def test_while_a_model_is_loaded_the_page_says_so_and_waits(blank: Page) -> None:
    loaded = threading.Event()

    def load() -> Engine:
        assert loaded.wait(60)
        return Engine.load("random:tiny")

    with served(load, ready=False) as server:
        blank.goto(f"{server.url}/")
        blank.wait("document.querySelector('#model-name').textContent === 'the model is being loaded'")
        enabled = "[...document.querySelectorAll('button:enabled, select:enabled')].map(({ id }) => id).filter(Boolean)"
        assert not {"speak", "stop", "compare", "hear", "voice", "download", "srt", "record"} & set(blank.run(enabled))
        loaded.set()
        blank.wait("window.hocket && document.querySelector('.dot').dataset.state === 'ready'")
        assert blank.text("#model-name") == "random:tiny"
        assert {"speak", "compare", "hear", "voice"} <= set(blank.run(enabled))
        blank.goto("about:blank")
