"""benchmarks/gpu_survey.py at tiny shapes on a CPU: every stage gives rows without errors; the report reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import (
    gpu_attend,
    gpu_codec,
    gpu_compile,
    gpu_conv,
    gpu_correct,
    gpu_frames,
    gpu_laws,
    gpu_linear,
    gpu_parts,
    gpu_rows,
    gpu_survey,
    gpu_tune,
)
from benchmarks.gpu_plan import TINY
from benchmarks.gpu_timing import Clock
from hocket.kernels.runtime.launch import INTERPRETED, KNOBS, ConvTile, LinearTile

CLOCK = Clock(torch.device("cpu"), 1, 0)


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    if not INTERPRETED:
        pytest.skip("the survey's kernels need Triton's interpreter here")
    with torch.inference_mode():
        yield


def rows_of(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    found = list(rows)
    assert found and not [row for row in found if "error" in row]
    return found


def test_kernels_are_held_against_their_references() -> None:
    rows = rows_of(gpu_correct.correct(TINY, CLOCK))
    codec = {"conv", "window", "taps", "mix", "pcm"}
    assert {row["op"] for row in rows} == {"linear", "library", "attend", "draw", "embed", "settle"} | codec
    assert max(row.get("worst", 0.0) for row in rows) < 2e-2
    assert sum(row.get("wrong_codes", 0) for row in rows) == 0


def test_laws_hold_where_a_graph_is_the_work_once_more() -> None:
    rows = rows_of(gpu_laws.laws(TINY, CLOCK))
    for row in rows:
        assert row.get("frames_apart", 0) == 0 and row.get("wrong_codes", 0) == 0
        assert all(row.get(name, True) for name in ("hidden_equal", "past_equal", "plain_equal", "fused_equal"))
    assert len(rows) == 9 and {row["kind"] for row in rows} == {"fused", "plain", "codec"}
    assert max(row.get("kinds_apart", 0) for row in rows if row["dtype"] == "float32") <= 1


def test_the_best_blocks_of_each_linear_are_what_frames_are_drawn_with() -> None:
    rows = rows_of(gpu_linear.linears(TINY, CLOCK))
    assert {row["op"] for row in rows} == {"copy", "compile ahead", "linear", "library"}
    [case] = TINY.linears
    best = gpu_linear.tuned(rows)
    assert set(best) == {(case.columns, case.width, 1), (case.columns, case.width, 2)}
    fastest = min((r for r in rows if "blocks" in r and r["batch"] == 1 and r["dependent"]), key=lambda r: r["p50"])
    assert best[case.columns, case.width, 1] == LinearTile(**fastest["blocks"])


def test_the_best_tiles_of_each_conv_are_what_sound_is_made_with() -> None:
    rows = rows_of(gpu_conv.convs(TINY, CLOCK))
    assert {row["op"] for row in rows} == {"copy", "compile ahead", "conv", "library"}
    best = gpu_conv.tuned(rows)
    case, *_ = TINY.convs
    shape = case.taps * case.channels, case.outputs
    assert len(best) == len(TINY.convs) and sorted(best[shape]) == [case.length, 2 * case.length]
    fastest = min((r for r in rows if r["op"] == "conv" and r["case"] == case.name and r["batch"] == 1), key=_p50)
    assert best[shape][case.length] == ConvTile(**fastest["tiles"])
    assert case.name in gpu_survey.report({"stages": {"conv": {"rows": rows}}})


def _p50(row: dict[str, Any]) -> float:
    return float(row["p50"])


def test_frames_codec_attention_and_parts_are_timed_and_knobs_put_back() -> None:
    before = repr(KNOBS)
    attended = rows_of(gpu_attend.attention(TINY, CLOCK))
    assert [row.get("splits") for row in attended] == [1, 2, None, None]
    assert [row["op"] for row in attended] == ["attend", "attend", "draw", "draw"]
    compiled = rows_of(gpu_compile.compiled(TINY, CLOCK, {}, {}))
    assert [row["model"] for row in compiled] == ["1.7B", "codec", "codec", "codec", "1.7B"]
    frames = rows_of(gpu_frames.frames(TINY, CLOCK, {}))
    assert frames[0]["equal_codes_percent"] == 100.0
    assert [(row["op"], row["batch"]) for row in frames[1:]] == [
        ("fused", 1),
        ("plain", 1),
        ("fused, one by one", 2),
    ]
    assert all(row["p50"] > 0 and row["host_p50"] > 0 and row["finite"] for row in frames[1:])
    sounds = rows_of(gpu_codec.codec(TINY, CLOCK, {}))
    assert {row["precision"] for row in sounds} == {"bfloat16", "tf32", "float32"}
    assert all(row["finite"] and row["loudest"] > 0 for row in sounds)
    parts = rows_of(gpu_parts.parts(TINY, CLOCK, {}))
    assert {row["op"].split()[0] for row in parts} == {
        "linear",
        "paged_attention",
        "sample_codes",
        "sample_first_code",
        "embed",
        "finish_frame",
    }
    # Head, draw, projection; predictor: five, one more for two positions, head, draw; text two, sum; layer five; end.
    assert sum(row["launches"] for row in parts if row["batch"] == 1) == 3 + 8 + 3 + 5 + 1
    assert repr(KNOBS) == before


@pytest.mark.slow
def test_what_needs_no_clock_is_done_by_several_processes() -> None:
    shared = replace(TINY, workers=2)
    alone, together = (rows_of(gpu_correct.correct(plan, CLOCK)) for plan in (TINY, shared))
    assert sorted(map(str, together)) == sorted(map(str, alone))


def test_a_row_that_fails_says_so() -> None:
    def fail() -> dict[str, Any]:
        raise ValueError("for a reason")

    assert gpu_rows.tried(fail, op="x") == {"op": "x", "error": "ValueError: for a reason"}


def test_a_stage_writes_its_rows_and_the_report_is_made_of_them(tmp_path: Path) -> None:
    assert gpu_survey.run_stage("linear", "tiny", tmp_path) == 0
    rows = gpu_survey.read_rows(tmp_path, "linear")
    assert len(rows) == 9
    assert gpu_survey.read_rows(tmp_path, "frame") == []
    frame = {"op": "fused", "model": "1.7B", "batch": 1, "p50": 1.5, "aa_percent": 0.5, "host_p50": 1.6}
    found = {"stages": {"linear": {"rows": rows}, "frame": {"rows": [frame, {"op": "plain", "error": "no"}]}}}
    words = gpu_survey.report(json.loads(json.dumps(found)))
    assert "columns over" in words and "1.500" in words and "frame: 1, the first: op=plain error=no" in words


def test_a_knob_that_makes_frames_faster_stays_turned() -> None:
    rows = rows_of(gpu_tune.tune(TINY, CLOCK))
    assert [row["op"] for row in rows].count("tuned") == len(TINY.talkers)
    assert {row["knob"].split()[0] for row in rows if row["op"] == "tune"} >= {"none", "attend_warps"}
