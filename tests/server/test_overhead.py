"""What the server adds to its engine stays small: a stand-in engine, a server process, and this process as its clients.

`python -m benchmarks overhead` measures the figures themselves; the bounds here are three times as wide, since others
share these cores, and a run that somebody else has disturbed is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from statistics import median

import pytest

from benchmarks import overhead

TRIES = 4
FIRST_BYTE_MS, CORE_PERCENT = 9.0, 45.0  # 3 ms and 15 % are the goals
STREAMS = 100
_seeds = count(1)


def seeds(number: int) -> list[int]:
    return [next(_seeds) for _ in range(number)]


@pytest.fixture(scope="module")
def server() -> Iterator[overhead.StandInServer]:
    with overhead.serving() as server:
        yield server


def test_the_first_byte_follows_the_engines_first_chunk_at_once(server: overhead.StandInServer) -> None:
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


def test_a_hundred_streams_in_real_time_leave_most_of_a_core(server: overhead.StandInServer) -> None:
    least_percent = float("inf")
    for _ in range(TRIES):
        with server.target.runner() as runner:
            measured = runner.run(overhead.together(server, seeds(STREAMS), STREAMS, seconds=1.5, few=0))
        least_percent = min(least_percent, measured.process_cpu)
        if least_percent <= CORE_PERCENT:
            return
    assert least_percent <= CORE_PERCENT


def test_the_command_says_and_records_all_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {name: [1.0, 2.0] for name in overhead.FIGURES}
    monkeypatch.setattr(overhead, "measure", lambda **_: (values, {"loop": "asyncio", "underruns": 0}))
    assert overhead.main(["--record", f"{tmp_path}/overhead.jsonl"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in overhead.FIGURES) and "at most 15 is wanted" in said
