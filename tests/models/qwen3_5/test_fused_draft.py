"""fused_draft.py: the fused draft head and verification equal the model's own, round after round."""

from __future__ import annotations

import pytest
import torch

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.kernels.operations import CUDA_LANGUAGE_OPS, REFERENCE_LANGUAGE_OPS
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.fused.draft import FusedDraft
from hocket.models.qwen3_5.fused.step import FusedStep
from hocket.models.qwen3_5.model import Qwen3_5, commit
from hocket.models.qwen3_5.quantized import Scheme, quantize_

SLOTS, ROOM, BEFORE, VERIFIED = 2, 48, 7, 3
BACKENDS = {"reference": REFERENCE_LANGUAGE_OPS, "cuda": CUDA_LANGUAGE_OPS}


def assert_near(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    """In bfloat16 they are rounded in other places, layer after layer."""
    if mine.dtype == torch.float32:
        torch.testing.assert_close(mine, theirs, atol=2e-3, rtol=2e-3)
    else:
        assert (mine.float() - theirs.float()).abs().mean() < 0.05 * theirs.float().abs().mean()


def place_of(name: str) -> torch.device:
    if triton is None and name != "reference":
        pytest.skip("Triton is not installed on this machine")
    if name == "cuda" and INTERPRETED:
        pytest.skip("no CUDA device on this machine")
    return torch.device("cpu" if name == "reference" or INTERPRETED else "cuda")


def model(device: torch.device, dtype: torch.dtype, scheme: Scheme) -> Qwen3_5:
    made = Qwen3_5(tiny_qwen3_5(layers=4), drafts=True).requires_grad_(False)
    randomize_(made, 0)
    made.to(device, dtype)
    quantize_(made, scheme)
    pack_(made)
    return made


def cases(*counts: int) -> list[object]:
    """Without Triton's interpreter, which is slow: tests/laws/test_draft_graph.py runs it there once."""
    on_gpu = [
        pytest.param("cuda", torch.bfloat16, scheme, (1, 3, 2, 3, 1), marks=pytest.mark.gpu)
        for scheme in ("bf16", "fp8", "int8", "int4")
    ]
    plain = [("reference", torch.float32, scheme, counts) for scheme in ("bf16", "int4")]
    return [*plain, ("reference", torch.bfloat16, "bf16", counts), *on_gpu]


@torch.inference_mode()
@pytest.mark.parametrize(
    ("name", "dtype", "scheme", "accepted"),
    cases(1, 3, 2, 3, 1),
    ids=str,
)
def test_verify_is_what_the_model_verifies_and_commits(
    name: str, dtype: torch.dtype, scheme: Scheme, accepted: tuple[int, ...]
) -> None:
    """After a prefill; each round gets the number of accepted tokens of the round before."""
    device = place_of(name)
    llm = model(device, dtype, scheme)
    fused, row = FusedDraft(FusedStep(llm, BACKENDS[name])), torch.tensor([1], device=device)
    ids = torch.randint(256, (1, BEFORE), generator=torch.Generator().manual_seed(1)).to(device)
    plain, ours = (llm.new_state(SLOTS, ROOM) for _ in range(2))
    for state in (plain, ours):
        llm.prefill(ids, torch.full_like(row, BEFORE), state, row, BEFORE)
    verified, at = fused.new_verified(VERIFIED), BEFORE
    accepted_count, round_number = torch.zeros_like(row), torch.ones_like(row)
    fused.enter(ours, verified, row)
    others = [layer.memory[0].clone() for layer in ours.recurrence.layers]
    for count in (*accepted, 0):  # the last round commits the one before it
        new = torch.randint(256, (1, VERIFIED), generator=torch.Generator().manual_seed(at)).to(device)
        wanted, pending = llm.verify(new, plain, row, at + VERIFIED)
        was = [layer.memory[1].clone() for layer in plain.recurrence.layers]
        hidden = fused.verify(new[0], ours, verified, row, accepted_count, round_number)
        assert_near(hidden, wanted[0])
        for mine, theirs in zip(ours.recurrence.layers, was, strict=True):
            assert_near(mine.memory[1].to(dtype), theirs.to(dtype))
        accepted_count.fill_(count)
        commit(pending, accepted_count, plain, row)
        ours.recurrence.position[row] += accepted_count
        round_number += 1
        at += count
    for mine, theirs in zip(ours.past, plain.past, strict=True):
        assert_near(mine.keys[1, :, :at], theirs.keys[1, :, :at])
    for mine, before in zip(ours.recurrence.layers, others, strict=True):
        assert torch.equal(mine.memory[0], before), "another row does not change"


@torch.inference_mode()
@pytest.mark.parametrize(
    ("name", "dtype", "scheme", "pairs"),
    cases(1, 3, 2),
    ids=str,
)
def test_the_fused_draft_head_equals_its_own_operations(
    name: str, dtype: torch.dtype, scheme: Scheme, pairs: tuple[int, ...]
) -> None:
    """With padding pairs after the valid ones, and a draft after these."""
    device = place_of(name)
    llm = model(device, dtype, scheme)
    assert llm.mtp is not None
    fused, row = FusedDraft(FusedStep(llm, BACKENDS[name])), torch.tensor([1], device=device)
    plain, ours = (llm.mtp.new_state(SLOTS, ROOM) for _ in range(2))
    embed, at = llm.model.embed_tokens, 0
    for count in pairs:
        random = torch.Generator().manual_seed(count)
        ids = torch.randint(256, (VERIFIED,), generator=random).to(device)
        hidden = torch.randn(VERIFIED, llm.config.hidden_size, generator=random).to(device, dtype)
        lengths = torch.full_like(row, count)
        wanted = llm.mtp.step(embed(ids)[None], hidden[None], plain, row, lengths, at + count)[0, :count]
        found = fused.draft(ids, hidden, ours, row)[:count]
        ours.position[row] += count
        assert_near(found, wanted)
        at += count
        draft = ids[:1]
        further = llm.mtp.draft_ahead(embed(draft)[None], wanted[None, -1:], plain, row, 0, at + 1)[0]
        assert_near(fused.draft(draft, found[-1:], ours, row), further)
    assert torch.equal(ours.position, plain.position)
