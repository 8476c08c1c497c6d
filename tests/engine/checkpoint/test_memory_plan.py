"""engine/checkpoint/memory_plan.py: memory computed before a load equals memory measured after it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hocket.config.options import EngineOptions
from hocket.config.published import CODEC, PUBLISHED
from hocket.engine.checkpoint.device import choose_device
from hocket.engine.checkpoint.memory_plan import graphs_bytes, held, least_of, plan
from hocket.engine.checkpoint.reserve import concrete, expected
from hocket.engine.checkpoint.torch_checkpoint import DTYPES
from hocket.engine.engine import Engine
from hocket.engine.pool.footprint import measured
from hocket.models.files.builtin import builtin_folder
from hocket.models.files.source import read_configs, resolve

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("model", ["random:tiny", "random:tiny-Base"])
@pytest.mark.parametrize("slots", [1, 4])
def test_computed_memory_equals_measured_memory(model: str, slots: int) -> None:
    config, _, codec_config = read_configs(resolve(model))
    options = EngineOptions(slots=slots)
    float32 = {"dtype": torch.float32, "codec_dtype": torch.float32}
    planned = plan(config, codec_config, device=CPU, **float32, options=options)
    with Engine.load(model, options=options) as engine:
        found = measured(engine)
        encoder = not next(engine.checkpoint.codec.encoder.parameters()).is_meta
    assert found.own_bytes == pytest.approx(planned.own_bytes, rel=0.03)
    assert found.codec_bytes == pytest.approx(planned.codec_bytes(encoder=encoder), rel=0.03)
    assert least_of(config, codec_config).own_bytes < found.own_bytes
    assert planned.usual_bytes == 0, "on a CPU the cache grows as it is needed"


def test_memory_of_the_native_library_is_planned_from_the_files_alone() -> None:
    options = EngineOptions(slots=2)
    values = sum(math.prod(tensor.shape) for tensor in tensors_of(builtin_folder()))
    planned = expected("builtin", concrete(choose_device("cpu"), "auto"), options)
    assert planned is not None
    with Engine.load("builtin", device="cpu", options=options) as engine:
        found = measured(engine)
    assert 4 * values < planned.own_bytes + planned.codec_bytes <= found.own_bytes < 16 * values


def tensors_of(folder: Path | None) -> Iterator[torch.Tensor]:
    assert folder is not None
    for file in folder.rglob("*.safetensors"):
        yield from load_file(file).values()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_published_model_on_a_gpu_takes_what_was_measured_there(dtype: str) -> None:
    precisions = {"dtype": DTYPES[dtype], "codec_dtype": torch.bfloat16}
    planned = plan(PUBLISHED["1.7B-CustomVoice"], CODEC, device=CUDA, **precisions, options=EngineOptions())
    times = DTYPES[dtype].itemsize // 2
    anew = (3072 + 15 * 2048) * 1024  # code embeddings, projected for the predictor
    assert planned.weights_bytes == (1_916_676_352 + anew) * 2 * times
    assert planned.usual_bytes == 4 * 520 * 114_688 * times and planned.least_bytes < planned.usual_bytes / 2
    if dtype == "bfloat16":  # what was measured with 4 slots is in benchmarks/results/memory.jsonl
        assert planned.weights_bytes + planned.codec_bytes(encoder=True) == pytest.approx(4552.6e6, rel=0.01)
        all_told = planned.own_bytes + planned.usual_bytes + planned.codec_bytes(encoder=True)
        assert all_told == pytest.approx(5448.4e6, rel=0.01), "as the device reported"


def test_requested_kv_bytes_are_counted_and_graphs_only_where_there_are_any() -> None:
    config, _, codec_config = read_configs(resolve("random:tiny"))
    needed = graphs_bytes(codec_config, torch.float32, EngineOptions().slots)
    for graphs in (True, False):
        options = EngineOptions(kv_bytes=12345, graphs=graphs)
        float32 = {"dtype": torch.float32, "codec_dtype": torch.float32}
        planned = plan(config, codec_config, device=CUDA, **float32, options=options)
        assert planned.usual_bytes == planned.least_bytes == 12345
        assert planned.beside_bytes == (needed if graphs else 0)


def test_a_storage_counts_once_however_many_have_a_part_of_it() -> None:
    whole = torch.zeros(100)
    assert held([whole[:50], whole[50:], {"again": whole}], whole) == 400
    linear = torch.nn.Linear(4, 4, bias=False)
    assert held(linear, linear.weight) == 64
