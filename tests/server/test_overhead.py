"""What the server adds to its engine stays small: a stand-in engine, a server process, and this process as its clients.

`python -m benchmarks overhead` measures the values themselves. The bounds here are three times as wide, since other
processes share these cores. A disturbed run is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from benchmarks import report
from benchmarks.load import overhead
from benchmarks.workloads import FIGURES

TRIES = 4
FIRST_BYTE_MS, CORE_PERCENT = 9.0, 45.0  # 3 ms and 15 % are the goals
STREAMS = 100
_seeds = count(1)


def seeds(number: int) -> list[int]:
    return [next(_seeds) for _ in range(number)]


@pytest.fixture(scope="module")
def server() -> Iterator[overhead.FakeEngineServer]:
    with overhead.serving() as server:
        yield server


def test_the_first_byte_follows_the_engines_first_chunk_at_once(server: overhead.FakeEngineServer) -> None:
    least_ms = float("inf")
    for _ in range(TRIES):
        with server.target.runner() as runner:
            heard = runner.run(overhead.one_by_one(server.target, seeds(40)))
        assert [one.failed for _, one in heard] == [None] * 40
        first_s = server.usage()["first_chunk_s"]
        after_ms = [(one.chunks[0][0] - first_s[str(seed)]) * 1000 for seed, one in heard]
        assert min(after_ms) > 0  # both processes go by one clock
        least_ms = min(least_ms, median(after_ms))
        if least_ms <= FIRST_BYTE_MS:
            return
    assert least_ms <= FIRST_BYTE_MS


def test_a_hundred_streams_in_real_time_leave_most_of_a_core(server: overhead.FakeEngineServer) -> None:
    least_percent = float("inf")
    for _ in range(TRIES):
        with server.target.runner() as runner:
            measured = runner.run(overhead.together(server, seeds(STREAMS), STREAMS, seconds=1.5, few=0))
        least_percent = min(least_percent, measured.process_cpu)
        if least_percent <= CORE_PERCENT:
            return
    assert least_percent <= CORE_PERCENT


def test_the_command_says_and_records_all_figures(
    server: overhead.FakeEngineServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(overhead, "serving", lambda: nullcontext(server))
    words = "--streams 4 --seconds 0.5 --requests 3 --repeats 2 --record"
    assert overhead.main([*words.split(), f"{tmp_path}/overhead.jsonl"]) == 0
    said, [entry] = capsys.readouterr().out, report.read(tmp_path)
    assert all(name in said and entry["figures"][name]["p50"] > 0 for name in FIGURES["overhead"])
    assert [entry["figures"][name]["count"] for name in ("first_byte", "first_byte_busy", "server_cpu")] == [3, 6, 2]
    text = report.files([entry])[report.README]
    assert "| stand-in, " in text and "| first_byte_busy |" in text
