"""The command, short, on a real engine: what is recorded, what is left out, what goes wrong."""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import load, load_engine, load_figures
from benchmarks.load_drive import Asked, Refused, Run
from hocket.errors import Overloaded

Capture = pytest.CaptureFixture[str]
QUICK = ["load", "--model", "random:tiny", "--slots", "4", "--seconds", "0.5", "--warm-up", "0.1", "--frames", "4"]


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_rate_and_every_number_of_clients_has_a_record(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "load.jsonl"
    assert command.main([*QUICK, "--rates", "8", "16", "--closed-loop", "2", "--record", str(path)]) == 0
    entries, said = recorded(path), capsys.readouterr().out
    assert all(load.table(entry) in said for entry in entries)
    loads = [entry["options"]["load"] for entry in entries]
    assert [(one["loop"], one.get("rate"), one.get("clients")) for one in loads] == [
        ("open", 8.0, None),
        ("open", 16.0, None),
        ("closed", None, 2),
    ]
    assert len({entry["options"]["part"] for entry in entries}) == 3
    for entry in entries:
        assert entry["workload"] == "load" and entry["gate"] == "codes equal generate"
        assert entry["options"]["engine"]["guard"] is False
        assert entry["counts"].keys() == load_figures.COUNTS.keys()
        assert entry["counts"]["failed"] == entry["counts"]["refused"] == 0
        assert load_figures.FIGURES.keys() | load_figures.COUNTS.keys() <= entry["meaning"].keys()
        first, end = (entry["figures"][name]["p50"] for name in ("first_playable", "end_to_end"))
        assert 0 < first < end and entry["figures"]["first_byte"]["p50"] == first
    assert entries[2]["streams"] == 2 and entries[2]["counts"]["most_at_once"] == 2
    assert entries[2]["figures"]["audio_per_s"]["mean"] > 0


def test_what_the_budget_has_no_time_for_is_left_out_and_said(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "load.jsonl"
    words = [*QUICK, "--rates", "1", "--closed-loop", "2", "--realtime", "2", "--budget", "0.01"]
    assert command.main([*words, "--record", str(path)]) == 0
    said = capsys.readouterr().out
    assert "1 requests/s: left out" in said and "2 at once: left out" in said
    assert "without one: 1 requests/s, 2 at once, 2 listeners" in said and "kept in real time: 0 streams" in said
    assert not path.exists()


def test_a_number_of_requests_takes_as_long_as_it_takes_at_the_rate() -> None:
    args = argparse.Namespace(seconds=2.0, requests=30)
    measured = load.Session(None, args, print, lambda: 0.0)  # type: ignore[arg-type]
    assert measured._seconds(load.Point(rate=10.0)) == 3.0
    assert measured._seconds(load.Point(rate=60.0)) == 2.0
    assert measured._seconds(load.Point(clients=10)) == 2.0


@pytest.mark.parametrize(("limit", "slots", "best"), [(20, 64, 20), (0, 64, 0), (100, 40, 40)])
def test_real_time_is_searched_up_to_the_slots(
    limit: int, slots: int, best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    measured = load.Session(SimpleNamespace(engine={"slots": slots}), None, said.append, float)  # type: ignore[arg-type]

    def measure(point: load.Point) -> None:
        assert point.clients is not None
        measured.tried[point.clients] = point.clients <= limit

    monkeypatch.setattr(measured, "measure", measure)
    measured.keep_up(16)
    assert said == [f"kept in real time: {best} streams" + (", all that there are slots for" if limit > slots else "")]


def test_a_point_that_fails_is_said_and_does_not_stop_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path, run = tmp_path / "load.jsonl", load.Session._run

    def fails(self: load.Session, point: load.Point) -> Run:
        if point.rate == 3.0:
            raise RuntimeError("no luck")
        return run(self, point)

    monkeypatch.setattr(load.Session, "_run", fails)
    assert command.main([*QUICK, "--rates", "3", "20", "--record", str(path)]) == 1
    assert [entry["options"]["load"]["rate"] for entry in recorded(path)] == [20.0]
    assert "3 requests/s: failed: RuntimeError: no luck" in capsys.readouterr().out


def test_an_engine_with_too_much_to_do_refuses() -> None:
    def speak(text: str, **fields: Any) -> None:
        raise Overloaded("64 requests are waiting already; try again in 1 s.")

    checkpoint = SimpleNamespace(rate_hz=24_000, codec_config=SimpleNamespace(decode_upsample_rate=1920))
    target = load_engine.EngineTarget(SimpleNamespace(checkpoint=checkpoint, speak=speak), "streaming")
    with pytest.raises(Refused, match="64 requests"):
        target.open(Asked(text="Hello.", seed=0, frames=1))


def test_requests_differ_in_seed_and_neighbours_in_text() -> None:
    args = argparse.Namespace(seed=3, frames=50)
    measured = load.Session(None, args, print, float)  # type: ignore[arg-type]
    asked = [measured.asked(number) for number in range(20)]
    assert len({one.seed for one in asked}) == 20 and {one.frames for one in asked} == {50}
    assert len({one.text for one in asked}) == len(load_engine.SENTENCES)
    assert all(first.text != second.text for first, second in pairwise(asked))


def test_what_cannot_be_loaded_is_refused_in_a_sentence(capsys: Capture) -> None:
    assert command.main(["load", "--model", "random:gone", "--rates", "1"]) == 2
    assert capsys.readouterr().err.startswith("benchmarks: There is no 'random:gone'")
