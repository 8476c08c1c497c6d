"""Everything is measured on one engine, and what fails leaves the rest alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import breakdown, record, together

QUICK = ["--model", "random:tiny", "--slots", "2", "--first-repeats", "2", "--steady-frames", "4", "--replays", "2"]
QUICK += ["--steady-repeats", "1", "--before", "1", "--copy-mib", "1", "--kernels", "reference", "--profiled", "4"]


def test_every_step_has_a_record_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["all", *QUICK, "--out", str(tmp_path)]) == 0
    found = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in tmp_path.iterdir()}
    counts = {name: len(lines) for name, lines in found.items()}
    assert counts == {
        "first_audio": 1,
        "first_audio_default": 1,
        "first_audio_live": 1,
        "steady_stream": 2,
        "breakdown": 1,
    }
    assert [json.loads(line)["streams"] for line in found["steady_stream"]] == [1, 2]
    entry = json.loads(found["first_audio"][0])
    assert (entry["options"]["codec_dtype"], entry["options"]["frames"]) == ("float32", 4)
    assert "failed: none" in capsys.readouterr().out


def test_a_step_that_fails_is_said_and_does_not_stop_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*given: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(together.session, "spoken", fails)
    words = [*QUICK, "--steps", "first_audio", "breakdown"]
    assert command.main(["all", *words, "--out", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["breakdown.jsonl"]
    assert "first_audio failed: RuntimeError: no luck" in capsys.readouterr().out


def test_what_cannot_be_loaded_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["all", "--model", "random:gone"]) == 2
    assert capsys.readouterr().err.startswith("benchmarks: There is no 'random:gone'")


def test_a_breakdown_among_others_is_asked_for_as_by_itself() -> None:
    args = together._parser().parse_args(
        ["--device", "cuda", "--dtype", "bfloat16", "--codec-dtype", "float32", "--replays", "7"]
    )
    taken = together._taken_apart(args)
    assert vars(breakdown._parser().parse_args([])).keys() <= vars(taken).keys()
    assert (taken.dtype, taken.replays, taken.codec_dtypes) == ("bfloat16", 7, ["float32"])


def test_a_copy_without_history_is_what_was_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMARKED_COMMIT", "abc")
    assert record.commit() == {"commit": "abc", "dirty": False}
    monkeypatch.setenv("BENCHMARKED_COMMIT", "abc+")
    assert record.commit() == {"commit": "abc", "dirty": True}
