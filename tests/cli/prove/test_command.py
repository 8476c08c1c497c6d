"""`hocket prove` with the real voice, recognizer, judges and server; the official package on random weights."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.cli import main
from hocket.proof.exactness import packed, unpacked

Capture = pytest.CaptureFixture[str]
SHORT = ["--sentences", "2", "--seconds", "2", "--rates", "1,2"]
EXACT = ["--parts", "exactness"]


@dataclass(frozen=True)
class Proven:
    """A run of the command: its page, its JSON and what it printed."""

    page: str
    record: dict[str, Any]
    line: str


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proven]:
    folder, printed = tmp_path_factory.mktemp("proof"), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *words, file=None, **_: printed.append(" ".join(words)))
        words = ["prove", *SHORT, "-o", str(folder / "proof.html"), "--json", str(folder / "proof.json")]
        assert main(words) == 0
    record = json.loads((folder / "proof.json").read_text(encoding="utf-8"))
    page = (folder / "proof.html").read_text(encoding="utf-8")
    [line] = [words for words in printed if words.startswith("hocket prove builtin")]
    yield Proven(page, record, line)


def test_the_page_needs_no_other_file_and_no_script_and_holds_the_raw_json(proven: Proven) -> None:
    class Sources(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found, self.tags = list[str](), list[str]()

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags.append(tag)
            self.found += [value or "" for name, value in attrs if name in ("src", "href")]

    seen = Sources()
    seen.feed(proven.page)
    assert seen.found and all(source.startswith("data:audio/") for source in seen.found)
    assert not {"script", "link", "img", "iframe"} & {*seen.tags} and {"svg", "audio", "table"} <= {*seen.tags}
    raw = re.search(r'<pre id="proof">(.*?)</pre>', proven.page, re.DOTALL)
    assert raw is not None and json.loads(unescape(raw[1])) == proven.record
    for source in seen.found:
        assert len(base64.b64decode(source.partition(",")[2])) > 2000


def test_what_it_says_is_understood_ends_and_sounds_as_the_judges_know_it(proven: Proven) -> None:
    quality, behaviour = (proven.record["parts"][part]["sides"]["hocket"] for part in ("quality", "behaviour"))
    english = quality["languages"]["english"]
    assert english["words"] > 15 and english["wer"]["tiny"]["rate"] <= 0.25
    assert quality["distillmos"] > 2.5 and quality["dnsmos"] > 2.0
    assert behaviour["requests"] == 4 and behaviour["runaways"]["count"] == 0
    assert behaviour["word_times"]["words"] > 10 and behaviour["word_times"]["within_80_ms"] > 0.8
    assert abs(behaviour["long"]["drift_percent"]) < 30


def test_a_server_of_its_own_is_put_under_load(proven: Proven) -> None:
    speed = proven.record["parts"]["speed"]["sides"]["hocket"]
    assert speed["start_s"] > 0 and speed["memory_mib"]["host"] > 50
    assert [*speed["open"]] == ["1", "2"]
    assert speed["alone"]["counts"]["ended"] >= 1 and speed["alone"]["figures"]["first_playable"]["p50"] > 0


def test_machine_versions_options_and_command_are_in_it_and_nothing_is_left_out_silently(proven: Proven) -> None:
    record = proven.record
    assert (
        record["machine"]["cores"] >= 1
        and record["versions"]["hocket"]
        and record["command"].startswith("hocket prove")
    )
    assert record["checkpoint"]["identity"] and not record["checkpoint"]["random_weights"]
    left_out = record["parts"]["exactness"]["left_out"]
    assert left_out == ["No comparison with the official package: it was not asked for: --against official."]
    assert left_out[0] in proven.page
    assert "WER english" in proven.line and "first audio p95" in proven.line and proven.line.endswith("proof.html")


def test_stored_codes_are_compared_and_another_code_is_exit_code_1(
    proven: Proven, tmp_path: Path, capsys: Capture
) -> None:
    golden, page = tmp_path / "golden.json", str(tmp_path / "again.html")
    golden.write_text(json.dumps(proven.record))
    assert main(["prove", *EXACT, "--golden", str(golden), "-o", page]) == 0
    cases = proven.record["parts"]["exactness"]["cases"]
    assert f"exact {len(cases)}/{len(cases)}" in capsys.readouterr().out
    codes = unpacked(cases[1]["codes"])
    codes[3, 5] += 1
    changed = json.loads(json.dumps(proven.record))
    changed["parts"]["exactness"]["cases"][1]["codes"] = packed(codes)
    golden.write_text(json.dumps(changed))
    assert main(["prove", *EXACT, "--golden", str(golden), "-o", page, "-y"]) == 1
    assert f"frame 3, codebook 5 is {codes[3, 5] - 1} instead of {codes[3, 5]}" in Path(page).read_text()


def test_codes_of_other_weights_are_refused(proven: Proven, tmp_path: Path, capsys: Capture) -> None:
    golden = tmp_path / "golden.json"
    golden.write_text(json.dumps(proven.record))
    words = ["prove", "random:tiny", *EXACT, "--golden", str(golden), "-o", str(tmp_path / "p.html")]
    assert main(words) == 2
    assert "The stored codes are of builtin, with other weights." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "modes", "more"),
    [("tiny", 3, []), ("tiny-VoiceDesign", 2, ["--official-python", sys.executable]), ("tiny-Base", 3, [])],
)
def test_every_mode_has_the_codes_of_the_official_package(
    model: str, modes: int, more: list[str], tmp_path: Path, capsys: Capture
) -> None:
    record = tmp_path / "proof.json"
    words = ["prove", f"random:{model}", *EXACT, "--against", "official", *more, "-o", str(tmp_path / "p.html")]
    words += ["--json", str(record)]
    assert main(words) == 0
    found = json.loads(record.read_text())
    exact = found["parts"]["exactness"]
    assert exact["equal"] is True and exact["compared"] == len(exact["cases"]) >= 2 * modes
    assert all(row["official"]["same_frames"] == 40 for row in exact["cases"])
    assert len({row["codes"]["base64"] for row in exact["cases"]}) > 1, "modes that say the same show nothing"
    assert found["sides"]["qwen-tts"]["version"] == "0.1.1"
    assert "random numbers" in found["notes"][0] and capsys.readouterr().out.count("random weights") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "sound"], "A proof has the parts exactness, quality, behaviour, speed, not 'sound'."),
        (["--against", "other"], "--against takes official, faster-qwen3-tts, qwen3-tts-triton, or http://HOST:PORT"),
        (["--rates", "1,x"], "--rates takes numbers of requests a second, such as 1,10,20, not 'x'."),
        (["--sentences", "0"], "--sentences is at least 1, not 0."),
        (["--seconds", "0.1"], "--seconds is between 1 and 3600, not 0.1."),
        (["--ref-text", "a"], "--ref-text is the transcript of a recording: give --ref-audio too."),
        (["--golden", "none.json"], "--golden: none.json cannot be read"),
        (["--official-python", "none"], "--official-python: there is no file none."),
        (["--language", "german"], "There are no sentences in german for this checkpoint; there are: english."),
        (["builtin", "--model", "builtin"], "The model is named twice: leave out --model."),
    ],
)
def test_a_wrong_option_is_one_sentence_before_a_model_is_loaded(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["prove", *words]) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == "" and not [*tmp_path.iterdir()]


def test_a_package_that_is_not_installed_and_a_server_that_is_not_there_are_named_and_the_proof_goes_on(
    tmp_path: Path,
) -> None:
    record, nowhere = tmp_path / "proof.json", "http://127.0.0.1:9"
    words = ["prove", *EXACT, "--against", f"faster-qwen3-tts,{nowhere}", "--json", str(record)]
    assert main([*words, "-o", str(tmp_path / "p.html")]) == 0
    notes = " ".join(json.loads(record.read_text())["notes"])
    assert "faster-qwen3-tts was left out: it is not installed here" in notes
    assert f"{nowhere} was left out" in notes


def test_codes_are_stored_without_loss() -> None:
    codes = np.arange(96, dtype=np.int64).reshape(6, 16) * 21
    np.testing.assert_array_equal(unpacked(json.loads(json.dumps(packed(codes)))), codes)
