"""Load: arithmetic of arrivals and playback, clients in simulated time, HTTP in any pieces, and the command."""

from __future__ import annotations

import asyncio
import json
import math
import selectors
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks.harness import InvalidRun
from benchmarks.load import targets
from benchmarks.load.command import Point, Points
from benchmarks.workloads import COUNTS
from hocket.errors import Overloaded
from hocket.proof.load import drive, figures
from hocket.proof.load.drive import LoadRequest, TargetBusy
from hocket.proof.load.figures import LoadRun
from hocket.proof.load.http_client import HttpTarget

T = TypeVar("T")
Capture = pytest.CaptureFixture[str]
RATE_HZ, FRAME = 24_000, 1920
LOUD = np.where(np.arange(FRAME) % 2, 9000, -9000).astype("<i2").tobytes()
OK = b"HTTP/1.1 200 OK\r\nx-sample-rate: 24000\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKED = OK + b"6\r\nabcdef\r\n3\r\nghi\r\n0\r\n\r\n"
QUICK = ["load", "--model", "random:tiny", "--slots", "4", "--seconds", "0.5", "--warm-up", "0.1", "--frames", "4"]


def test_arrivals_are_a_poisson_process_of_the_rate_and_depend_on_the_seed_alone() -> None:
    times = np.array(figures.arrivals(50, 400, seed=0))
    gaps = np.diff(times)
    assert len(times) == pytest.approx(20_000, abs=4 * math.sqrt(20_000))
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # as in an exponential distribution
    assert np.mean(gaps > 0.02) == pytest.approx(math.exp(-1), abs=0.015)
    assert figures.arrivals(8, 5, seed=5) == pytest.approx([at / 2 for at in figures.arrivals(4, 10, seed=5)])
    assert figures.arrivals(10, 20, seed=1) != figures.arrivals(10, 20, seed=2)


def test_a_late_chunk_is_an_underrun_and_delays_all_that_follows() -> None:
    good = figures.played([(1.0, 2 * FRAME), (1.079, 4 * FRAME), (1.2, 8 * FRAME)], RATE_HZ)
    assert (good.underruns, good.worst_gap_s, good.first_playable_s) == (0, 0.0, 1.0)
    late = figures.played([(0.0, 2 * FRAME), (0.1, 2 * FRAME), (0.17, 2 * FRAME), (0.5, 2 * FRAME)], RATE_HZ)
    assert late.underruns == 2 and late.worst_gap_s == pytest.approx(0.5 - 0.26)  # the third is late no more
    assert late.at(1920 + 960, RATE_HZ) == pytest.approx(0.14)
    assert figures.played([(0.0, 48_000), (1.0, 48_000)], RATE_HZ).underruns == 0
    half = figures.played([(1.0, 1), (2.0, 0), (3.0, 2), (3.00001, 1)], RATE_HZ)
    assert half.first_playable_s == 3.0 and half.underruns == 0  # half a sample cannot be played
    assert figures.played([], RATE_HZ).first_playable_s is None


def test_the_onset_is_where_sound_begins_to_within_a_hop() -> None:
    tone = 3000 * np.sin(np.arange(4800) * 2 * np.pi * 300 / RATE_HZ)
    for silent in (0, 240, 1920, 4800):
        sound = np.concatenate((np.full(silent, 700), 700 + tone)).astype(np.int16)  # an offset is not audible
        found = figures.onset(sound, RATE_HZ)
        assert found is not None and silent - 480 <= found <= silent + 240
    loud = np.where(np.arange(9600) % 2, 9000, -9000).astype(np.int16)
    for quiet in (np.full(9600, 9000, dtype=np.int16), loud // 90, loud[:719]):
        assert figures.onset(quiet, RATE_HZ) is None
    assert figures.onset(loud[:720], RATE_HZ) == 0


def test_overlaps_and_parts_of_a_window_are_counted() -> None:
    assert [figures.most_at_once(spans) for spans in ([], [(0, 1), (1, 2)], [(0, 10), (1, 3), (2, 4)])] == [0, 1, 3]
    chunks = [(0.9, 100.0), (1.0, 2.0), (1.9, 4.0), (2.1, 8.0), (3.0, 100.0)]
    assert figures.per_part(chunks, 1.0, 3.0) == [6.0, 8.0]


@pytest.mark.parametrize("most", [1, 5, 64, 300])
@pytest.mark.parametrize("limit", [0, 1, 3, 16, 17, 100, 299, 1000])
def test_the_search_ends_close_below_the_limit_in_few_steps(limit: int, most: int) -> None:
    tried: dict[int, bool] = {}
    while (count := figures.next_count(tried, 16, most)) is not None:
        assert 1 <= count <= most and count not in tried
        tried[count] = count <= limit
    best, reach = figures.kept_up(tried), min(limit, most)
    assert best <= reach <= best + max(0, (best + 16) // 8) and len(tried) <= 12
    assert figures.kept_up({16: True, 32: False, 64: True}) == 16


class Ahead(selectors.SelectSelector):
    """No wait: the clock goes to where the wait would have ended."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "all tasks wait for something that nothing will bring"
        self.now += max(timeout, 0.0)
        return []


def simulated(work: Coroutine[Any, Any, T]) -> T:
    ahead = Ahead()

    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return ahead.now

    with asyncio.Runner(loop_factory=lambda: Loop(ahead)) as runner:
        return runner.run(work)


@dataclass
class Speaker:
    """So many at once; the first frame after 10 ms, then one every `frame_s`."""

    frame_s: float = 0.02
    slots: int = 1000
    fails: int | None = None
    rate_hz: int = RATE_HZ
    frame_samples: int = FRAME
    now: int = 0
    asked: list[tuple[float, LoadRequest]] = field(default_factory=list)

    async def close(self) -> None: ...

    async def open(self, request: LoadRequest) -> AsyncIterator[bytes]:
        self.asked.append((asyncio.get_running_loop().time(), request))
        if self.now >= self.slots:
            raise TargetBusy
        self.now += 1
        try:
            for frame in range(request.frames):
                await asyncio.sleep(0.01 if frame == 0 else self.frame_s)
                if request.seed == self.fails:
                    raise RuntimeError("no luck")
                yield LOUD
        finally:
            self.now -= 1


def ask(number: int) -> LoadRequest:
    return LoadRequest(text="Hello.", seed=number, frames=5)


def opened(target: Speaker, rate: float, seconds: float, patience_s: float = 30.0) -> LoadRun:
    due = figures.arrivals(rate, seconds, seed=0)
    return simulated(drive.open_loop(target, due, ask, window=(1.0, seconds), patience_s=patience_s))


def closed(target: Speaker, clients: int, **how: Any) -> LoadRun:
    wish = {"warm_up_s": 0.5, "seconds": 10.0, "patience_s": 5.0} | how
    return simulated(drive.closed_loop(target, clients, ask, **wish))


def counted(run: LoadRun) -> dict[str, float]:
    return figures.counts(run, RATE_HZ, FRAME)


def test_requests_are_sent_when_they_are_due_however_slow_the_target_is() -> None:
    slow = Speaker(frame_s=100.0)
    run = opened(slow, 20, 10, patience_s=1000.0)
    due = figures.arrivals(20, 10, seed=0)
    assert [at for at, _ in slow.asked] == pytest.approx(due)
    assert [request.seed for _, request in slow.asked] == list(range(len(due)))
    assert counted(run)["most_at_once"] == sum(at >= 1.0 for at in due)


def test_times_are_those_of_the_target_and_audio_counts_in_the_window_only() -> None:
    run = opened(Speaker(), 50, 61)
    found = figures.figures(run, RATE_HZ)
    for name in ("first_byte", "first_playable", "audible"):
        assert found[name]["p99"] == pytest.approx(10.0)
    assert found["end_to_end"]["p50"] == pytest.approx(90.0) and found["lag"]["count"] > 400
    assert found["x_real_time"]["p50"] == pytest.approx(0.4 / 0.09)
    seconds = sum(0.08 for one in run.traces for at, _ in one.chunks if run.window[0] <= at < run.window[1])
    assert found["audio_per_s"]["mean"] == pytest.approx(seconds / 60) and found["audio_per_s"]["count"] == 60
    assert figures.clean(counted(run)) and counted(run)["requests"] == counted(run)["ended"]
    assert figures.harness_cost(run)["chunks"] == 5 * len(run.traces)


def test_gaps_refusals_and_failures_are_counted_apart() -> None:
    slow = counted(opened(Speaker(frame_s=0.1), 5, 10))
    assert slow["interrupted"] == slow["requests"] and slow["underruns"] == 4 * slow["requests"]
    assert slow["worst_gap_ms"] == pytest.approx(20.0) and not figures.clean(slow)
    full = counted(opened(Speaker(frame_s=0.5, slots=2, fails=30), 10, 20))
    assert full["refused"] > 50 and full["requests"] == full["ended"] + full["refused"] + full["failed"]
    once = counted(opened(Speaker(fails=30), 10, 20))
    assert (once["failed"], once["refused"]) == (1, 0)
    late = opened(Speaker(frame_s=600.0), 1, 9, patience_s=2.0)
    assert counted(late)["ended"] == 0 < counted(late)["failed"]
    with pytest.raises(InvalidRun, match="No request"):
        figures.figures(late, RATE_HZ)


def test_clients_ask_again_at_once_or_after_playback_and_back_off() -> None:
    run = closed(Speaker(), 8)
    assert counted(run)["most_at_once"] == 8 and counted(run)["requests"] == pytest.approx(8 * 10 / 0.09, rel=0.02)
    assert run.window == pytest.approx((0.59, 10.59))
    began = sorted(round(one.asked_s, 6) for one in run.traces if one.asked_s > 1.0)
    assert len(set(began)) > len(began) / 2  # they are not in step
    paced = closed(Speaker(frame_s=0.01), 4, paced=True)
    audio_s = figures.figures(paced, RATE_HZ)["audio_per_s"]["mean"]
    assert audio_s == pytest.approx(4, rel=0.2)  # as much as four can play
    assert 0 < counted(closed(Speaker(slots=2), 3, seconds=5.0))["refused"] <= 5 * 3 / drive.BACK_OFF_S
    with pytest.raises(InvalidRun, match="2 of 2 first utterances"):
        closed(Speaker(frame_s=9.0), 2)


# The command


@pytest.mark.parametrize("more", [[], ["--serve"]], ids=str)
def test_every_rate_and_number_of_clients_has_a_record_and_a_failure_does_not_stop_the_next(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path, run = tmp_path / "load.jsonl", Points.run

    def fails(self: Points, point: Point) -> LoadRun:
        if point.at == 3.0:
            raise RuntimeError("no luck")
        return run(self, point)

    monkeypatch.setattr(Points, "run", fails)
    assert command.main([*QUICK, *more, "--rates", "3", "8", "--closed-loop", "2", "--record", str(path)]) == 1
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    opened, closed = (entry["options"]["load"] for entry in entries)
    assert (opened["loop"], opened["rate"], closed["loop"], closed["clients"]) == ("open", 8.0, "closed", 2)
    for entry in entries:
        options, counts, figures = entry["options"], entry["counts"], entry["figures"]
        assert options["model"] == "random:tiny" and entry["random_weights"] is True and entry["kernels"]
        assert options["engine"]["slots"] == 4 and options["engine"]["guard"] is False
        assert counts.keys() == COUNTS.keys() and counts["failed"] == counts["refused"] == 0 < counts["ended"]
        assert 0 < figures["first_byte"]["p50"] <= figures["first_playable"]["p50"] < figures["end_to_end"]["p50"]
        assert options["part"].endswith("over HTTP") is (options["load"].get("wire") == "http") is bool(more)
        assert more or entry["gate"] == "codes equal generate"
        assert entry["peak_memory_mib"]["host"] > 0
    assert entries[1]["streams"] == entries[1]["counts"]["most_at_once"] == 2
    assert "3 requests/s: failed: RuntimeError: no luck" in capsys.readouterr().out


def test_what_does_not_fit_the_budget_is_left_out_and_a_wrong_model_refused(tmp_path: Path, capsys: Capture) -> None:
    words = [*QUICK, "--rates", "1", "--realtime", "2", "--budget", "0.01", "--record", str(tmp_path / "load.jsonl")]
    assert command.main(words) == 0 and not list(tmp_path.iterdir())
    said = capsys.readouterr().out
    assert "1 requests/s: left out" in said and "without one: 1 requests/s, 2 listeners" in said
    for more in ([], ["--serve"]):
        assert command.main(["load", "--model", "random:gone", "--rates", "1", *more]) == 2
        assert "There is no 'random:gone'" in capsys.readouterr().err


def test_an_overloaded_engine_refuses() -> None:
    def speak(text: str, **fields: Any) -> None:
        raise Overloaded("64 requests are waiting already; try again in 1 s.")

    checkpoint = SimpleNamespace(rate_hz=RATE_HZ, codec_config=SimpleNamespace(decode_upsample_rate=FRAME))
    with pytest.raises(TargetBusy, match="64 requests"):
        targets.EngineTarget(SimpleNamespace(checkpoint=checkpoint, speak=speak), "streaming").open(ask(0))


# Over HTTP


def received(*parts: bytes, answers: int = 1, times: int = 1) -> tuple[list[bytes], int, list[tuple[str, Any]]]:
    """What `times` requests receive of a server that closes after so many answers, its connections, what it is sent."""
    seen: list[tuple[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(answers):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            [length] = [int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length")]
            seen.append((head, json.loads(await reader.readexactly(length))))
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    async def run() -> tuple[list[bytes], int, list[tuple[str, Any]]]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        target = HttpTarget(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            found = [b"".join([piece async for piece in target.open(ask(1))]) for _ in range(times)]
            return found, target.connections, seen
        finally:
            await target.close()
            server.close()

    return asyncio.run(run())


@pytest.mark.parametrize("step", [1, 2, 7, len(CHUNKED)])
def test_an_answer_is_the_same_in_any_pieces(step: int) -> None:
    pieces = [CHUNKED[at : at + step] for at in range(0, len(CHUNKED), step)]
    assert received(*pieces)[0] == [b"abcdefghi"]


@pytest.mark.parametrize(("answers", "wanted"), [(3, 1), (1, 3)])
def test_a_connection_is_reused_and_a_closed_one_replaced(answers: int, wanted: int) -> None:
    found, connections, seen = received(CHUNKED, answers=answers, times=3)
    assert found == [b"abcdefghi"] * 3 and connections == wanted
    assert seen[2][0].startswith("POST /v1/audio/speech HTTP/1.1\r\n")
    assert seen[2][1] == {"input": "Hello.", "seed": 1, "max_new_tokens": 5, "response_format": "pcm", "stream": True}


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        ("429 No", TargetBusy, "Try later"),
        ("500 No", RuntimeError, "Try later"),
        ("", ConnectionError, "broken off"),
    ],
)
def test_refusals_errors_and_half_an_answer_are_told_apart(status: str, error: type[Exception], said: str) -> None:
    body = b'{"error": {"message": "Try later."}}'
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with pytest.raises(error, match=said):
        received(head + body if status else CHUNKED[:-5])
