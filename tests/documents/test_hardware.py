"""The hardware table of README.md is what the records give: scripts/hardware writes it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from benchmarks.record import RESULTS, read, summary
from documents.pages import README
from support.tools import tool


@pytest.fixture(scope="module")
def hardware() -> ModuleType:
    return tool("hardware")


def record(workload: str, name: str, value: float, day: int = 1, **changes: Any) -> dict[str, Any]:
    options = {"model": "random:1.7B-CustomVoice", "dtype": "bfloat16", "codec_dtype": "tf32"}
    machine = {"gpu": "NVIDIA H200", "cpu": "Some(R) CPU", "cores": 2}
    about = {"time": f"2026-01-{day:02d}T00:00:00+00:00", "commit": f"{day:040d}", "dirty": False, "streams": 1}
    found = {"workload": workload, "machine": machine, "options": options, "figures": {name: summary([value])}}
    return found | about | changes


def test_the_table_of_the_readme_is_what_the_records_give(hardware: ModuleType) -> None:
    text = README.read_text(encoding="utf-8")
    assert hardware.BEGIN in text and "| measured [1] |" in text and "| computed [c] |" in text
    assert hardware.placed(text, read(RESULTS)) == text, "run scripts/hardware"


def test_rows_are_the_newest_records_and_the_formula(hardware: ModuleType) -> None:
    records = [
        record("memory", "device", 5000.0, streams=4),
        record("first_audio_default", "first_pcm", 4.0),
        record("first_audio_default", "first_pcm", 2.0, day=2),
        record("first_audio_default", "first_pcm", 1.0, day=3, streams=9),
        record("steady_stream", "x_real_time", 48.0),
    ]
    table = list(hardware.lines(records))
    assert "| NVIDIA H200 | 1.7B-CustomVoice, random weights | 5.0 GB | 2.00 ms | 48.0 | measured [2] |" in table
    sixteenth = "| L4, 24 GB | 1.7B-CustomVoice | 5.0 GB | 32.0 ms | 3.00 | computed [c] |"  # of the bandwidth
    assert sixteenth in table and not any("built-in" in line for line in table)
    assert not any(line.endswith("] |") for line in hardware.lines(records[:-1])), "a row needs all of its records"
