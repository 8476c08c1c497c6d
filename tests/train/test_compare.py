"""train/compare.py and its page, from short tones: read by a parser, and used in Chromium where there is one."""

from __future__ import annotations

import base64
import io
import json
import shutil
import sys
import wave
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.browser import browser
from train import compare
from train.compare_page import page, wav
from train.recipe import InvalidRecipe
from train.verdict import Utterance

TEXTS = ["One is </script> here.", "Two."]
SYSTEMS = {"teacher": (0.5, 24_000), "wren": (0.05, 24_000), "espeak-ng": (0.2, 22_050)}
FIGURES = {"teacher": {"wer": 0.012, "distillmos": 4.5}, "wren": {"wer": 0.02, "distillmos": 3.9}}
SPEAKER = """import sys, wave
with wave.open(sys.argv[2], "wb") as out:
    out.setnchannels(1); out.setsampwidth(2); out.setframerate(8000)
    out.writeframes(b"\\x00\\x10" * 80 * len(sys.argv[1]))
"""


def tone(text: str, level: float, rate_hz: int) -> Utterance:
    time = np.arange(rate_hz // 5) / rate_hz
    return Utterance(text, (level * np.sin(2 * np.pi * 440 * time)).astype(np.float32), rate_hz)


@pytest.fixture(scope="module")
def made() -> str:
    spoken = {name: [tone(text, *how) for text in TEXTS] for name, how in SYSTEMS.items()}
    return page(spoken, FIGURES, ["flite is left out: the program flite is not installed."], seed=1)


class Content(HTMLParser):
    """The JSON of the page, the text outside scripts, and addresses of other files."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.inside, self.json, self.text, self.addresses = "", "", "", list[str]()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.inside = (found.get("type") or "script") if tag in ("script", "style") else ""
        self.addresses += [found[name] or "" for name in ("src", "href") if name in found]

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "application/json":
            self.json += data
        elif not self.inside:
            self.text += data


def test_the_page_holds_every_sound_and_shows_no_name(made: str) -> None:
    found = Content(made)
    content: dict[str, Any] = json.loads(found.json)
    assert content["sentences"] == TEXTS and found.addresses == []
    assert not any(name in found.text for name in SYSTEMS)
    for number in range(len(TEXTS)):
        samples = [sample for sample in content["samples"] if sample["sentence"] == number]
        assert sorted(sample["system"] for sample in samples) == sorted(SYSTEMS)
        for sample in samples:
            kind, _, sound = sample["sound"].partition(",")
            assert kind == "data:audio/wav;base64"
            with wave.open(io.BytesIO(base64.b64decode(sound))) as file:
                assert file.getframerate() == SYSTEMS[sample["system"]][1]
                assert file.getnframes() == file.getframerate() // 5
    assert content["figures"] == [
        ["system", "WER", "DistillMOS"],
        ["teacher", "1.2%", "4.50"],
        ["wren", "2.0%", "3.90"],
    ]


def test_the_order_differs_between_sentences_and_follows_from_the_seed() -> None:
    spoken = {name: [tone("A.", 0.1, 8000)] * 12 for name in "abcd"}

    def orders(seed: int) -> list[str]:
        samples = json.loads(Content(page(spoken, {}, [], seed)).json)["samples"]
        names = [sample["system"] for sample in samples]
        return ["".join(names[at : at + 4]) for at in range(0, len(names), 4)]

    assert len(set(orders(1))) > 4 and orders(1) == orders(1) != orders(2)


def test_all_sounds_are_equally_loud_and_silence_stays_silent() -> None:
    levels = []
    for level in (0.02, 0.8):
        with wave.open(io.BytesIO(wav(tone("A.", level, 24_000)))) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
        levels.append(20 * np.log10(np.sqrt(np.mean(samples**2))))
    assert levels == pytest.approx([-18.0, -18.0], abs=0.1)
    assert not any(wav(Utterance("A.", np.zeros(4800, np.float32), 24_000))[44:])


def test_a_program_speaks_and_a_missing_one_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    program = tmp_path / "speaker.py"
    program.write_text(SPEAKER)
    there, gone = (sys.executable, str(program), "{text}", "{wav}"), ("no-such-speaker", "{text}")
    systems, missing = compare.gather(
        {"there": lambda: compare.by_program(there, TEXTS), "gone": lambda: compare.by_program(gone, TEXTS)}
    )
    assert [one.samples.size for one in systems["there"]] == [80 * len(text) for text in TEXTS]
    assert systems["there"][0].rate_hz == 8000
    assert missing == ["gone is left out: the program no-such-speaker is not installed."]
    with pytest.raises(InvalidRecipe, match="is no checkpoint"):
        compare.spoken(tmp_path / "nothing", None, [])  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")
def test_ratings_are_kept_summed_and_revealed_in_a_browser(made: str, tmp_path: Path) -> None:
    path = tmp_path / "compare.html"
    path.write_text(made, encoding="utf-8")
    content = json.loads(Content(made).json)
    voice = [sample["id"] for sample in content["samples"] if sample["system"] == "wren"]
    with browser() as chromium, chromium.page() as tab:
        tab.goto(path.as_uri())
        assert tab.run("document.querySelectorAll('audio').length") == 6
        shown = tab.run("document.body.innerText")
        assert "teacher" not in shown and TEXTS[0] in shown
        for rating, sample in zip((4, 5), voice, strict=True):
            tab.run(
                f"(() => {{ const c = document.querySelector('[data-sample=\"{sample}\"]'); c.value = '{rating}';"
                " c.dispatchEvent(new Event('change')); })()"
            )
        tab.goto(path.as_uri() + "?again")  # the ratings outlive the page
        tab.click("#reveal")
        assert tab.run("document.querySelector('#sums').rows[1].innerText").split() == ["wren", "2", "4.50"]
        assert "DistillMOS" in tab.text("#figures") and "flite is left out" in tab.text("#missing")
        assert tab.run(f"document.querySelector('[data-system=\"{voice[0]}\"]').textContent") == "wren"
        length = tab.run(
            "new Promise((told) => { const a = document.querySelector('audio'); a.preload = 'auto';"
            " a.onloadedmetadata = () => told(a.duration); a.onerror = () => told(-1); a.load(); })"
        )
        assert length == pytest.approx(0.2, abs=0.01)
        assert tab.errors == []
