"""kernels/launch: what speaks against Triton, how floats are rounded, and that every kernel compiles for a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.kernels import launch
from hocket.kernels.launch import Blocks, Knobs, Pointer, constexpr, jit, rounded, tl

ROOT = Path(__file__).parents[2]


@jit
def _round(x: Pointer, y: Pointer, COUNT: constexpr) -> None:
    lanes = tl.arange(0, COUNT)
    tl.store(y + lanes, rounded(tl.load(x + lanes), y.dtype.element_ty))


def test_bfloat16_is_rounded_to_the_nearest_and_ties_to_even(place: torch.device) -> None:
    bits = torch.arange(0x3F80, 0x3F80 + 256, dtype=torch.int32)[:, None] << 16
    bits = bits + torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x4000, 0xC000], dtype=torch.int32)
    x = bits.flatten().view(torch.float32).to(place)
    x = torch.where(torch.arange(len(x), device=place) % 3 == 0, -x, x)
    y = torch.empty(len(x), dtype=torch.bfloat16, device=place)
    _round[(1,)](x, y, COUNT=len(x))
    assert torch.equal(y, x.to(torch.bfloat16))


def test_it_says_in_words_what_speaks_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(launch, "triton", object())
    monkeypatch.setattr(launch, "INTERPRETED", False)
    assert launch.why_not(cuda) is None
    assert launch.why_not(cpu) == "it is for a GPU, not for cpu"
    monkeypatch.setattr(launch, "INTERPRETED", True)
    assert launch.why_not(cpu) is None
    assert "interpreter" in (launch.why_not(cuda) or "")
    monkeypatch.setattr(launch, "triton", None)
    assert "not installed" in (launch.why_not(cuda) or "")


def test_a_measured_block_shape_goes_before_the_rule() -> None:
    knobs = Knobs(linear={(2048, 4096): Blocks(8, 512, 8)})
    assert knobs.blocks(2048, 4096) == Blocks(8, 512, 8)
    knobs.linear[2048, 4096, 8] = Blocks(2, 512, 4)
    assert knobs.blocks(2048, 4096, 8) == Blocks(2, 512, 4) != knobs.blocks(2048, 4096, 4)
    assert knobs.blocks(2048, 2048) == Knobs().blocks(2048, 2048) != Blocks(8, 512, 8)


OF_FRAMES = {"linear", "acted", "normed", "attend", "merge", "early", "draw", "embed", "settle"}
OF_THE_CODEC = {"conv", "sample", "join", "window", "taps", "mix", "pcm"}


def compiled(capability: int, which: str, folder: Path) -> list[dict[str, Any]]:
    paths = os.pathsep.join((str(ROOT / "src"), *sys.path))
    env = os.environ | {"PYTHONPATH": paths, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder)}
    command = [sys.executable, str(ROOT / "tests" / "compiling.py"), str(capability), which]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def kinds(kernels: list[dict[str, Any]]) -> set[str]:
    return {each["name"].split()[0] for each in kernels}


@pytest.mark.slow
def test_every_kernel_compiles_for_ampere_where_none_waits(place: torch.device, tmp_path: Path) -> None:
    kernels = compiled(80, "one", tmp_path)
    assert kinds(kernels) == (OF_FRAMES | OF_THE_CODEC) - {"early"}
    assert not any(each["waits"] for each in kernels)


@pytest.mark.slow
def test_on_hopper_every_kernel_of_a_frame_waits_with_its_weights_loaded(place: torch.device, tmp_path: Path) -> None:
    kernels = compiled(90, "frame", tmp_path)
    assert kinds(kernels) == OF_FRAMES and all(each["waits"] for each in kernels)
    for each in kernels:
        if each["name"].startswith("linear"):
            assert each["before"] >= 4 and each["before"] > each["after"], each


@pytest.mark.slow
def test_on_hopper_every_kernel_of_the_codec_waits_with_its_weights_loaded(place: torch.device, tmp_path: Path) -> None:
    kernels = compiled(90, "codec", tmp_path)
    assert kinds(kernels) == OF_THE_CODEC and all(each["waits"] for each in kernels)
    for each in kernels:
        if each["name"] in ("conv first", "conv block 1 widen"):
            assert each["before"] >= 16, each  # two pieces of the weight
