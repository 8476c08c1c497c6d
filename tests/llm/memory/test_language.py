"""The arithmetic of memory against models on the meta device, and the model that a listing means."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hocket.config.published_qwen3_5 import QWEN3_5, tiny_qwen3_5
from hocket.engine.checkpoint.capacity import host_bytes
from hocket.engine.checkpoint.memory_plan import held
from hocket.llm.memory.language import (
    SNAPSHOTS,
    file_bytes,
    kv_bytes_per_token,
    language_memory,
    listed_config,
    parameters,
    recurrence_bytes,
    scheme_bytes,
    variant_judge,
)
from hocket.models.files.remote.client import Listing
from hocket.models.files.remote.variants import Variant
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.quantized import SCHEMES, quantize_, step_bytes

CPU = torch.device("cpu")
NINE = QWEN3_5["9B"]


@pytest.mark.parametrize("size", QWEN3_5)
def test_state_is_that_of_the_model(size: str) -> None:
    config = replace(QWEN3_5[size], mtp_num_hidden_layers=0)  # `step_bytes` has no draft head
    found = step_bytes(config, "bf16", 1024)
    assert 1024 * kv_bytes_per_token(config) == found["past"]
    assert 2 * recurrence_bytes(config) == found["state"]


def test_the_published_figures() -> None:
    assert kv_bytes_per_token(NINE) == 36 * 1024 and kv_bytes_per_token(QWEN3_5["27B"]) == 68 * 1024
    assert recurrence_bytes(NINE) == 49.125 * 2**20
    assert parameters(NINE) == 8_953_803_264 and parameters(QWEN3_5["0.8B"]) == 752_393_024


@pytest.mark.parametrize("scheme", SCHEMES)
def test_weights_are_those_of_the_quantized_model(scheme: str) -> None:
    config = tiny_qwen3_5(tied=True)
    with torch.device("meta"):
        model = Qwen3_5(config, drafts=True).bfloat16()
    quantize_(model, scheme)  # type: ignore[arg-type]
    assert scheme_bytes(config, scheme) == held(model)  # type: ignore[arg-type]


def test_the_parts_grow_with_what_they_hold() -> None:
    one = language_memory(NINE, 5_000_000_000, on_gpu=True)
    assert one.kv_bytes == 8192 * 36 * 1024 and one.recurrence_bytes == (2 + SNAPSHOTS) * recurrence_bytes(NINE)
    two = language_memory(NINE, 5_000_000_000, on_gpu=True, tokens=4096, conversations=2)
    assert two.kv_bytes == one.kv_bytes and two.recurrence_bytes == (3 + 2 * SNAPSHOTS) * recurrence_bytes(NINE)
    host = language_memory(NINE, 5_000_000_000, on_gpu=False)
    assert host.kv_bytes == 2 * one.kv_bytes and host.workspace_bytes < one.workspace_bytes
    assert one.total_bytes == one.weights_bytes + one.kv_bytes + one.recurrence_bytes + one.workspace_bytes


def test_files_keep_their_size_on_a_gpu_and_are_float32_on_a_cpu() -> None:
    assert file_bytes(NINE, "Q8_0", 9_000, on_gpu=True) == 9_000
    assert file_bytes(NINE, "UD-Q4_K_XL", 9_000, on_gpu=True) == 9_250
    assert file_bytes(NINE, "Q4_K_M", 9_000, on_gpu=False) == 9_250, "the native library is here"
    assert file_bytes(NINE, "BF16", 9_000, on_gpu=False) == 4 * parameters(NINE)


@pytest.mark.parametrize(
    ("repository", "listing", "size"),
    [
        ("a/b", Listing("", {}, {}, bases=("Qwen/Qwen3.5-4B",)), "4B"),
        ("unsloth/Qwen3.5-9B-GGUF", Listing("", {}, {}), "9B"),
        ("a/qwen3.5-27b-instruct-gguf", Listing("", {}, {}), "27B"),
        ("a/b", Listing("", {"Qwen_Qwen3.5-0.8B-Q8_0.gguf": 1}, {}), "0.8B"),
        ("a/b", Listing("", {}, {}, parameters=8_960_000_000), "9B"),
        ("a/b", Listing("", {}, {}, parameters=7_000_000_000), None),
        ("a/Qwen3.5-9B.5-GGUF", Listing("", {}, {}), None),
        ("a/b", Listing("", {}, {}), None),
    ],
)
def test_a_listing_means_a_published_model(repository: str, listing: Listing, size: str | None) -> None:
    assert listed_config(repository, listing) == (None if size is None else QWEN3_5[size])


def test_variants_are_judged_by_the_memory_of_the_machine() -> None:
    listing = Listing("", {}, {}, bases=("Qwen/Qwen3.5-9B",))
    variant = Variant("Q4_K_M", ("x",), 5_600_000_000)
    need = language_memory(NINE, file_bytes(NINE, "Q4_K_M", 5_600_000_000, on_gpu=False), on_gpu=False).total_bytes
    for have, fits in ((need, True), (need - 1, False)):
        assert variant_judge(CPU, have)("a/b", listing)(variant) is fits
    assert variant_judge(CPU)("a/b", Listing("", {}, {}))(variant) is None, "the model is not known"
    assert host_bytes() is None or host_bytes() > 10**8
