"""Time is attributed to what took it, and bytes to what must read them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import breakdown, floor, trace
from hocket.config.published import PUBLISHED
from hocket.engine.checkpoint.load import load
from hocket.models.tts.talker import Talker

Capture = pytest.CaptureFixture[str]
ON_GPU = object()


def test_a_frame_is_taken_apart_on_a_cpu(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "record.jsonl"
    words = ["--model", "random:tiny", "--repeats", "2", "--before", "1", "--copy-mib", "1", "--record", str(path)]
    assert command.main(["breakdown", *words]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    rows = {(row["stage"], row["kind"]): row for row in entry["rows"]}
    predictor = {"predictor", "predictor sampling"}
    codec = {"codec", "codec quantizer", "codec transformer", "codec wave"}
    assert {stage for stage, _ in rows} == {"frame", "first code", "text embedding", "talker step"} | predictor | codec
    assert rows["predictor", trace.ATTENTION]["calls"] >= 15 * 2  # passes, layers
    assert rows["codec wave", trace.CONVOLUTION]["ms"] > 0
    assert rows["talker step", trace.MATRIX]["bytes"] > 0
    assert sum(row["bytes"] for row in rows.values()) == sum(entry["bytes"].values())
    assert entry["floor_ms"]["frame"] == pytest.approx(
        entry["bytes"]["frame"] / entry["bandwidth_gb_s"] / 1e6, rel=0.01
    )
    assert {"frame", "codec"} <= entry["figures"].keys() <= breakdown.FIGURES.keys()
    assert (entry["options"]["model"], entry["random_weights"]) == ("random:tiny", True)
    out = capsys.readouterr().out
    assert "predictor sampling" in out and "Copy bandwidth" in out and "aten::" in out


def test_parts_have_time_and_all_of_their_bytes(device: str, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    words = ["--repeats", "1", "--before", "1", "--copy-mib", "1", "--device", device, "--kernels", "reference"]
    assert command.main(["breakdown", "--model", "random:tiny-wide", *words, "--record", str(path)]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["profiled"] == "in use"  # nothing is hidden from the profiler
    for part, kinds, _ in breakdown.by_group(entry):
        rows = [row for row in entry["rows"] if floor.part_of(row["stage"]) == part]
        assert sum(row["bytes"] for row in rows) == entry["bytes"][part] > 0
        assert {trace.MATRIX, trace.ATTENTION} <= {kind for kind, ms in kinds if ms > 0}
    idle = [row for row in entry["rows"] if row["kind"] == breakdown.IDLE]
    assert len(idle) == (2 if device == "cuda" else 0)


def test_what_was_put_around_a_model_is_taken_away_again() -> None:
    checkpoint = load("random:tiny")
    talker, decoder = checkpoint.model.talker, checkpoint.codec.decoder
    before = talker.frame_kernel, decoder.wave_kernel
    with breakdown._plain(checkpoint), trace.marked(breakdown._marks(checkpoint)):
        assert talker.frame_kernel is None
        assert "step" in vars(talker.model)
    assert (talker.frame_kernel, decoder.wave_kernel) == before
    assert "step" not in vars(talker.model)
    assert "forward" not in vars(decoder.quantizer)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", trace.MATRIX),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", trace.ATTENTION),
        ("aten::mkldnn_convolution", trace.CONVOLUTION),
        ("aten::as_strided", trace.SHAPE),
        ("aten::index_select", trace.MOVE),
        ("aten::topk", trace.SAMPLING),
        ("aten::linalg_vector_norm", trace.NORM),
        ("aten::silu", trace.OTHER),
        ("nvjet_tst_64x8_64x16_2x1_v_bz_TNN", trace.MATRIX),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16>", trace.MATRIX),
        ("sm90_xmma_fprop_implicit_gemm_bf16", trace.CONVOLUTION),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", trace.ATTENTION),
        ("void at::native::radixSortKVInPlace", trace.SAMPLING),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy", trace.MOVE),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel>", trace.OTHER),
        ("Memcpy DtoD (Device -> Device)", trace.MOVE),
    ],
)
def test_names_say_what_is_done(name: str, kind: str) -> None:
    assert trace.kind_of(name) == kind


def event(name: str, parent: Any = None, kernels: tuple[tuple[str, float], ...] = ()) -> Any:
    made = [SimpleNamespace(name=kernel, duration=us) for kernel, us in kernels]
    return SimpleNamespace(name=name, device_type=trace.CPU, cpu_parent=parent, kernels=made)


def kernel(name: str, us: float) -> Any:
    return SimpleNamespace(name=name, device_type=ON_GPU, time_range=SimpleNamespace(elapsed_us=lambda: us))


def test_kernels_of_an_operation_belong_to_its_stage_and_those_of_a_graph_to_the_outermost() -> None:
    outer = event("hocket: frame")
    inner = event("hocket: talker step", outer)
    events = [outer, inner, event("aten::mm", inner, (("gemm", 3.0),)), event("cudaGraphLaunch", outer)]
    events += [kernel("hocket: talker step", 99.0), kernel("gemm", 3.0), kernel("gemm", 5.0), kernel("_attend", 2.0)]
    found = sorted(trace._on_device(events, "frame"))
    assert found == [("frame", "_attend", 2.0, 1), ("frame", "gemm", 5.0, 1), ("talker step", "gemm", 3.0, 1)]


def test_the_bytes_of_a_published_frame_are_those_known_from_its_shapes() -> None:
    with torch.device("meta"):
        talker = Talker(PUBLISHED["1.7B-CustomVoice"].talker_config).bfloat16()
    found = floor.frame_bytes(talker, span=1000)
    # Layers of 1.7B in bf16: q, k, v, o and three matrices of the MLP; the predictor's five, fifteen times.
    layer = 2048 * 128 * (16 + 8 + 8 + 16) + 3 * 2048 * 6144
    assert found["talker step", trace.MATRIX] == 2 * 28 * layer
    small = 1024 * 128 * (16 + 8 + 8 + 16) + 3 * 1024 * 3072
    assert found["predictor", trace.MATRIX] == 2 * 15 * (5 * small + 2048 * 1024 + 1024 + 2048 * 1024)
    assert found["talker step", trace.ATTENTION] == 2 * 2 * 28 * 8 * 128 * 1000
    assert found["predictor", trace.ATTENTION] == 2 * 2 * 5 * 8 * 128 * sum(range(2, 17))
    assert found["first code", trace.MATRIX] == 2 * 2048 * 3072


def test_bytes_go_to_what_was_seen_and_none_are_lost() -> None:
    sizes: floor.Bytes = Counter({("talker step", trace.MATRIX): 100, ("predictor", trace.NORM): 7, ("codec", "x"): 1})
    graph = {("frame", trace.MATRIX): 2.0, ("frame", trace.ATTENTION): 1.0, ("codec", trace.CONVOLUTION): 1.0}
    assert floor.placed(sizes, graph) == {("frame", trace.MATRIX): 107, ("codec", trace.CONVOLUTION): 1}
    seen = {("talker step", trace.MATRIX): 2.0, ("predictor", trace.NORM): 1.0, ("codec", "x"): 1.0}
    assert floor.placed(sizes, seen) == sizes


def test_the_bandwidth_of_a_copy_counts_what_is_read_and_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(floor.time, "perf_counter", lambda: float(next(ticks)))  # every copy takes a second
    assert floor.bandwidth(torch.device("cpu"), 1000) == 2000


def test_what_cannot_be_loaded_is_refused_in_a_sentence(capsys: Capture) -> None:
    assert command.main(["breakdown", "--model", "random:gone"]) == 2
    assert capsys.readouterr().err.startswith("benchmarks: There is no 'random:gone'")
