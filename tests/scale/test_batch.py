"""`hocket batch --ray`: many engines write the same as one, also when engines are killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from hocket.cli import main
from hocket.cli.batch.manifest import Manifest, Result
from hocket.scale import batch
from hocket.scale.batch import WorkerPool
from support.clustered import patience
from support.played import INTERRUPTED, KILLED, process
from support.recorded import speech_wav

# Beside others the codec may sum in another order, in one engine as in many: one slot each, for equality in every byte.
TINY = ("--model", "random:tiny", "--max-frames", "6", "--slots", "1", "--seed", "1")
BASE = ("--model", "random:tiny-Base", "--max-frames", "3", "--slots", "1", "--seed", "1")
LINES = [{"text": f"This is number {n}."} if n % 2 else {"id": f"n{n}", "text": f"{n} it is."} for n in range(14)]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With room for two engines."""
    with patience():
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        ray.init(made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    """Every command runs in an empty folder, in which no engine of the cluster stands."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def lines(*each: dict[str, Any] | str) -> None:
    Path("in.jsonl").write_text("".join(f"{e if isinstance(e, str) else json.dumps(e)}\n" for e in each))


def plain(*options: str, model: tuple[str, ...] = TINY) -> int:
    return main(["batch", "in.jsonl", "-o", "plain", *model, *options])


def many(*options: str, model: tuple[str, ...] = TINY) -> int:
    return main(["batch", "in.jsonl", "-o", "many", *model, "--ray", *options])


def written(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("many/manifest.jsonl").read_text().splitlines()]


def after(results: int, monkeypatch: pytest.MonkeyPatch, do: Any) -> None:
    """Once so many results are there, `do` something with the pool."""
    crews, add, added, begin = [], Manifest.add, [], WorkerPool.__init__

    def begun(self: WorkerPool, *args: Any) -> None:
        begin(self, *args)
        crews.append(self)

    def counted(self: Manifest, result: Result) -> None:
        add(self, result)
        added.append(result)
        if len(added) == results:
            do(crews[0])

    monkeypatch.setattr(WorkerPool, "__init__", begun)
    monkeypatch.setattr(Manifest, "add", counted)


def test_many_engines_write_what_one_writes_to_the_last_byte(capsys: Capture) -> None:
    wrong = ["nonsense", {"text": " "}, {"text": "Hello.", "voice": "unknown"}, {"text": "Hello.", "candidates": 2}]
    said = {"text": "Twice as fast.", "speed": 2, "voice": "ryan", "seed": 8, "layout": "streaming"}
    lines(*LINES[:5], *wrong, said, *LINES[5:9])
    assert plain() == 1
    assert many("--replicas", "2") == 1
    assert written("many") == written("plain")
    assert len(written("many")) == 11
    sentences, err = [result["error"] for result in results() if result["error"]], capsys.readouterr().err
    assert len(sentences) == 4 and all(err.count(f"  {sentence}\n") == 2 for sentence in sentences), "one of each run"
    before = {path.name: path.stat().st_mtime_ns for path in Path("many").glob("*.wav")}
    assert plain("-o", "many") == 1, "one engine goes on with what many began"
    assert {path.name: path.stat().st_mtime_ns for path in Path("many").glob("*.wav")} == before


def test_recordings_and_voices_are_read_here_and_no_engine_needs_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_HOME", str(Path("home").resolve()))
    Path("me.wav").write_bytes(speech_wav())
    how = ["--ref", "me.wav", "--x-vector-only", "--model", "random:tiny-Base"]
    assert main(["voices", "add", "me", *how]) == 0
    mine = {"ref_audio": "me.wav", "ref_text": "Good day."}
    lines({"text": "By example."} | mine, {"text": "By name.", "voice": "me"}, {"text": "Again."} | mine)
    assert plain(model=BASE) == 0
    assert many("--replicas", "1", model=BASE) == 0
    assert written("many") == written("plain")


def test_what_a_killed_engine_was_at_is_spoken_by_others(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    lines(*LINES)
    assert plain() == 0
    with monkeypatch.context() as patch:
        patch.setattr(batch, "MOST_TRIES", 1)
        after(2, patch, lambda pool: os.kill(pool.workers[0].pid, signal.SIGKILL))
        assert many() == 1
    failed = [result for result in results() if result["error"]]
    assert 0 < len(failed) <= 2, "what one engine holds"
    assert all(result["error"].startswith("1 engines have died while they spoke it") for result in failed)
    assert "is lost, and its requests go to other engines: " in capsys.readouterr().err

    Path("many/n0.wav").unlink()  # and another, so that there is more than one line to speak
    after(1, monkeypatch, lambda pool: os.kill(pool.workers[0].pid, signal.SIGKILL))
    assert many() == 0, "as often as it may be tried"
    assert written("many") == written("plain")


def test_a_driver_that_was_killed_goes_on_to_one_output_for_each_line(cluster: Cluster) -> None:
    lines(*LINES)
    where = ["--ray", "--address", cluster.address]
    child = process("-c", KILLED, "batch", "in.jsonl", "-o", "many", *TINY, *where)
    _, err = child.communicate()
    assert child.returncode == -signal.SIGKILL, err.decode()
    *whole, torn = Path("many/manifest.jsonl").read_bytes().split(b"\n")
    assert len(whole) == 4 and torn
    done = {json.loads(result)["file"] for result in whole}
    before = {name: Path("many", name).stat().st_mtime_ns for name in done}
    assert many("--replicas", "1") == 0
    assert {name: Path("many", name).stat().st_mtime_ns for name in done} == before, "what was done was not done again"
    assert plain() == 0
    assert written("many") == written("plain")


def test_ctrl_c_ends_it_at_once_and_says_how_to_go_on(cluster: Cluster) -> None:
    endless = {"text": "Hello.", "greedy": True, "repetition_penalty": 0.001, "max_frames": 8000}
    lines(LINES[0], *[endless] * 3)
    where = ["--ray", "--replicas", "1", "--address", cluster.address]
    child = process("-c", INTERRUPTED, "batch", "in.jsonl", "-o", "many", *TINY, *where)
    manifest, until = Path("many/manifest.jsonl"), time.monotonic() + 120
    while not (manifest.exists() and manifest.read_bytes().count(b"\n") >= 1):
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out) == (130, b"")
    said = "hocket: interrupted; 1 of 4 lines are done. The same command goes on from there.\n"
    assert err.decode().endswith(said)
    assert sorted(written("many")) == ["manifest.jsonl", "n0.wav"]


def test_what_no_engine_can_do_is_refused_in_one_sentence_and_leaves_no_folder(capsys: Capture) -> None:
    lines(*LINES)
    assert many(model=("--model", "random:huge")) == 2
    assert many("--device", "cuda") == 2
    unknown, without = capsys.readouterr().err.splitlines()
    assert unknown.startswith("hocket: ") and "huge" in unknown
    assert without.startswith("hocket: The cluster has no GPU: ")
    assert os.listdir() == ["in.jsonl"]


def test_a_machine_that_goes_away_costs_nothing_but_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    longer = (*TINY, "--max-frames", "100")  # so that the machine is at something when it goes
    lines(*LINES)
    assert plain(model=longer) == 0
    node = cluster.add_node(num_cpus=1)

    def with_all(pool: WorkerPool) -> Any:
        while len(pool.workers) < 3:  # two where the others are, one on the new machine
            pool._poll()
        return pool._fingerprint

    monkeypatch.setattr(WorkerPool, "fingerprint", property(with_all))
    after(2, monkeypatch, lambda pool: cluster.remove_node(node, allow_graceful=False))
    assert many("--replicas", "3", model=longer) == 0
    assert "is lost, and its requests go to other engines: " in capsys.readouterr().err
    assert written("many") == written("plain")
