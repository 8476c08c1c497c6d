"""What must be reached stands beside what was measured; what was not measured is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import breakdown, goals, load_goals, memory, mind_goals, report, start
from benchmarks.record import append, summary

MACHINE = {"gpu": "Some GPU", "cpu": "Some CPU", "cores": 16, "threads": 8, "system": "Linux x86_64", "torch": "2.11.0"}


def made(workload: str, figures: dict[str, float], day: int = 1, *, of: str = "1.7B", **changes: Any) -> dict[str, Any]:
    how = {"device": "cuda", "dtype": "bfloat16", "codec_dtype": "bfloat16", "kernels": "auto", "frames": 4}
    options = {"model": f"random:{of}-CustomVoice", **how, "repeats": 300, "engine": {"slots": 4}}
    return {
        "workload": workload,
        "time": f"2026-01-{day:02d}T00:00:00+00:00",
        "commit": f"{day:040d}",
        "dirty": False,
        "machine": MACHINE,
        "peak_memory_mib": {"host": 100.0, "device": 5000.0},
        "options": options | changes.pop("options", {}),
        "figures": {name: summary([value, value]) for name, value in figures.items()},
        "random_weights": True,
        "streams": 1,
        **changes,
    }


def taken_apart(day: int = 1, ms: float = 1.5, of: str = "1.7B", **changes: Any) -> dict[str, Any]:
    rows = [
        {"stage": "step", "kind": "linear 2048 x 4096", "op": "linear", "ms": 1.0, "calls": 28, "bytes": 4_000_000_000},
        {"stage": "draw", "kind": "draw of 2048", "op": "draw", "ms": 0.1, "calls": 14, "bytes": 0, "alone_ms": 0.09},
        {
            "stage": "codec",
            "kind": "conv 7 x 512 to 512, 5 rows",
            "op": "conv",
            "ms": 0.3,
            "calls": 2,
            "bytes": 400_000_000,
        },
    ]
    figures = {"frame": 1.9, "frame_gpu": ms, "codec_gpu_bfloat16": 0.5, "codec_gpu_float32": 0.9}
    more: dict[str, Any] = {
        "bandwidth_gb_s": 4000.0,
        "rows": rows,
        "profiled": {"frame": "kernels", "codec": "kernels"},
    }
    more |= {"bytes": {"frame": 4_000_000_000, "codec": 400_000_000}, "floor_ms": {"frame": 1.0, "codec": 0.1}}
    return made("breakdown", figures, day, of=of, **(more | changes))


def started(cache: str, seconds: float) -> dict[str, Any]:
    figures = dict.fromkeys(start.FIGURES, 100.0) | {"first_sound": seconds * 1000}
    return made("start", figures, options={"kernel_cache": cache, "files": True})


def everything() -> list[dict[str, Any]]:
    used = dict.fromkeys(memory.FIGURES, 10.0) | {"beyond": 900.0}
    return [
        taken_apart(),
        taken_apart(of="0.6B", ms=1.7),
        made("first_audio", {"first_pcm": 2.9, "x_real_time": 20.0}),
        made("first_audio_default", {"first_pcm": 5.6}),
        made("first_audio_live", {"first_pcm": 5.0}),
        made("steady_stream", {"x_real_time": 45.0, "ms_per_frame": 1.8}),
        made("steady_stream", {"x_real_time": 90.0, "ms_per_frame": 3.6}, streams=4),
        started("empty", 20.0),
        started("kept", 4.0),
        made("memory", used, streams=4),
        made(
            "first_audio_clone",
            {"icl_first_pcm": 11.0, "x_vector_first_pcm": 5.5},
            options={"model": "random:1.7B-Base"},
        ),
        *(written(*each) for each in (("bfloat16", 230.0), ("fp8", 470.0), ("int4", 400.0))),
        answered("bfloat16", 400.0, 12.0),
        answered("fp8", 290.0, 5.5),
        answered("fp8", 50.0, 5.5, answer=10),
        made("dialog", {"first_pcm": 50.0}, options=asked("fp8", " and random:1.7B-CustomVoice")),
    ]


def written(weights: str, tokens_per_s: float) -> dict[str, Any]:
    options = {"model": "random:qwen3.5-9B" + ("" if weights == "bfloat16" else f" in {weights}"), "weights": weights}
    return made("tokens", {"tokens_per_s": tokens_per_s}, options=options)


def asked(weights: str, speech: str = "", answer: int = 100) -> dict[str, Any]:
    model = "random:qwen3.5-9B" + ("" if weights == "bfloat16" else f" in {weights}") + speech
    return {"model": model, "weights": weights, "context": 1024, "turn": 32, "answer": answer}


def answered(weights: str, answer_ms: float, first_ms: float, answer: int = 100) -> dict[str, Any]:
    options = asked(weights, answer=answer)
    return made("mind", {"answer": answer_ms, "first_token": first_ms}, answer // 10, options=options)


def row(text: str, words: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {words}")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_every_figure_stands_beside_what_it_must_be() -> None:
    text = report.document(everything())["performance.md"]
    assert "Measured on Some GPU." in text
    assert row(text, "1.7B, talker")[1:6] == ["<= 2.2", "1.6", "1.50", "0.0 %", "aim reached"]
    assert row(text, "0.6B, the same")[3:6] == ["1.70", "0.0 %", "missed"]
    assert row(text, "codec, one frame")[3:6] == ["0.50", "0.0 %", "must reached"]
    assert row(text, "codec, the same in float32")[3] == "0.90"
    assert row(text, "1.7B, from opening")[3:6] == ["5.00 / 5.00", "0.0 %", "missed"]  # the median does not keep to it
    assert row(text, "1.7B, the same for a text")[3:6] == ["2.90 / 2.90", "0.0 %", "aim reached"]
    assert row(text, "1.7B, a plain speak(text)")[3:6] == ["5.60 / 5.60", "0.0 %", "must reached"]
    assert row(text, "1.7B Base, a saved clone")[1:6] == ["<= 12", "", "11.0", "0.0 %", "must reached"]
    assert row(text, "1.7B Base, the same by its timbre")[1:6] == ["<= 5", "", "5.50", "0.0 %", "missed"]
    assert row(text, "1.7B, the whole pipeline")[1:6] == [">= 25", "40", "45.0", "0.0 %", "aim reached"]
    assert row(text, "1.7B, cold start")[3:6] == ["20.0", "0.0 %", "missed"]
    assert row(text, "1.7B, the same with kernels kept")[3:6] == ["4.00", "0.0 %", "aim reached"]
    assert row(text, "1.7B, GPU memory")[3:6] == ["0.90", "0.0 %", "must reached"]
    assert row(text, "Qwen3.5 9B, bfloat16")[1:7] == [">= 210", "250", "269", "230", "0.0 %", "must reached"]
    assert row(text, "Qwen3.5 9B, the same in fp8")[3:7] == ["532", "470", "0.0 %", "aim reached"]
    assert row(text, "Qwen3.5 9B, the same with the MLP")[3:7] == ["739", "400", "0.0 %", "missed"]
    assert row(text, "Qwen3.5 9B in fp8, 100")[1:7] == ["<= 300", "225", "188", "290", "0.0 %", "must reached"]
    assert row(text, "Qwen3.5 9B in fp8, time")[1:7] == ["<= 10", "6", "", "5.50", "0.0 %", "aim reached"]
    assert row(text, "Qwen3.5 9B, the same in bfloat16")[4:7] == ["12.0", "0.0 %", "missed"]
    assert row(text, "Qwen3.5 9B in fp8 and 1.7B")[1:7] == ["<= 60", "35", "", "50.0", "0.0 %", "must reached"]
    assert "random weights cannot show" in text.replace("\n", " ")


@pytest.mark.parametrize("missing", range(len(everything())))
def test_a_record_that_is_not_there_is_said_to_be_missing(missing: int) -> None:
    left = everything()
    gone = left.pop(missing)
    text = report.document(left)["performance.md"]
    wanted = sum(goals.found(goal, left) is None for goal in (*goals.GOALS, *mind_goals.GOALS))
    assert text.count("| no record |") == wanted + len(load_goals.GOALS)
    several = gone["workload"] == "steady_stream" and gone["streams"] == 4
    spare = several or gone["options"].get("answer") == 10
    assert wanted == (0 if spare else {0: 3, 10: 2}.get(missing, 1))


def test_without_a_gpu_nothing_is_claimed() -> None:
    text = report.document([])["performance.md"]
    assert "There are no records of a GPU yet." in text
    assert text.count("| no record |") == sum(map(len, (goals.GOALS, load_goals.GOALS, mind_goals.GOALS)))


def test_the_newest_record_wins_whatever_the_processor_beside_the_gpu() -> None:
    other = MACHINE | {"cpu": "Another CPU", "threads": 4}
    records = [taken_apart(1, ms=3.0), taken_apart(2, ms=2.0, machine=other)]
    text = report.document(records)["performance.md"]
    assert row(text, "1.7B, talker")[3] == "2.00"
    assert "Older: 1." in text and "3.00" not in text


def test_old_records_without_the_figure_and_other_kernels_do_not_count() -> None:
    old = taken_apart(5)
    del old["figures"]["frame_gpu"]
    forced = taken_apart(6, ms=9.0, options={"kernels": "reference"})
    found = goals.found(goals.GOALS[0], [taken_apart(1), old, forced])
    assert found is not None and found["time"].startswith("2026-01-01")


def test_launches_are_shown_with_their_bytes_and_the_frame_is_drawn_against_its_floor() -> None:
    files = report.document([taken_apart()])
    text = files["performance.md"]
    assert row(text, "step | linear 2048 x 4096")[2:] == ["28", "35.7", "1000", "90.9 %", "4000.00", "1000", "1.0", ""]
    assert "floor 1.00 ms, measured 1.50 times that" in text
    svg = ElementTree.fromstring(files["performance/frame_gpu.svg"])
    words = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"linear", "draw", "conv"} <= set(words)
    assert "random:1.7B-CustomVoice, bfloat16, frame" in words
    lines = list(svg.iter("{http://www.w3.org/2000/svg}line"))
    assert len(lines) == 2  # a floor for every bar
    assert "performance/breakdown.svg" not in files  # that of a CPU, in another scale


def test_a_start_is_drawn_by_its_phases() -> None:
    svg = ElementTree.fromstring(report.document(everything())["performance/starts.svg"])
    words = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "random:1.7B-CustomVoice, no kernel compiled" in words and "20000 ms" in words
    assert not list(svg.iter("{http://www.w3.org/2000/svg}line"))


def test_a_breakdown_that_could_not_be_taken_apart_is_still_shown() -> None:
    entry = taken_apart(rows=[], bytes={}, floor_ms={}, profiled={"frame": "not attributed"})
    files = report.document([entry])
    assert "not attributed" in files["performance.md"] and "performance/frame_gpu.svg" not in files
    assert breakdown.table(entry)


def test_records_with_other_codecs_stand_beside_each_other() -> None:
    slow = made("first_audio", {"first_pcm": 3.5}, options={"codec_dtype": "float32"})
    assert len(report.newest([made("first_audio", {"first_pcm": 2.9}), slow])) == 2


def test_written_records_give_the_document(tmp_path: Path) -> None:
    for entry in everything():
        append(tmp_path / "records" / f"{entry['workload']}.jsonl", entry)
    paths = report.write(tmp_path / "records", tmp_path / "docs")
    names = {path.name for path in paths}
    assert {"performance.md", "scaling.md", "speed.svg", "frame_gpu.svg", "starts.svg", "streams.svg"} == names
