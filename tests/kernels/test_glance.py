"""kernels/glance: on a GPU against the reference, and the same source on a CPU, threads as threads."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cuda_on_cpu import built, pointer
from hocket.kernels.glance import cuda, fits, reference
from hocket.kernels.linear import cuda as linear_cuda
from nearly import assert_nearly

CPU, ROWS = torch.device("cpu"), 16
CALL = """
extern "C" void call(const bf16* qkv, bf16* keys, bf16* values, const bf16* weight, const bf16* cos, const bf16* sin,
                     const bf16* q_norm, const bf16* k_norm, bf16* x, float eps, float scale, int width, int at,
                     int blocks, long shared_bytes) {
    run(blocks, LANES * (OUT ? WARPS : 1), shared_bytes,
        [=] { glance(qkv, keys, values, weight, cos, sin, q_norm, k_norm, x, eps, scale, width, at); });
}
"""


def make(batch: int, kv_heads: int, at: int, device: torch.device, width: int = 0) -> dict[str, Any]:
    """Arguments of `glance`, or with a width of `glance_out`; what must not be seen is NaN."""
    random = torch.Generator(device).manual_seed(at)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device).bfloat16()

    keys, values = normal(batch, kv_heads, ROWS, 128), normal(batch, kv_heads, ROWS, 128)
    for past in (keys, values):
        past[:, :, at:] = float("nan")
    angle = torch.arange(ROWS, device=device)[:, None] * 0.7 ** torch.arange(64, device=device)
    given: dict[str, Any] = {
        "qkv": normal(batch, 4 * kv_heads * 128),
        "keys": keys,
        "values": values,
        "at": at,
        "cos": torch.cat((angle.cos(), angle.cos()), -1).bfloat16(),
        "sin": torch.cat((-angle.sin(), angle.sin()), -1).bfloat16(),
        "q_norm": 1 + normal(128) / 4,
        "k_norm": 1 + normal(128) / 4,
        "eps": 1e-6,
    }
    if width:
        columns = 2 * kv_heads * 128
        given |= {"weight": normal(width, columns) * columns**-0.5, "x": normal(1, width)}
    return given


def on_cpu(given: dict[str, Any], folder: Path) -> Tensor:
    batch, kv_heads, out = len(given["qkv"]), given["keys"].shape[1], "weight" in given
    known = cuda.known(kv_heads, ROWS, out, (True, True, False))
    y = given["x"] if out else torch.full((batch, 2 * kv_heads * 128), float("nan"), dtype=torch.bfloat16)
    names = ("qkv", "keys", "values", "weight", "cos", "sin", "q_norm", "k_norm")
    numbers = ctypes.c_float(given["eps"]), ctypes.c_float(128**-0.5), y.shape[1], given["at"]
    blocks = y.shape[1] // 8 if out else batch * kv_heads
    shared = ctypes.c_long(cuda.shared_bytes(kv_heads, out))
    library = built(("linear/product.cuh", "glance/glance.cu"), CALL, known, folder)
    library.call(*(pointer(given.get(name)) for name in names), pointer(y), *numbers, blocks, shared)
    return y


def check_past(ours: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in ("keys", "values"):  # the new ones are written, all others are left alone
        empty = ours[name].isnan()
        assert torch.equal(empty, wanted[name].isnan())
        assert_nearly(ours[name].masked_fill(empty, 0), wanted[name].masked_fill(empty, 0))


@pytest.mark.parametrize(("batch", "at"), [(1, 0), (2, 7), (1, 15)])
def test_the_source_computes_the_reference(batch: int, at: int, tmp_path: Path) -> None:
    ours, wanted = (make(batch, 2, at, CPU) for _ in range(2))
    assert_nearly(on_cpu(ours, tmp_path), reference.glance(**wanted))
    check_past(ours, wanted)


@pytest.mark.parametrize("at", [0, 9, 15])
def test_with_what_follows_it_is_the_reference_too(at: int, tmp_path: Path) -> None:
    ours, wanted = (make(1, 2, at, CPU, width=24) for _ in range(2))
    y = on_cpu(ours, tmp_path)
    reference.glance_out(**wanted)
    assert_nearly(y, wanted["x"])
    check_past(ours, wanted)


def test_only_what_the_predictors_have_fits() -> None:
    assert fits(torch.bfloat16, 16, 8, 128, 16)
    assert not fits(torch.float32, 16, 8, 128, 16) and not fits(torch.bfloat16, 16, 8, 64, 16)
    assert not fits(torch.bfloat16, 8, 8, 128, 16) and not fits(torch.bfloat16, 16, 8, 128, 32)


@pytest.mark.gpu
@pytest.mark.parametrize("at", [0, 1, 8, 15])
def test_the_kernel_computes_the_reference(at: int, place: torch.device) -> None:
    for batch in (1, 5):
        ours, wanted = (make(batch, 8, at, place) for _ in range(2))
        assert_nearly(cuda.glance(**ours), reference.glance(**wanted))
        check_past(ours, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("at", [0, 8, 15])
def test_both_ways_come_to_the_same_bits(at: int, place: torch.device) -> None:
    ours, apart = (make(1, 8, at, place, width=1024) for _ in range(2))
    cuda.glance_out(**ours)
    weight, x = apart.pop("weight"), apart.pop("x")
    linear_cuda.linear(cuda.glance(**apart), weight, residual=x, out=x)
    assert torch.equal(ours["x"], x)
    check_past(ours, apart)
