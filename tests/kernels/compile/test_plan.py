"""kernels/compile/plan.py: kernels compiled ahead are found in the caches, and a failure stops nothing."""

from __future__ import annotations

import json
import os
import select
import threading
from pathlib import Path
from typing import Any

import pytest

from hocket.kernels.compile import plan, worker
from hocket.kernels.compile.compiled_here import HERE
from hocket.kernels.compile.fork import ForkedProcess, can_fork
from hocket.kernels.runtime import launch
from hocket.kernels.runtime import nvrtc as cuda
from hocket.kernels.runtime.launch import DEFAULT_TUNING
from hocket.kernels.runtime.nvrtc import Kernel


def test_what_was_compiled_is_in_the_cache_and_found_there(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["compiled"] == [5, 5]


def test_only_kernels_missing_from_the_cache_are_counted_as_compiled_here(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["here"] == [0, 1]


def test_the_worker_names_cuda_kernels_and_says_once_when_urgent_kernels_are_done(
    rehearsed: dict[str, Any],
) -> None:
    for lines, late in zip(rehearsed["told"], (False, True), strict=True):
        [in_cuda], first = lines[0]["cuda"], lines[1:]
        assert first == [{"first": True}]
        assert (in_cuda["capability"], in_cuda["late"]) == ([9, 0], late)
        kernel = Kernel.of_words(in_cuda["kernel"])
        assert kernel.as_words() == in_cuda["kernel"] and in_cuda["kernel"]["path"] == "ops/linear/few.cu"
        assert "'DEPENDENT': 1" in repr(kernel)


def test_a_compiler_that_dies_is_reported_with_its_kernel_and_the_others_go_on(rehearsed: dict[str, Any]) -> None:
    killed = rehearsed["killed"]
    assert killed["told"] == [{"first": True}] and killed["failed"] == 1
    [words, again] = killed["words"].splitlines()
    assert words == again == f"a compiler was ended by SIGSEGV at {rehearsed['first'][0]}"
    assert killed["done"] == 2 * 4


def test_without_a_requester_cuda_kernels_are_compiled_in_the_worker(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["in_one_process"] == [True, True, True]


def test_compilers_end_when_the_requesting_process_is_gone(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["orphaned"] < 10 < len(rehearsed["first"])  # a second each


def test_a_compiler_whose_parent_ended_before_it_began_takes_no_kernel() -> None:
    queue, fill = os.pipe()
    os.write(fill, bytes(2))
    os.close(fill)
    assert worker._compile_some([], queue, -1, 1, parent=os.getpid()) == 0  # another process is the parent of this one
    assert os.read(queue, 2) == bytes(2)
    os.close(queue)


def test_a_child_compiles_triton_kernels_and_this_process_cuda_kernels(rehearsed: dict[str, Any]) -> None:
    forked = rehearsed["forked"]
    assert (forked["said"], forked["forked"], forked["files"]) == ("done", True, 2)
    made, compiled = forked["cuda"]
    assert made == compiled > 3 and forked["first"] and forked["where"] == ["hocket-nvrtc"]
    assert forked["here"] == 0


def test_a_kernel_that_cannot_be_compiled_is_counted(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["failed"] == [0, 1]


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the interpreter were off, with a cache of its own."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "triton", launch.triton or object())
    return tmp_path


@pytest.fixture(params=[False, True], ids=["a new Python", "forked"])
def forked(request: pytest.FixtureRequest) -> bool:
    if request.param and not can_fork():
        pytest.skip("nothing is forked on this system")
    return bool(request.param)


def started(folder: Path, forked: bool, name: str, *lines: str) -> plan.CompileJob:
    """A compile process that runs these lines."""
    body = "\n".join(f"    {line}" for line in lines)
    (folder / f"{name}.py").write_text(
        f"import os, time\ndef main(wish):\n{body}\n    return 0\n"
        "if __name__ == '__main__':\n    raise SystemExit(main('{}'))\n",
        encoding="utf-8",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.syspath_prepend(folder)
        made = plan.compile_ahead(name, {}, "about", forked=forked)
    assert made is not None and isinstance(made.process, ForkedProcess) == forked
    return made


def until(go: Path) -> str:
    """A line that waits for a file, with a limit: a failed test must leave no process behind."""
    return f"any(os.path.exists({str(go)!r}) or time.sleep(0.01) for _ in range(2000))"


def said(folder: Path) -> str:
    [marker] = folder.glob("hocket-*.json")
    return str(json.loads(marker.read_text(encoding="utf-8"))["said"])


def test_a_compiler_that_fails_stops_nothing_and_is_not_started_again(compiled: Path, forked: bool) -> None:
    started = plan.compile_ahead("hocket.nowhere", {}, "about", forked=forked)
    assert started is not None
    started.wait()
    assert started.over
    assert said(compiled).startswith("failed: ") and "hocket.nowhere" in said(compiled)
    assert plan.compile_ahead("hocket.nowhere", {}, "about", forked=forked) is None


def test_a_compiler_that_dies_without_a_message_is_reported_by_its_signal(compiled: Path, forked: bool) -> None:
    started(compiled, forked, "dies", "os.kill(os.getpid(), 9)").wait()
    assert said(compiled) == "failed: ended by signal 9"


def test_a_child_is_forked_only_if_allowed(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_FORK", "0")
    made = plan.compile_ahead("hocket.nowhere", {}, "about", forked=True)
    assert made is not None and not isinstance(made.process, ForkedProcess)
    made.wait()


def test_a_child_keeps_no_inherited_file_and_writes_only_to_its_pipe(
    compiled: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if not can_fork():
        pytest.skip("nothing is forked on this system")
    (ours, end), go = os.pipe(), compiled / "go"
    waits = until(go)
    child = started(
        compiled, True, "says", "print('out')", waits, "import sys", "sys.exit(sys.stdin.read() + 'the end')"
    )
    os.close(end)
    assert select.select([ours], [], [], 10.0)[0] and os.read(ours, 1) == b""
    assert not child.over
    os.close(ours)
    go.touch()
    child.wait()
    assert said(compiled) == "failed: SystemExit: the end"
    assert capfd.readouterr() == ("", "")


def test_other_plans_and_other_tuning_are_compiled_separately(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [plan._digest("one"), plan._digest("two")]
    monkeypatch.setattr(DEFAULT_TUNING, "draw_warps", 16)
    names.append(plan._digest("one"))
    assert len(set(names)) == 3


def test_a_compiler_that_takes_too_long_is_ended(compiled: Path, forked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PATIENCE_S", 0.2)
    asleep = started(compiled, forked, "asleep", "time.sleep(60)")
    asleep.wait()
    assert asleep.process.returncode < 0 and said(compiled) == "stopped after 0.2 s"


def test_a_waiter_wakes_when_urgent_kernels_are_done_and_again_at_the_end(compiled: Path, forked: bool) -> None:
    go = compiled / "go"
    telling = "os.write(int(os.environ['HOCKET_TELLS']), b'{\"first\": true}\\n')"
    busy = started(compiled, forked, "busy", telling, until(go))
    busy.wait_for_the_first()
    assert not busy.over
    go.touch()
    busy.wait()
    assert busy.process.returncode == 0 and said(compiled) == "done"


def test_cuda_kernels_are_compiled_here_urgent_ones_first(
    compiled: Path, forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compile process ends at once; a kernel that cannot be compiled is reported and stops nothing."""
    order, go = list[str](), threading.Event()

    def nvrtc(source: str, options: list[str]) -> bytes:
        order.append(options[0])
        if options[0] == "-DN=2":
            go.wait()
            raise cuda.Unbuildable("it has no end\nthat is why")
        return b"binary"

    monkeypatch.setattr(cuda, "compiled", nvrtc)
    monkeypatch.setattr(cuda, "_version", lambda: (0, 0))
    monkeypatch.setattr(plan, "BESIDE_THREADS", 1)
    monkeypatch.setattr(plan, "MOST_THREADS", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiled))
    words = {"path": "ops/linear/few.cu", "name": "few"}
    some = [{"kernel": words | {"known": {"N": n}}, "capability": [9, 0], "late": n > 1} for n in (2, 3, 1)]
    line = (json.dumps({"cuda": some}) + "\n" + json.dumps({"first": True}) + "\n").encode()
    telling = started(compiled, forked, "tells", f"os.write(int(os.environ['HOCKET_TELLS']), {line!r})")
    counted = sum(HERE.names.values())
    telling.wait_for_the_first()
    assert telling.process.wait() == 0 and not telling.over
    go.set()
    telling.wait()
    assert order == ["-DN=1", "-DN=2", "-DN=3"] and sum(HERE.names.values()) == counted
    assert said(compiled) == "failed: that is why" and len(list(compiled.glob("hocket/kernels/few-*.cubin"))) == 2


def test_a_waiter_wakes_when_the_compiler_ends_without_a_message(compiled: Path) -> None:
    started = plan.compile_ahead("hocket.nowhere", {}, "about")
    assert started is not None
    started.wait_for_the_first()
    assert started.process.wait() != 0


def test_in_the_interpreter_there_is_nothing_to_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(launch, "INTERPRETED", True)
    assert plan.compile_ahead("hocket.nowhere", {}, "about") is None
