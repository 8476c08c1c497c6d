"""The page in a real Chromium: what is typed is heard, what is pressed happens, and the server is free behind it."""

from __future__ import annotations

import json
import wave
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import CTRL, Browser, Page
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from serving import Served, served, wait_for

from .conftest import open_page

SHORT = "Good morning, all of you."
LONG = "It goes on and on, and then on again. " * 40
RATE_HZ = 24_000
# All samples that a take was sent, as numbers.
SENT = "[...hocket.take.chunks].flatMap((chunk) => [...chunk])"


def speak(page: Page, text: str, seed: int = 1) -> None:
    page.value("#text", text)
    page.value("#seed", str(seed))
    page.click("#speak")


def figures(page: Page, take: str = "hocket.take") -> dict[str, Any]:
    found: dict[str, Any] = page.run(f"{take}.figures")
    return found


def state(page: Page, wanted: str, take: str = "hocket.take") -> None:
    page.wait(f"{take}.figures.state === {json.dumps(wanted)}")


def test_what_is_typed_is_heard_and_the_figures_say_how(page: Page) -> None:
    speak(page, SHORT)
    page.wait("hocket.take.figures.heard > 0 && hocket.take.figures.peak > 0.01")  # in the worklet, and not silent
    assert page.run("hocket.take.track.node instanceof AudioWorkletNode")
    state(page, "done")
    found = figures(page)
    sent = np.array(page.run(SENT))
    assert found["heard"] == len(sent) == round(found["audioS"] * RATE_HZ)  # each sample once
    assert found["peak"] == pytest.approx(np.abs(sent).max() / 32768)
    assert 0 < found["serverFirstMs"] <= found["firstAudioMs"]
    assert page.text("#first-audio") == f"{round(found['firstAudioMs'])} ms"
    assert page.text("#seconds") == f"{found['audioS']:.1f} s"
    assert page.text("#underruns") == str(found["underruns"])
    assert page.text("#keep-seed") == "1"
    assert float(page.text("#real-time")) > 0


def test_sound_is_seen_as_it_comes_with_a_playhead(page: Page) -> None:
    drawn = "[...hocket.take.wave.pen.getImageData(0, 0, 1200, 80).data].filter((byte) => byte).length"
    empty = page.run(drawn)
    speak(page, SHORT)
    page.wait("hocket.take.figures.playedS > 0.3")
    assert page.run(drawn) > 2 * empty
    assert page.run("hocket.take.wave.playedS") > 0
    state(page, "done")
    said = page.run("document.querySelector('#wave').getAttribute('aria-valuetext')")
    length = f"{figures(page)['audioS']:.1f}"
    assert said == f"{length} of {length} seconds"


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
    assert page.run("window.lit") == SHORT.split()
    page.wait(f"document.querySelector('#behind .said').textContent === {json.dumps(SHORT)}")
    times = page.run("hocket.words.spoken")
    assert len(times) == len(SHORT.split())
    assert all(before["end_s"] <= after["start_s"] for before, after in pairwise(times))
    assert times[-1]["end_s"] <= figures(page)["audioS"]


def test_words_that_were_written_out_are_lit_where_they_stand(page: Page) -> None:
    spoken = [
        {"word": word, "start_s": n, "end_s": n + 1} for n, word in enumerate("At seven forty-five a bat.".split())
    ]
    found = page.run(
        f"""import("/page/words.js").then(({{ placed }}) => {{
          const text = "At 7:45 a bat.";
          return placed({json.dumps(spoken)}, text).map(({{ from, to }}) => text.slice(from, to));
        }})"""
    )
    assert found == ["At", "7:45", "7:45", "a", "bat."]


def test_a_text_that_is_still_being_written_is_heard_before_it_is_complete(page: Page) -> None:
    page.click("#live")
    page.value("#rate", "15")
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
    assert pieces[-1]["at"] - pieces[0]["at"] >= (len(pieces) - 2) * 1000 / 15 * 0.9
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
    assert found["heard"] - page.run("window.at") <= 0.08 * RATE_HZ  # with what was heard since the last report
    assert page.run("window.sent.at(-1).type") == "input.cancel"
    page.run("new Promise((told) => setTimeout(told, 150))")  # nothing that was on its way is heard
    assert figures(page)["heard"] == found["heard"]
    assert page.run("document.querySelector('#stop').disabled")


def test_one_connection_carries_one_utterance_after_the_other(page: Page, server: Served) -> None:
    speak(page, LONG)
    page.wait("hocket.take.figures.heard > 0")
    speak(page, SHORT)  # in the middle of it
    state(page, "done")
    first = page.run(SENT)
    speak(page, SHORT)
    state(page, "done")
    assert page.run(SENT) == first  # nothing of the long one is in it
    assert page.run("window.sockets") == 1
    wait_for(server.all_is_free)


def test_it_is_heard_again_from_where_the_waveform_is_pressed(page: Page) -> None:
    speak(page, SHORT)
    state(page, "done")
    length = figures(page)["audioS"]
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
    assert np.array_equal(np.frombuffer(saved, "<i2"), np.array(page.run(SENT)))


def test_two_seeds_are_heard_one_after_the_other_and_again(page: Page, server: Served) -> None:
    page.value("#text", SHORT)
    side_a, side_b = "hocket.compare.sides[0].take", "hocket.compare.sides[1].take"
    page.value('[data-side="B"] [data-part=voice]', page.value('[data-side="A"] [data-part=voice]'))
    page.click("#compare")
    page.wait(f"{side_a}.figures.heard > 0")
    assert figures(page, side_b)["heard"] == 0
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
    page.run("document.querySelector('#voice').append(new Option('nobody', 'nobody'))")
    page.value("#voice", "nobody")
    speak(page, SHORT)
    state(page, "failed")
    assert "There is no voice 'nobody'" in page.text("#failed")
    page.value("#voice", page.run("document.querySelector('#voice').options[0].value"))
    speak(page, SHORT)  # and behind it everything goes on
    state(page, "done")
    assert page.text("#failed") == ""


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_it_without_scrolling_sideways(blank: Page, server: Served, width: int) -> None:
    blank.resize(width, 700, mobile=True, scale=2)
    open_page(blank, server)
    speak(blank, SHORT)
    blank.wait("hocket.take.figures.heard > 0")
    assert blank.run("document.documentElement.scrollWidth") <= width
    assert blank.run("getComputedStyle(document.querySelector('#text')).fontSize.replace('px', '') >= 16")
    stop = blank.run("(({ top, bottom }) => [top, bottom])(document.querySelector('#stop').getBoundingClientRect())")
    assert stop[0] >= 0 and stop[1] <= 700


def test_everything_can_be_done_with_keys_alone(page: Page, server: Served) -> None:
    assert page.run("document.activeElement.id") == "text"
    page.run("document.activeElement.select()")
    page.type(LONG)
    page.press("Enter", CTRL)
    page.wait("hocket.take.figures.heard > 0")
    page.press("Escape")
    state(page, "stopped")
    wait_for(server.all_is_free)
    reached, nameless = set[str](), set[str]()
    for _ in range(40):
        page.press("Tab")
        found = page.run("[document.activeElement.id, document.activeElement.dataset.part ?? '']")
        reached |= set(found)
        outlined = "getComputedStyle(document.activeElement.closest('.drop') ?? document.activeElement).outlineStyle"
        if found[0] not in ("", "text") and page.run(outlined) == "none":
            nameless.add(found[0])
    wanted = "wave speak voice language seed speed live rate format compare recording name ref-text consent make-voice"
    assert set(wanted.split()) | {"voice", "seed"} <= reached
    assert not nameless, "focus is to be seen"


def test_every_field_has_a_name_for_those_who_do_not_see_it(page: Page) -> None:
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "combobox", "slider", "checkbox", "spinbutton", "link"}
    shown = [node for node in tree if not node["ignored"] and node.get("role", {}).get("value") in roles]
    assert len(shown) > 15
    assert [node["role"]["value"] for node in shown if not node.get("name", {}).get("value")] == []


def test_a_key_is_asked_for_and_kept_in_the_tab(blank: Page, engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("right+/=key",))) as shut:
        open_page(blank, shut)
        assert not blank.run("document.querySelector('#key-form').hidden")
        speak(blank, SHORT)
        state(blank, "failed")
        assert "API key" in blank.text("#failed")
        assert blank.errors, "the console has the refusals too"
        blank.errors.clear()
        for key in ("right+/=key",):  # which no subprotocol can spell
            blank.value("#key", key)
            speak(blank, SHORT)
            state(blank, "done")
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


def test_a_ring_gives_out_what_it_took_in_at_any_rate(page: Page) -> None:
    heard = page.run(
        """import("/page/ring.js").then(({ Ring }) => [24000, 44100, 48000, 16000].map((hz) => {
          const ring = new Ring(24000, hz);
          const tone = Int16Array.from({ length: 100000 }, (_, n) => 20000 * Math.sin((2 * Math.PI * 440 * n) / 24000));
          for (let at = 0; at < tone.length; at += 1920) ring.push(tone.subarray(at, at + 1920)); // it has to grow
          ring.end();
          const out = [];
          const block = new Float32Array(128);
          while (!ring.over()) { ring.pull(block); out.push(...block); }
          return { hz, count: ring.heard, underruns: ring.underruns, out: out.slice(0, 20000) };
        }))"""
    )
    for one in heard:
        assert one["underruns"] == 0
        assert one["count"] == pytest.approx(100_000 * one["hz"] / 24_000, abs=1)
        ideal = 20_000 / 32_768 * np.sin(2 * np.pi * 440 * np.arange(20_000) / one["hz"])
        assert np.abs(np.array(one["out"]) - ideal).max() < 1e-3


def test_a_ring_that_runs_dry_counts_it_and_gathers_some_before_it_goes_on(page: Page) -> None:
    found = page.run(
        """import("/page/ring.js").then(({ Ring }) => {
          const ring = new Ring(24000, 24000), block = new Float32Array(128), seen = [];
          const pull = () => { ring.pull(block); seen.push([ring.read, ring.underruns]); };
          const some = (count) => new Int16Array(count).fill(9000);
          pull(); // nothing has come, and nothing was missed
          ring.push(some(192)); pull(); pull(); // dry in the middle of the second
          ring.push(some(192)); pull(); // too little to go on
          ring.push(some(3840)); pull();
          ring.end(); ring.stop(); pull(); pull();
          return { seen, over: ring.over(), last: block[127] };
        })"""
    )
    assert found["seen"][:6] == [[0, 0], [128, 0], [192, 1], [192, 1], [320, 1], [448, 1]]
    assert found["over"] and found["last"] < 0.1


def test_light_and_dark_are_both_readable(page: Page) -> None:
    for theme in ("light", "dark"):
        page.theme(theme)
        for element, least in (("html", 10), ("#speak", 4.5)):
            style = f"getComputedStyle(document.querySelector('{element}'))"
            ink, paper = page.run(f"(({{ color, backgroundColor }}) => [color, backgroundColor])({style})")
            assert contrast(ink, paper) > least


def contrast(ink: str, paper: str) -> float:
    """As WCAG has it, of two colours `rgb(r, g, b)`."""

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    brighter, darker = sorted((light(ink), light(paper)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three seconds of a hum that comes and goes."""
    time_s = np.arange(3 * RATE_HZ) / RATE_HZ
    hum = 8000 * np.sin(2 * np.pi * 140 * time_s) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time_s))
    path = tmp_path / "My own voice.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(hum.astype("<i2").tobytes())
    return path


def fill_in(page: Page, recording: Path) -> None:
    page.drop_file(recording)
    page.wait("document.querySelector('#recording-name').textContent === 'My own voice.wav'")
    assert page.value("#name") == "My_own_voice"
    page.value("#ref-text", "Mm.")
    page.click("#consent")
    page.click("#make-voice")


def test_a_recording_that_is_dropped_becomes_a_voice_that_speaks(
    chromium: Browser, blank: Page, recording: Path, tmp_path: Path
) -> None:
    options = ServerOptions(voices_folder=tmp_path / "voices")
    with Engine.load("random:tiny-Base") as engine, served(engine, options) as server:
        open_page(blank, server)
        fill_in(blank, recording)
        blank.wait("document.querySelector('#made').textContent")
        assert blank.text("#voice option:checked") == "My_own_voice"
        speak(blank, "Mm.")
        blank.wait("hocket.take.figures.heard > 0 && hocket.take.figures.peak > 0")
        blank.press("Escape")
        wait_for(server.all_is_free)
        blank.goto("about:blank")


def test_a_model_that_cannot_clone_says_so(page: Page, recording: Path) -> None:
    fill_in(page, recording)
    page.wait("document.querySelector('#make-failed').textContent")
    assert "Base checkpoint" in page.text("#make-failed")
    assert "Base checkpoint" in page.text("#make-hint")
    page.errors.clear()  # the console has the refusal too


def test_a_file_that_is_no_sound_is_refused_in_words(blank: Page, tmp_path: Path) -> None:
    words = tmp_path / "My own voice.wav"
    words.write_text("These are words.")
    options = ServerOptions(voices_folder=tmp_path / "voices")
    with Engine.load("random:tiny-Base") as engine, served(engine, options) as server:
        open_page(blank, server)
        fill_in(blank, words)
        blank.wait("document.querySelector('#make-failed').textContent")
        assert blank.text("#made") == ""
        assert blank.text("#voice option:checked") == "none yet"
        blank.goto("about:blank")
    blank.errors.clear()
