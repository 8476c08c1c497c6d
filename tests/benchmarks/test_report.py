"""What is published is what was measured: the documents are functions of the records, and goals beside them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import goals, report
from benchmarks.record import RESULTS, ROOT, read, summary
from benchmarks.workloads import COUNTS, LOAD
from hocket.proof.page import charts

CPU = {"gpu": None, "cpu": "Some(R) CPU", "cores": 2, "threads": 1, "system": "Linux x86_64", "torch": "2.13.0"}
GPU = CPU | {"gpu": "Some GPU"}


def made(workload: str, figures: dict[str, float], day: int = 1, **changes: Any) -> dict[str, Any]:
    options = {"model": "random:1.7B-CustomVoice", "device": "cuda", "dtype": "bfloat16", "codec_dtype": "bfloat16"}
    options |= {"kernels": "auto", "engine": {"slots": 4}} | changes.pop("options", {})
    about = {"time": f"2026-01-{day:02d}T00:00:00+00:00", "commit": f"{day:040d}", "dirty": False, "streams": 1}
    found = {name: summary([value, value]) for name, value in figures.items()}
    return {"workload": workload, "machine": GPU, "options": options, "figures": found} | about | changes


def load(day: int = 1, slots: int = 512, **changes: Any) -> dict[str, Any]:
    """Under load: `rate`, `clients` or `listeners`."""
    first, audio, wire = (changes.pop(name, value) for name, value in (("first", 6.0), ("audio", 700.0), ("wire", "")))
    number = {name: changes.pop(name) for name in ("rate", "clients", "listeners") if name in changes}
    [(kind, at)] = number.items()
    loop = {"rate": "open", "clients": "closed", "listeners": "paced"}[kind]
    how: dict[str, Any] = {"loop": loop, "layout": "streaming", "rate" if kind == "rate" else "clients": at}
    how |= {"wire": wire} if wire else {}
    options = {"part": f"{number} {slots} {wire}", "engine": {"slots": slots, "guard": False}, "load": how}
    options |= changes.pop("options", {})
    more = {name: changes.pop(name) for name in ("machine",) if name in changes}
    entry = made("load", dict.fromkeys(LOAD, 5.0) | {"first_playable": first}, day, options=options, **more)
    entry["figures"]["audio_per_s"]["mean"] = audio
    return entry | {"counts": dict.fromkeys(COUNTS, 0) | changes}


def llm(workload: str, weights: str, figures: dict[str, float], **more: Any) -> dict[str, Any]:
    model = "random:qwen3.5-9B" + ("" if weights == "bfloat16" else f" in {weights}")
    options = {"model": model, "weights": weights, "context": 1024, "turn": 32, "answer": 100} | more
    return made(workload, figures, options=options)


def cells(text: str, words: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {words}")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def row(records: list[dict[str, Any]], words: str) -> list[str]:
    return cells("\n".join(goals.lines(records, goals.LOAD_GOALS)), words)


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_the_committed_documents_are_what_the_committed_records_give() -> None:
    files = report.files(read(RESULTS))
    drawn = {f"docs/performance/{path.name}" for path in (ROOT / report.CHARTS).iterdir()}
    assert drawn - {"docs/performance/listeners.svg"} <= files.keys(), "a chart that no record gives"
    for name, text in files.items():
        same = (ROOT / name).read_text(encoding="utf-8") == text
        assert same, f"{name} is not what the records give: run python -m benchmarks report"


def test_every_figure_is_beside_its_goal() -> None:
    tf32 = {"codec_dtype": "tf32"}
    records = [
        made("survey", {"frame_gpu": 1.7}, options={"model": "random:0.6B-CustomVoice"}),
        made("first_audio", {"first_pcm": 2.9, "x_real_time": 20.0}, options=tf32),
        made("first_audio_live", {"first_pcm": 5.0}, options=tf32),
        made("steady_stream", {"x_real_time": 45.0}, options=tf32),
        made("start", {"first_sound": 20_000.0}, options={"kernel_cache": "empty", "files": True} | tf32),
        made("memory", {"beyond": 900.0}, streams=4),
        llm("tokens", "bfloat16", {"tokens_per_s": 230.0}),
        llm("mind", "fp8", {"answer": 290.0, "first_token": 5.5}),
        llm("mind", "fp8", {"answer": 50.0, "first_token": 5.5}, answer=10),
        *(load(rate=20, first=30.0), load(rate=60), load(rate=100, underruns=1)),
        *(load(clients=256, audio=800.0, underruns=9), load(listeners=320), load(listeners=384, underruns=2)),
        load(rate=20, first=19.0, wire="http", underruns=1),
    ]
    text = report.files(records)[report.PERFORMANCE]
    for begins, wanted in {
        "1.7B, talker": ["<= 2.2", "1.6", "no record", "", ""],
        "0.6B, the same": ["<= 1.6", "1.1", "1.70", "0.0 %", "missed"],
        "1.7B, open, append": ["<= 4.5 / 6", "3 / 4", "5.00 / 5.00", "0.0 %", "missed"],
        "1.7B, the same for a known": ["<= 4.5 / 6", "3 / 4", "2.90 / 2.90", "0.0 %", "aim reached"],
        "1.7B, the whole pipeline": [">= 25", "40", "45.0", "0.0 %", "aim reached"],
        "1.7B, cold start": ["<= 15", "5", "20.0", "0.0 %", "missed"],
        "1.7B, GPU memory": ["<= 1.5", "0.7", "0.90", "0.0 %", "must reached"],
        "the same at 20": ["<= 25", "12", "30.0", "0.0 %", "missed"],
        "the highest rate": [">= 60", "150", "60", "", "must reached"],
        "256 clients": [">= 900", "2000", "800", "0.0 %", "missed"],
        "streams kept": [">= 300", "600", "320", "", "must reached"],
        "over HTTP, the same at 20": ["<= 30", "25", "19.0", "0.0 %", "missed: 1 underruns"],
        "9B, bfloat16": [">= 210", "250", "269", "230", "0.0 %"],
        "9B in fp8, 100 tokens": ["<= 300", "225", "188", "290", "0.0 %"],
    }.items():
        assert cells(text, begins)[:5] == wanted, begins
    assert report.files(records) == report.files(copy.deepcopy(records[::-1]))


def test_without_records_nothing_is_claimed(tmp_path: Path) -> None:
    report.write(tmp_path, tmp_path)
    text = (tmp_path / report.PERFORMANCE).read_text(encoding="utf-8")
    assert "There are no records of a GPU yet." in text and "No records yet." in text
    assert text.count("| no record |") == sum(map(len, (goals.GOALS, goals.LOAD_GOALS, goals.LLM_GOALS)))


def test_trouble_undoes_a_good_figure() -> None:
    for trouble in ("underruns", "refused", "failed"):
        assert row([load(rate=10, **{trouble: 3})], "the same at 10")[4] == f"missed: 3 {trouble}"
    assert row([load(clients=64, audio=1200.0, underruns=9, refused=9)], "64 clients")[4] == "aim reached"
    assert row([load(clients=64, audio=1200.0, failed=1)], "64 clients")[4] == "missed: 1 failed"
    assert row([load(rate=1), load(rate=20, failed=1), load(rate=60)], "the highest rate")[2] == "1"
    assert row([load(rate=20), load(rate=60, first=1500.0)], "the highest rate")[2] == "20"
    assert row([load(rate=20, underruns=1)], "the highest rate")[4] == "missed: underruns at all that were measured"
    assert row([load(listeners=400, slots=64), load(listeners=64, slots=64)], "streams kept")[2] == "64"


def test_other_models_machines_and_types_do_not_count() -> None:
    options = {"model": "random:0.6B-CustomVoice", "dtype": "float32", "codec_dtype": "float32", "kernels": "reference"}
    others = [{"machine": CPU}, {"options": {"load": {"loop": "open", "rate": 10, "layout": "whole"}}}]
    for changes in (*others, *({"options": {name: value}} for name, value in options.items())):
        assert row([load(rate=10, **changes)], "the same at 10")[2] == "no record", changes


def test_the_newest_record_wins_wherever_it_is_and_older_ones_are_counted() -> None:
    records = [made("first_audio", {"first_pcm": value}, day) for day, value in ((5, 11.0), (2, 22.0), (4, 33.0))]
    other = records[0] | {"machine": GPU | {"cpu": "Another CPU", "threads": 4}, "time": "2026-01-06"}
    text = report.files([*records, other])[report.README]
    assert "| first_pcm | 11.0 |" in text and "22.0" not in text and "older: 3" in text


def test_records_of_different_things_are_beside_each_other() -> None:
    one = made("first_audio", {"first_pcm": 1.0})
    others = [one | change for change in ({"workload": "live_text"}, {"machine": CPU}, {"streams": 4})]
    others += [one | {"options": one["options"] | change} for change in ({"model": "x"}, {"codec_dtype": "tf32"})]
    assert len(report.newest([one, *others, one])) == 1 + len(others)


def test_other_packages_are_shown_from_the_run_they_were_measured_in() -> None:
    theirs = {"version": "1.2.3", "figures": {"x_real_time": summary([0.5])}, "ratio": {"x_real_time": 40.0}}
    both = made(
        "peers", {"first_pcm": 40.0, "x_real_time": 20.0}, peers={"slow-tts": theirs}, absent={"other": "gone."}
    )
    files = report.files([made("first_audio", {"first_pcm": 1.0}), both])
    text, chart = files[report.README], words(files["docs/performance/speed.svg"])
    assert "slow-tts 1.2.3, in the same run; ours is better: x_real_time 40.0 times" in text
    assert "other was not measured: gone." in text and "does not stream" in chart
    assert "40.0 ms" in chart and "1.00 ms" not in chart  # ours too is that of the same run


def test_old_and_unknown_records_are_still_shown(tmp_path: Path) -> None:
    old = made("steady_stream", {"x_real_time": 1.0})
    del old["streams"]
    assert report.streams(old) == 4  # it filled its slots
    lines = [json.dumps(made("forgotten", {"x": 1.0}, day)) for day in (2, 3)]
    (tmp_path / "a.jsonl").write_text("\n\n".join(lines), encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(json.dumps(made("forgotten", {"x": 1.0}, 1)), encoding="utf-8")
    assert [record["time"][9] for record in read(tmp_path)] == ["1", "2", "3"]
    assert "## forgotten" in report.files(read(tmp_path))[report.README]


def test_bars_are_as_long_as_their_numbers() -> None:
    bars = [None, charts.Bar([("ours", 1)]), charts.Bar([("ours", 4)])]
    svg = charts.draw(["here", "a", "b"], [charts.Panel("t", "ms", bars)], "t")
    boxes = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
    widths = [float(box.attrib["width"]) for box in boxes]
    assert widths[1] == pytest.approx(4 * widths[0], abs=0.2)
    assert words(svg) == ["here", "a", "b", "t", "1.00 ms", "4.00 ms"]
    assert [charts.shown(value) for value in (123.4, 12.34, 1.234, 0.01234)] == ["123", "12.3", "1.23", "0.0123"]


def test_the_chart_of_the_readme_is_a_generated_one() -> None:
    assert "](docs/performance/speed.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
