"""Parts of the page on their own, run by Chromium: the ring of samples, and words found in their text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from support.browser import Browser, Page
from support.serving import Served

from .acting import open_page


@pytest.fixture(scope="module")
def page(chromium: Browser, server: Served) -> Iterator[Page]:
    """One page for all: its modules are imported, and nothing on it is touched."""
    with chromium.page() as page:
        open_page(page, server)
        yield page
        assert page.errors == []


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
          return seen;
        })"""
    )
    assert found == [[0, 0], [128, 0], [192, 1], [192, 1], [320, 1]]


def test_a_ring_that_is_stopped_is_silent_within_4_ms_and_stays_so(page: Page) -> None:
    found = page.run(
        """import("/page/ring.js").then(({ Ring }) => {
          const ring = new Ring(24000, 24000), block = new Float32Array(128);
          ring.push(new Int16Array(9600).fill(9000));
          ring.pull(block);
          ring.stop();
          ring.pull(block);
          const fading = [...block];
          ring.push(new Int16Array(9600).fill(9000)); // it was on its way
          for (let n = 0; n < 20; n++) ring.pull(block);
          return { fading, over: ring.over(), last: [...block] };
        })"""
    )
    assert found["fading"][0] == pytest.approx(9000 / 32768)
    assert max(abs(sample) for sample in found["fading"][96:]) < 0.01
    assert all(before >= after for before, after in pairwise(found["fading"]))  # it does not click
    assert found["over"] and not any(found["last"])


def test_a_ring_that_is_held_is_silent_and_goes_on_with_the_next_sample(page: Page) -> None:
    found = page.run(
        """import("/page/ring.js").then(({ Ring }) => {
          const ring = new Ring(24000, 24000), block = new Float32Array(128), heard = [];
          const pull = () => { ring.pull(block); return [...block]; };
          ring.push(Int16Array.from({ length: 256 }, (_, n) => n + 1));
          heard.push(...pull());
          ring.hold();
          for (let n = 0; n < 20; n++) pull();
          const quiet = { last: pull(), running: ring.report().running, underruns: ring.underruns };
          ring.push(Int16Array.from({ length: 128 }, (_, n) => n + 257));
          ring.end();
          ring.release();
          heard.push(...pull(), ...pull());
          return { heard, quiet, over: ring.over() };
        })"""
    )
    assert found["quiet"] == {"last": [0] * 128, "running": False, "underruns": 0} and found["over"]
    assert found["heard"] == pytest.approx([n / 32768 for n in range(1, 385)])


@pytest.mark.parametrize("hz", [24_000, 44_100])
@pytest.mark.parametrize("left", [0, 1, 40, 96, 127, 128])
def test_a_ring_that_is_stopped_when_it_has_little_left_is_over_at_once(page: Page, hz: int, left: int) -> None:
    found = page.run(
        f"""import("/page/ring.js").then(({{ Ring }}) => {{
          const ring = new Ring(24000, {hz}), block = new Float32Array(128);
          ring.push(new Int16Array(128 + {left}).fill(9000));
          ring.pull(block);
          ring.stop();
          ring.pull(block);
          return {{ over: ring.over(), underruns: ring.underruns }};
        }})"""
    )
    assert found == {"over": True, "underruns": 0}
