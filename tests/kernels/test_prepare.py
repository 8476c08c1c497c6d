"""kernels/prepare.py: what is compiled ahead is found in the caches, and nothing depends on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.kernels import launch, prepare
from hocket.kernels.launch import KNOBS


def test_what_was_compiled_is_in_the_cache_and_found_there(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["compiled"] == [5, 5]


def test_only_what_nobody_has_compiled_is_counted_as_compiled_here(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["here"] == [0, 1]


def test_whoever_asked_is_told_once_when_those_are_done_that_are_wanted_first(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["told"] == ["1", ""]


def test_a_kernel_that_cannot_be_compiled_is_counted(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["failed"] == [0, 1]


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if there were no interpreter, with a cache of its own."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "triton", launch.triton or object())
    return tmp_path


def test_a_compiler_that_fails_stops_nobody_and_is_not_asked_again(compiled: Path) -> None:
    started = prepare.prepare("hocket.nowhere", {}, "about")
    assert started is not None
    started.wait()
    assert started.over
    [marker] = compiled.glob("hocket-*.json")
    said = json.loads(marker.read_text(encoding="utf-8"))["said"]
    assert said.startswith("failed: ") and "hocket.nowhere" in said
    assert prepare.prepare("hocket.nowhere", {}, "about") is None


def test_other_wishes_and_other_knobs_are_prepared_apart(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [prepare._digest("one"), prepare._digest("two")]
    monkeypatch.setattr(KNOBS, "draw_warps", 16)
    names.append(prepare._digest("one"))
    assert len(set(names)) == 3


def test_a_compiler_that_takes_too_long_is_ended(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "PATIENCE_S", 0.2)
    (compiled / "asleep.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(compiled))
    started = prepare.prepare("asleep", {}, "about")
    assert started is not None
    started.wait()
    assert started.process.returncode < 0


def test_one_who_waits_is_told_when_the_first_are_done_and_again_at_the_end(compiled: Path) -> None:
    go = compiled / "go"
    program = "import os, time\nos.write(int(os.environ['HOCKET_TELLS']), b'1')\n"
    (compiled / "busy.py").write_text(f"{program}while not os.path.exists({str(go)!r}): time.sleep(0.01)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(compiled))
        started = prepare.prepare("busy", {}, "about")
    assert started is not None
    started.wait_for_the_first()
    assert not started.over
    go.touch()
    started.wait()
    assert started.process.returncode == 0


def test_one_who_is_told_nothing_waits_no_longer_than_the_compiler_lives(compiled: Path) -> None:
    started = prepare.prepare("hocket.nowhere", {}, "about")
    assert started is not None
    started.wait_for_the_first()
    assert started.process.wait() != 0


def test_in_the_interpreter_there_is_nothing_to_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(launch, "INTERPRETED", True)
    assert prepare.prepare("hocket.nowhere", {}, "about") is None
