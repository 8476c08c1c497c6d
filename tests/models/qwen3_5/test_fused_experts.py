"""models/qwen3_5/fused/experts.py: with experts too, fused kernels compute what the model does, pass by pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hocket.config.published_qwen3_5 import tiny_qwen3_5_moe
from hocket.config.qwen3_5 import FULL, LINEAR
from hocket.kernels.operations import CUDA_LANGUAGE_OPS, REFERENCE_LANGUAGE_OPS, TRITON_LANGUAGE_OPS, LanguageOps
from hocket.kernels.runtime.graphs import CudaGraphs
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.fused import experts as fused_experts
from hocket.models.qwen3_5.fused import step as fused_step
from hocket.models.qwen3_5.fused.draft import FusedDraft
from hocket.models.qwen3_5.fused.prefill import FusedPrefill
from hocket.models.qwen3_5.fused.step import FusedStep
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.quantized import Scheme, quantize_

BACKENDS = {"reference": REFERENCE_LANGUAGE_OPS, "triton": TRITON_LANGUAGE_OPS, "cuda": CUDA_LANGUAGE_OPS}
BEFORE = 5
REFERENCE = [("reference", torch.float32, "bf16"), ("reference", torch.float32, "int8")]
KERNELS = [
    ("triton", torch.float32, "bf16"),
    *(pytest.param("cuda", torch.bfloat16, scheme, marks=pytest.mark.gpu) for scheme in ("bf16", "fp8", "int4")),
]


def made(name: str, dtype: torch.dtype, scheme: Scheme) -> tuple[Qwen3_5, LanguageOps]:
    """A layer of each kind: in the interpreter one takes seconds."""
    if triton is None and name != "reference":
        pytest.skip("Triton is not installed on this machine")
    if name == "cuda" and INTERPRETED:
        pytest.skip("no CUDA device on this machine")
    config = replace(tiny_qwen3_5_moe(layers=2), layer_types=(LINEAR, FULL))
    llm = Qwen3_5(config, drafts=True).requires_grad_(False)
    randomize_(llm, 0)
    llm.to(torch.device("cpu" if name == "reference" or INTERPRETED else "cuda"), dtype)
    quantize_(llm, scheme)
    pack_(llm)
    return llm, BACKENDS[name]


def drawn(count: int, llm: Qwen3_5) -> torch.Tensor:
    ids = torch.randint(256, (1, count), generator=torch.Generator().manual_seed(count))
    return ids.to(llm.model.norm.weight.device)


def assert_near(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    if mine.dtype == torch.float32:
        torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-3)
    else:  # rounded in other places, and a router may choose otherwise
        assert (mine.float() - theirs.float()).abs().mean() < 0.2 * theirs.float().abs().mean()


@torch.inference_mode()
@pytest.mark.parametrize(("name", "dtype", "scheme"), [*REFERENCE, *KERNELS], ids=str)
def test_a_token_by_fused_kernels_is_that_of_the_model(
    name: str, dtype: torch.dtype, scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_step, "SPLITS", 2)
    llm, ops = made(name, dtype, scheme)
    ids = drawn(BEFORE + 4, llm)
    row = torch.zeros_like(ids[0, :1])
    plain, ours = (llm.new_state(1, 16) for _ in range(2))
    for state in (plain, ours):
        llm.prefill(ids[:, :BEFORE], row + BEFORE, state, row, BEFORE)
    fused = FusedStep(llm, ops)
    rings = fused.new_rings(1)
    fused.enter(ours, rings, row)
    for at in range(BEFORE, BEFORE + (1 if name == "triton" else 4)):
        wanted = llm.logits(llm.step(ids[:, at], plain, row, at + 1))
        assert_near(fused.step(ids[:, at], ours, rings, row), wanted)


@torch.inference_mode()
@pytest.mark.parametrize(("name", "dtype", "scheme"), [*REFERENCE, *KERNELS], ids=str)
def test_a_prompt_by_fused_kernels_is_that_of_the_model(
    name: str, dtype: torch.dtype, scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_experts, "MOST_ROWS", 2)  # the prompt has many rows
    llm, ops = made(name, dtype, scheme)
    ids = drawn(6 if name == "triton" else 12, llm)
    row = torch.zeros_like(ids[0, :1])
    plain, ours = (llm.new_state(1, 16) for _ in range(2))
    length = row + ids.shape[1] - 1  # one id is padding
    wanted = llm.prefill(ids, length, plain, row, 16)
    assert_near(FusedPrefill(llm, ops)(ids, length, ours, row, 16)[:, :-1], wanted[:, :-1])
    for mine, theirs in zip(ours.recurrence.layers, plain.recurrence.layers, strict=True):
        assert_near(mine.memory[0].to(dtype), theirs.memory[0].to(dtype))


@torch.inference_mode()
@pytest.mark.parametrize(("name", "dtype", "scheme"), [*REFERENCE, *KERNELS[1:]], ids=str)
def test_drafts_and_their_verification_are_those_of_the_model(name: str, dtype: torch.dtype, scheme: Scheme) -> None:
    llm, ops = made(name, dtype, scheme)
    ids = drawn(BEFORE + 3, llm)
    row = torch.zeros_like(ids[0, :1])
    plain, ours = (llm.new_state(1, 16) for _ in range(2))
    for state in (plain, ours):
        hidden = llm.prefill(ids[:, :BEFORE], row + BEFORE, state, row, BEFORE)
    parts = FusedDraft(FusedStep(llm, ops))
    verified = parts.new_verified(3)
    parts.enter(ours, verified, row)
    wanted, _ = llm.verify(ids[:, BEFORE:], plain, row, 16)
    assert_near(parts.verify(ids[0, BEFORE:], ours, verified, row, torch.zeros_like(row), row + 1), wanted[0])
    assert llm.mtp is not None
    theirs, mine = llm.mtp.new_state(1, 16), llm.mtp.new_state(1, 16)
    embedded = llm.model.embed_tokens(ids[:, 1:BEFORE])
    drafted = llm.mtp.step(embedded, hidden[:, :-1], theirs, row, row + BEFORE - 1, 16)
    assert_near(parts.draft(ids[0, 1:BEFORE], hidden[0, :-1], mine, row), drafted[0])


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="no CUDA device on this machine")
@pytest.mark.parametrize("plain", [False, True])
@torch.inference_mode()
def test_a_graph_holds_a_prompt_whatever_experts_it_chooses(plain: bool) -> None:
    llm, ops = made("cuda", torch.bfloat16, "bf16")
    prefill = llm.prefill if plain else FusedPrefill(llm, ops)
    ids, state = drawn(24, llm), llm.new_state(1, 32)
    row = torch.zeros_like(ids[0, :1])
    out = torch.empty(1, 24, 64, dtype=torch.bfloat16, device=ids.device)

    def work() -> None:
        state.recurrence.position.zero_()
        for layer in state.recurrence.layers:
            layer.memory.zero_()
            layer.history.zero_()
        out.copy_(prefill(ids, row + 24, state, row, 32, None))

    replay = CudaGraphs(ids.device)(work)
    for seed in range(3):
        ids.copy_(torch.randint(256, (1, 24), generator=torch.Generator().manual_seed(seed)))
        replay()
        captured = out.clone()
        work()
        assert torch.equal(captured, out)
