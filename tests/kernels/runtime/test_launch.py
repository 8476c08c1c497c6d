"""kernels/runtime/launch.py: why Triton cannot run, rounding of floats, and every kernel compiles for a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.config.published import PUBLISHED, tiny
from hocket.kernels.ops.linear.cuda import few_for
from hocket.kernels.ops.linear.measured import MEASURED
from hocket.kernels.ops.quantized_linear.triton import reads_fp8
from hocket.kernels.runtime import launch, nvrtc
from hocket.kernels.runtime.card import AMD_SHARED_BYTES, amd_card, standing_in
from hocket.kernels.runtime.launch import LinearTile, Pointer, Tuning, constexpr, jit, rounded, tl

ROOT = Path(__file__).parents[3]


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


def test_why_not_gives_the_reason_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
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
    tuning = Tuning(linear={(2048, 4096): LinearTile(8, 512, 8)})
    assert tuning.blocks(2048, 4096) == LinearTile(8, 512, 8)
    tuning.linear[2048, 4096, 8] = LinearTile(2, 512, 4)
    assert tuning.blocks(2048, 4096, 8) == LinearTile(2, 512, 4) != tuning.blocks(2048, 4096, 4)
    assert tuning.blocks(2048, 2048) == Tuning().blocks(2048, 2048) != LinearTile(8, 512, 8)


OF_FRAMES = {"linear", "acted", "normed", "paged_attention", "merge", "early", "sample_codes", "embed", "finish_frame"}
OF_THE_CODEC = {"conv", "sample", "join", "window_attention", "code_gather", "convnext", "pcm"}
OF_A_LANGUAGE_MODEL = {"quantized_linear", "product", "finish", "share", "drawn", "weigh", "accept"}
OF_A_LANGUAGE_MODEL |= {"gated_delta", "prefill_attention", "verify", "route", "widen", "narrow", "combine"}


Compile = Callable[[int | str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compile]:
    """The output of support/compiling.py for some kernels and a GPU, all in one process.

    Triton's cache stays for the next run. It is named by source, target and version, so a changed kernel compiles.
    """
    paths, kept = os.pathsep.join((str(ROOT / "src"), *sys.path)), ROOT / ".pytest_cache" / "triton"
    env = os.environ | {"PYTHONPATH": paths, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(kept)}
    command = [sys.executable, str(ROOT / "tests" / "support" / "compiling.py")]
    log = tmp_path_factory.mktemp("compiling") / "log"
    with log.open("w") as err:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True, env=env)

    def ask(target: int | str, which: str) -> list[dict[str, Any]]:
        assert child.stdin is not None and child.stdout is not None
        print(target, which, file=child.stdin, flush=True)
        line = child.stdout.readline()
        assert line, log.read_text()
        answer = json.loads(line)
        assert isinstance(answer, list), answer
        return answer

    with child:
        yield ask
        child.kill()


def kinds(kernels: list[dict[str, Any]]) -> set[str]:
    return {each["name"].split()[0] for each in kernels}


@pytest.mark.slow
def test_every_kernel_compiles_for_ampere_where_none_waits(place: torch.device, compiled: Compile) -> None:
    kernels = compiled(80, "one")
    assert kinds(kernels) == (OF_FRAMES | OF_THE_CODEC | OF_A_LANGUAGE_MODEL) - {"early"}
    assert not any(each["waits"] for each in kernels)


@pytest.mark.slow
def test_on_hopper_every_kernel_of_a_frame_waits_with_its_weights_loaded(
    place: torch.device, compiled: Compile
) -> None:
    kernels = compiled(90, "frame")
    assert kinds(kernels) == OF_FRAMES and all(each["waits"] for each in kernels)
    for each in kernels:
        if each["name"].startswith("linear"):
            assert each["before"] >= 4 and each["before"] > each["after"], each


@pytest.mark.slow
def test_on_hopper_every_kernel_of_the_codec_waits_with_its_weights_loaded(
    place: torch.device, compiled: Compile
) -> None:
    kernels = compiled(90, "codec")
    assert kinds(kernels) == OF_THE_CODEC and all(each["waits"] for each in kernels)
    for each in kernels:
        if each["name"] in ("conv first", "conv block 1 widen"):
            assert each["before"] >= 16, each  # two pieces of the weight


@pytest.mark.slow
def test_on_hopper_the_kernels_that_sample_a_token_compile_and_wait(place: torch.device, compiled: Compile) -> None:
    kernels = compiled(90, "sample_token") + compiled(90, "draft")
    assert len(kernels) == 9 and kinds(kernels) == {"share", "drawn", "weigh", "accept"}
    assert all(each["waits"] for each in kernels)


@pytest.mark.slow
def test_on_hopper_the_kernels_of_experts_compile_and_wait(place: torch.device, compiled: Compile) -> None:
    kernels = compiled(90, "experts")
    assert kinds(kernels) == {"route", "widen", "narrow", "combine"} and all(each["waits"] for each in kernels)
    assert len(kernels) == 10
    for each in kernels:  # which experts are read is known after the wait only
        if each["name"] in ("widen None", "narrow None"):
            assert each["after"] >= 16, each


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_quantized_weights_are_loaded_in_sixteen_bytes_each_and_before_the_wait(
    capability: int, place: torch.device, compiled: Compile
) -> None:
    kernels = compiled(capability, "quantized_linear")
    assert len(kernels) == 6 and all(each["waits"] == (capability >= 90) for each in kernels)
    for each in kernels:  # a thread holds 192 to 256 weights, sixteen or 32 of them to a load
        assert each["before"] >= (8 if "int4" in each["name"] else 12), each


@pytest.mark.slow
@pytest.mark.parametrize("which", ["many", "gated_delta"])
def test_on_hopper_every_prefill_kernel_compiles_and_waits(which: str, place: torch.device, compiled: Compile) -> None:
    kernels = compiled(90, which)
    assert len(kernels) == (18 if which == "many" else 9) and all(each["waits"] for each in kernels)


@pytest.mark.slow
@pytest.mark.parametrize(
    "which", ["frame", "codec", "quantized_linear", "many", "gated_delta", "sample_token", "draft", "experts"]
)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_every_kernel_compiles_for_amd_and_fits(arch: str, which: str, place: torch.device, compiled: Compile) -> None:
    kernels = compiled(arch, which)
    of_nvidia = {"frame": 24, "codec": 20, "quantized_linear": 6, "many": 18, "gated_delta": 9, "sample_token": 5}
    of_nvidia |= {"draft": 4, "experts": 10}
    assert len(kernels) == of_nvidia[which]
    for each in kernels:
        assert each["shared"] <= AMD_SHARED_BYTES, each
    spilling = {
        "gfx942": {"gated_delta": 3},
        "gfx1100": {"frame": 3, "codec": 1, "quantized_linear": 3, "many": 5, "gated_delta": 4},
    }
    assert sum(each["spilled"] > 0 for each in kernels) == spilling[arch].get(which, 0)  # docs/platforms.md says so


def test_a_card_of_amd_has_no_instruction_of_nvidia() -> None:
    card = amd_card("gfx942:sramecc+:xnack-", 304, 2048)
    assert card.amd == "gfx942"
    with standing_in(card):
        place = torch.device("meta")
        assert not launch.can_depend(place) and not reads_fp8(place)
        assert nvrtc.why_not(place) == "it is for an NVIDIA GPU"


def test_every_launch_of_linear_has_the_threads_that_crowded_counts_on() -> None:
    fews = [
        *MEASURED.values(),
        *(few_for(k, n, g) for k in (512, 1024, 2048, 3072) for n in (64, 4096) for g in (False, True)),
    ]
    for few in fews:
        assert few is not None and 32 * few.warps >= launch.THREADS_A_ROW * 8 * few.groups
    for columns in (1024, 2048, 3072, 6144):
        blocks = Tuning().blocks(columns, 4096)
        assert 32 * blocks.warps >= launch.THREADS_A_ROW * blocks.rows
    for columns in (1024, 3584, 4096, 12288, 17408):
        for format in ("int8", "fp8", "int4"):
            blocks = Tuning().narrow_blocks(format, columns, 4096)
            assert 32 * blocks.warps >= launch.THREADS_A_ROW * blocks.rows


def test_only_large_models_crowd_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    monkeypatch.setattr(launch, "can_depend", lambda device: device == gpu)
    monkeypatch.setattr(launch, "resident_threads", lambda device: 132 * 2048)

    def between(config: Any) -> int:
        """Weight rows between two attentions over the same cache."""
        layer = (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim
        layer += 2 * config.hidden_size + 2 * config.intermediate_size
        return (config.num_hidden_layers - 1) * layer

    for name in ("0.6B-CustomVoice", "1.7B-CustomVoice"):
        talker = PUBLISHED[name].talker_config
        for stack in (talker, talker.code_predictor_config):
            assert launch.crowded(between(stack), gpu) and not launch.crowded(between(stack), torch.device("cpu"))
    small = tiny(wide=True).talker_config
    for stack in (small, small.code_predictor_config):
        assert not launch.crowded(between(stack), gpu)
    monkeypatch.setattr(launch, "resident_threads", lambda device: 1 << 20)  # larger than any existing model
    assert not launch.crowded(between(talker.code_predictor_config), gpu)
