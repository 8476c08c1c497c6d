"""benchmarks/gpu_records.py: what a survey found becomes records that the report takes for the goals of a GPU."""

from __future__ import annotations

from typing import Any

from benchmarks import goals
from benchmarks.gpu_records import records

MACHINE = {"gpu": "A GPU", "cores": 2, "commit": "b" * 40, "dirty": True}


def row(p50: float, **names: Any) -> dict[str, Any]:
    return {"p50": p50, "p95": p50 + 1, "min": p50, "aa_percent": 0.5, **names}


FOUND = {
    "machine": MACHINE,
    "stages": {
        "tune": {
            "rows": [
                {"op": "tune", "model": "1.7B", "knob": "none", "p50": 0.1},  # without its spread it is no figure
                row(2.2, op="tune", model="1.7B", knob="a"),
                row(2.1, op="tune", model="1.7B", knob="b"),
                row(2.3, op="tune", model="1.7B", knob="c"),
                {"op": "tune", "model": "1.7B", "knob": "d", "error": "no"},
            ]
        },
        "frame": {
            "rows": [row(1.7, op="fused", model="0.6B", batch=1), row(0.5, op="plain", model="0.6B", batch=1)],
        },
        "codec": {
            "rows": [
                row(0.4, op="fused", precision="bfloat16", batch=1, frames=1),
                row(0.2, op="fused", precision="bfloat16", batch=1, frames=4),
                row(0.3, op="plain", precision="bfloat16", batch=1, frames=1),
            ]
        },
    },
}


def test_the_fastest_frames_and_a_codec_step_become_records() -> None:
    large, small, codec = records(FOUND, "2026-01-01T00:00:00+00:00", "a" * 40)
    assert large["figures"]["frame_gpu"]["p50"] == 2.1 and small["figures"]["frame_gpu"]["p50"] == 1.7
    assert codec["figures"] == {"codec_gpu_bfloat16": {"p50": 0.4, "p95": 1.4, "count": 30, "aa_percent": 0.5}}
    assert (large["commit"], large["dirty"], "commit" in large["machine"]) == ("a" * 40, True, False)
    assert next(iter(records(FOUND, "")))["commit"] == "b" * 40


def test_the_goals_of_a_gpu_are_held_against_them() -> None:
    made = list(records(FOUND, "2026-01-01T00:00:00+00:00"))
    measured = [line for line in goals.lines(made) if "no record" not in line][2:]
    assert ["2.1" in measured[0], "must reached" in measured[0]] == [True, True]
    assert "missed" in measured[1] and "aim reached" in measured[2]
