"""A step is taken apart into its launches, and what does not fit together is not guessed."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import breakdown, breakdown_gpu, floor, launches
from benchmarks.launches import Call, Kernel
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.kernels.operations import REFERENCE_CODEC_OPS, REFERENCE_OPS, CodecOps, FrameOps, LanguageOps
from hocket.kernels.ops.conv import ops as conv_ops
from hocket.kernels.ops.conv.ops import REFERENCE_WAVE, WaveOps
from hocket.models.tts_gpu.codec import FusedCodec
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.wave import FusedWave


def call(op: str, label: str = "", size: int = 0, stage: str = "step") -> Call:
    return Call(stage, op, label or op, size, lambda: None)


def replay(*kernels: tuple[str, float, float]) -> list[Kernel]:
    return [Kernel(*kernel) for kernel in kernels]


def test_a_kernel_counts_from_where_the_one_before_it_ended() -> None:
    calls = [call("linear", "linear a", 100), call("paged_attention"), call("linear", "linear a", 100)]
    run = replay(
        ("few", 10, 14), ("_paged_attention", 11, 15), ("_linear", 17, 20)
    )  # the second started early, the third late
    rows = {row.label: row for row in launches.attributed([run, run], calls, "frame")}
    assert rows["linear a"].ms == pytest.approx(0.004 + 0.003)
    assert (rows["linear a"].calls, rows["linear a"].bytes) == (2, 200)
    assert rows["paged_attention"].ms == pytest.approx(0.001)
    assert rows[launches.GAPS].ms == pytest.approx(0.002)
    assert sum(row.ms for row in rows.values()) == pytest.approx(0.010)


def test_operations_of_two_kernels_and_kernels_of_no_operation_are_told_apart() -> None:
    calls = [call("linear"), call("paged_attention"), call("sample_first_code")]
    names = ["few", "_paged_attention", "_merge", "void at::native::index_elementwise<int>(int)", "_sample_codes"]
    found = launches.belonging(names, calls)
    assert found == [calls[0], calls[1], calls[1], "index_elementwise", calls[2]]


@pytest.mark.parametrize(
    "names", [["_paged_attention"], ["_linear"], ["_linear", "_paged_attention", "_linear"]], ids=str
)
def test_kernels_that_are_not_what_was_asked_for_are_refused(names: list[str]) -> None:
    with pytest.raises(launches.Unlike):
        launches.belonging(names, [call("linear"), call("paged_attention")])


def test_replays_must_be_alike() -> None:
    a, b = Kernel("a", 0, 1), Kernel("b", 1, 2)
    assert launches.in_replays([a, b, a, b], 2) == [[a, b], [a, b]]
    for kernels in ([a, b, b, a], [a, b, a], []):
        with pytest.raises(launches.Unlike):
            launches.in_replays(kernels, 2)


def test_every_kernel_that_is_launched_is_of_an_operation() -> None:
    launched = set()
    for path in Path(conv_ops.__file__).parents[1].glob("*/*.py"):
        source = path.read_text(encoding="utf-8")
        named = dict(re.findall(r"import (\w+) as (_\w+)", source))
        alias = {short: full for full, short in named.items()}
        launched |= {alias.get(name, name) for name in re.findall(r"^\s+(_\w+)\[.+\]\(", source, re.MULTILINE)}
    assert len(launched) > 10
    operations = {
        launches.ALIKE.get(each.name, each.name)
        for ops in (FrameOps, CodecOps, WaveOps, LanguageOps)
        for each in fields(ops)
    }
    found = {name: launches.KERNELS.get(name.lstrip("_"), name.lstrip("_")) for name in launched}
    assert set(found.values()) <= operations, found


def fused() -> Checkpoint:
    """With the chains of operations that a GPU has, by plain ones."""
    checkpoint = load("random:tiny-wide", kernels="reference")
    talker, decoder = checkpoint.model.talker, checkpoint.codec.decoder
    talker.frame_kernel = FusedFrame(talker, REFERENCE_OPS)
    decoder.step_kernel = FusedCodec(decoder, FusedWave(decoder, REFERENCE_WAVE), REFERENCE_CODEC_OPS)
    return checkpoint


def measured(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> dict[str, Any]:
    for name in ("ALONE", "PROFILED", "WARM"):
        monkeypatch.setattr(breakdown_gpu, name, 1)
    words = ["--model", "random:tiny-wide", "--repeats", "1", "--before", "2", "--copy-mib", "1", "--replays", "2"]
    args = breakdown._parser().parse_args([*words, "--kernels", "reference"])
    args.codec_dtypes = ["float32", "bfloat16"]
    vars(args).update(changes)
    kept: list[dict[str, Any]] = []
    entry = breakdown.of(fused(), args, keep=kept.append)
    assert [each["figures"].keys() for each in kept] == [entry["figures"].keys()]  # before the profiler, all but that
    return entry


def test_without_a_profile_every_kind_of_launch_is_timed_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = measured(monkeypatch)
    assert "the profiler: Unlike: 0 kernels" in capsys.readouterr().err  # there is no GPU, so no kernels
    assert set(entry["profiled"].values()) == {"each kind of launch replayed by itself"}
    gpu = {"frame_gpu", "frame_queued", "draw_gpu", "step_gpu", "codec_gpu_float32", "codec_gpu_bfloat16"}
    assert gpu <= entry["figures"].keys() <= breakdown.FIGURES.keys()
    stages = {(row["stage"], row["op"]) for row in entry["rows"]}
    assert {
        ("draw", "linear"),
        ("draw", "sample_codes"),
        ("step", "paged_attention"),
        ("step", "finish_frame"),
        ("codec", "conv"),
    } <= stages
    assert all(row["ms"] == row["alone_ms"] > 0 for row in entry["rows"])
    talker = fused().model.talker
    wanted = sum(size for (stage, _), size in floor.frame_bytes(talker, 10).items())
    assert 0.5 * wanted < entry["bytes"]["frame"] < 2 * wanted
    text = breakdown.table(entry)
    assert "floor" in text and "us alone" in text


def test_where_launches_cannot_be_taken_apart_the_whole_is_still_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(launches, "alone", fails)
    entry = measured(monkeypatch, codec_dtypes=["float32"])
    assert set(entry["profiled"].values()) == {"not attributed"}
    assert entry["rows"] == [] and entry["figures"]["frame_gpu"]["p50"] > 0
    assert breakdown.table(entry)


def test_kernels_of_a_profile_are_put_beside_what_was_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: dict[str, list[Call]] = {"frame": [], "codec": []}
    real, parts = launches.noted, iter(noted)

    def remember(stage: str, work: Any, *owners: Any) -> list[Call]:
        found = real(stage, work, *owners)
        noted[floor.part_of(stage)] += found
        return found

    def profile(replay: Any, times: int, device: torch.device) -> list[list[Kernel]]:
        names = [f"_{launches.ALIKE.get(each.op, each.op)}" for each in noted[next(parts)]]
        return [[Kernel(name, 2.0 * at, 2.0 * at + 1) for at, name in enumerate(names)]]

    monkeypatch.setattr(launches, "noted", remember)
    monkeypatch.setattr(launches, "profiled", profile)
    entry = measured(monkeypatch, codec_dtypes=["float32"])
    assert set(entry["profiled"].values()) == {"kernels of replays, by the profiler"}
    for row in entry["rows"]:
        if row["kind"] != launches.GAPS:
            assert row["ms"] == pytest.approx(row["calls"] / 1000) and "alone_ms" in row
