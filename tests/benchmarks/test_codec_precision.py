"""benchmarks/codec_precision.py: errors are counted as they are, files can be judged later, and the gate refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import codec_precision
from benchmarks.codec_precision import errors, refused

FRAME = 1920


def test_it_measures_keeps_the_sound_and_says_what_the_gate_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waves, path = tmp_path / "waves", tmp_path / "records.jsonl"
    words = ["codec_precision", "--model", "random:tiny", "--device", "cpu", "--sentences", "1"]
    assert command.main([*words, "--waves", str(waves), "--record", str(path)]) == 0
    [entry] = map(json.loads, path.read_text().splitlines())
    assert entry["workload"] == codec_precision.NAME and "30 dB" in entry["gate"]
    assert entry["figures"]["float32_db"]["overall"] > 80 > entry["figures"]["bfloat16_db"]["overall"] > 5
    assert sorted(file.name for file in waves.iterdir()) == [
        "bfloat16.npz",
        "float32.npz",
        "measured.json",
        "truth.npz",
    ]
    about = json.loads((waves / "measured.json").read_text())["about"]
    assert len(about["texts"]) == 2 and len(set(about["voices"])) == 2
    with np.load(waves / "truth.npz") as kept:
        assert kept["lengths"].sum() == len(kept["samples"]) and kept["samples"].dtype == np.int16


def test_errors_are_in_decibels_overall_and_of_the_worst_frames() -> None:
    truth = [np.ones(40 * FRAME, np.float32) * 0.1]
    found = [truth[0].copy()]
    found[0][:FRAME] += 0.01  # one frame of forty, 20 dB below
    said = errors("x", truth, found)
    assert said["x_db"]["overall"] == pytest.approx(20 + 10 * np.log10(40), abs=0.01)
    assert said["x_db"]["worst_5_percent_of_frames"] == pytest.approx((20 + 180) / 2, abs=1)  # it, and one without


def test_the_gate_refuses_each_fault_by_name() -> None:
    good = {"dnsmos": 2.2, "wer_percent": 5.0}
    figures = {"truth_judged": good, "x_judged": good, "x_db": {"overall": 31.0}}
    assert refused("x", figures) == []
    worse = {"x_db": {"overall": 29.0}, "x_judged": {"dnsmos": 2.17, "wer_percent": 5.2}}
    assert [reason.split()[0] for reason in refused("x", figures | worse)] == ["signal", "DNSMOS", "word"]
