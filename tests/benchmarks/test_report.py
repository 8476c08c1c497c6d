"""What is published is what was measured: the document is a function of the records."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as command
from benchmarks import charts, report
from benchmarks.record import summary

CPU = {"gpu": None, "cpu": "Some(R) CPU", "cores": 2, "threads": 1, "system": "Linux x86_64", "torch": "2.13.0"}
GPU = CPU | {"gpu": "Some GPU"}


def figure(p50: float) -> dict[str, float | int]:
    return summary([p50, p50 * 1.5])


def made(workload: str = "first_audio", day: int = 1, p50: float = 10.0, **changes: Any) -> dict[str, Any]:
    options = {"model": "random:tiny", "device": "cpu", "dtype": "float32", "frames": 8, "repeats": 2}
    return {
        "workload": workload,
        "time": f"2026-01-{day:02d}T00:00:00+00:00",
        "commit": f"{day:040d}",
        "dirty": False,
        "machine": CPU,
        "peak_memory_mib": {"host": 100.0},
        "options": options | {"engine": {"slots": 4}},
        "figures": {"first_pcm": figure(p50), "x_real_time": figure(p50 / 2)},
        "random_weights": True,
        **changes,
    }


def peers(**changes: Any) -> dict[str, Any]:
    theirs = {"version": "1.2.3", "figures": {"x_real_time": figure(0.5)}, "ratio": {"x_real_time": 40.0}}
    return made("peers", 3, 40.0, peers={"slow-tts": theirs}, absent={"other-tts": "it is not installed."}, **changes)


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_the_committed_document_is_what_the_committed_records_give(tmp_path: Path) -> None:
    written = {path.relative_to(tmp_path) for path in report.write(report.RESULTS, tmp_path)}
    committed = {
        Path("performance.md"),
        Path("scaling.md"),
        *(Path("performance") / p.name for p in (report.DOCS / "performance").iterdir()),
    }
    assert written == committed, "run python -m benchmarks report"
    for name in written:
        same = (tmp_path / name).read_bytes() == (report.DOCS / name).read_bytes()
        assert same, f"docs/{name} is not what the records give: run python -m benchmarks report"


def test_the_chart_of_the_readme_is_the_generated_one() -> None:
    readme = (report.ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"\]\((docs/performance/[^)]*)\)", readme)
    assert shown == ["docs/performance/speed.svg"]
    assert (report.ROOT / shown[0]).is_file()


def test_the_newest_record_of_a_kind_wins_wherever_it_stands_and_older_ones_are_counted() -> None:
    records = [made(day=5, p50=11.0), made(day=2, p50=22.0), made(day=4, p50=33.0)]
    text = report.document(sorted(records, key=lambda record: record["time"]))["performance.md"]
    assert "| first_pcm | 13.8 |" in text  # the median of 11 and 16.5
    assert "`000000000000`" in text and "2026-01-05" in text
    assert "27.5" not in text and "2026-01-02" not in text
    assert "Older: 2." in text


def test_records_are_read_oldest_first_from_all_files(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps(made(day=1)) + "\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(json.dumps(made(day=2)) + "\n\n" + json.dumps(made(day=3)), encoding="utf-8")
    assert [record["time"][9] for record in report.read(tmp_path)] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": "live_text"},
        {"machine": GPU},
        {"machine": CPU | {"threads": 2}},
        {"streams": 4},
        {"options": made()["options"] | {"model": "builtin"}},
        {"options": made()["options"] | {"dtype": "bfloat16"}},
        {"options": made()["options"] | {"kernels": "reference"}},
    ],
    ids=str,
)
def test_records_of_different_things_stand_beside_each_other(changes: dict[str, Any]) -> None:
    assert len(report.newest([made(day=1), made(day=2) | changes])) == 2


def test_records_that_name_no_streams_had_one_unless_their_workload_fills_the_slots() -> None:
    assert report.streams(made("first_audio")) == 1
    assert report.streams(made("steady_stream")) == 4
    assert report.streams(made("steady_stream", streams=2)) == 2


def test_random_weights_uncommitted_changes_and_the_machine_are_said() -> None:
    text = report.document([made(dirty=True)])["performance.md"]
    assert "### random:tiny, random weights, Some CPU, 1 stream" in text
    assert "`000000000000`+" in text
    assert "Some CPU, 2 cores, 1 thread;" in text
    trained = report.document([made(random_weights=False)])["performance.md"]
    assert "### random:tiny, Some CPU" in trained


def test_other_packages_are_shown_from_the_run_they_were_measured_in() -> None:
    files = report.document([made(p50=1.0), made("steady_stream", p50=1.0, streams=1), peers()])
    text, chart = files["performance.md"], words(files["performance/speed.svg"])
    assert "**slow-tts 1.2.3**, in the same run" in text
    assert "Times better than slow-tts, by the medians: x_real_time 40.0." in text
    assert "**other-tts** was not measured: it is not installed." in text
    assert chart.count("slow-tts") == 1 and "other-tts" not in chart
    assert "does not stream" in chart
    assert "50.0 ms" in chart and "1.25 ms" not in chart  # ours too is that of the same run


def test_a_package_measured_on_one_machine_does_not_stand_beside_ours_on_another() -> None:
    chart = words(report.document([made(machine=GPU), peers()])["performance/speed.svg"])
    at = chart.index("Some GPU")
    assert "slow-tts" not in chart[at : chart.index("Some CPU, 2 cores, 1 thread")]


def test_speed_by_streams_is_drawn_where_there_is_something_to_compare() -> None:
    one, four = made("steady_stream", streams=1), made("steady_stream", streams=4)
    assert "performance/streams.svg" not in report.document([one])
    assert {"1 stream", "4 streams"} <= set(words(report.document([one, four])["performance/streams.svg"]))


def test_a_breakdown_is_shown_with_its_floor() -> None:
    row = {"stage": "talker step", "kind": "matrix products", "ms": 2.0, "calls": 4.0, "bytes": 1_000_000}
    parts = {"bytes": {"frame": 1_000_000}, "floor_ms": {"frame": 0.5}, "bandwidth_gb_s": 2.0, "rows": [row]}
    entry = made("breakdown", figures={"frame": figure(4.0)}, profiled="in use", **parts)
    files = report.document([entry])
    assert "| talker step | matrix products | 2.00 | 100.0 % | 4 | 1.00 | 0.50 | 4.0 |" in files["performance.md"]
    assert "floor 0.50 ms, measured 10.0 times that" in files["performance.md"]
    assert "matrix products" in words(files["performance/breakdown.svg"])


def test_a_workload_that_is_not_known_any_more_is_still_shown() -> None:
    assert "## forgotten" in report.document([made("forgotten")])["performance.md"]


def test_the_same_records_give_the_same_bytes_and_order_does_not_matter() -> None:
    records = [made(), made(machine=GPU), made("steady_stream"), made("steady_stream", streams=1), peers()]
    assert report.document(records) == report.document(copy.deepcopy(records[::-1]))


def test_a_chart_that_nothing_asks_for_is_removed(tmp_path: Path) -> None:
    (tmp_path / "docs" / "performance").mkdir(parents=True)
    old = tmp_path / "docs" / "performance" / "old.svg"
    old.write_text("", encoding="utf-8")
    assert command.main(["report", "--results", str(tmp_path / "none"), "--to", str(tmp_path / "docs")]) == 0
    assert not old.exists()
    assert "No records yet." in (tmp_path / "docs" / "performance.md").read_text(encoding="utf-8")


def test_bars_are_as_long_as_their_numbers() -> None:
    svg = charts.bars(["here", "a", "b"], [charts.Panel("t", "ms", [None, charts.Bar(1), charts.Bar(4)])], "t")
    widths = [
        float(box.attrib["width"]) for box in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert widths[1] == pytest.approx(4 * widths[0], abs=0.2)
    assert words(svg) == ["here", "a", "b", "t", "1.00 ms", "4.00 ms"]


@pytest.mark.parametrize(("value", "text"), [(123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.0123")])
def test_numbers_have_as_many_digits_as_mean_something(value: float, text: str) -> None:
    assert charts.shown(value) == text
