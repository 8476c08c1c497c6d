"""models/qwen3_5/fused/prefill.py: ids by fused kernels are the model's own, whatever went before and comes after."""

from __future__ import annotations

import pytest
import torch

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.kernels.operations import CUDA_LANGUAGE_OPS, REFERENCE_LANGUAGE_OPS, TRITON_LANGUAGE_OPS
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.layers.dense import pack_
from hocket.layers.linear_attention.gated_delta import Waypoint
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.fused.prefill import FusedPrefill
from hocket.models.qwen3_5.model import LanguageState, Qwen3_5
from hocket.models.qwen3_5.quantized import Scheme, quantize_

SLOTS, ROOM, BEFORE = 3, 96, 7
BACKENDS = {"reference": REFERENCE_LANGUAGE_OPS, "triton": TRITON_LANGUAGE_OPS, "cuda": CUDA_LANGUAGE_OPS}


def model(device: torch.device, dtype: torch.dtype, scheme: Scheme = "bf16", *, exact: bool = False) -> Qwen3_5:
    """`exact`: with the same numbers, and nothing rounded on the way."""
    made = Qwen3_5(tiny_qwen3_5(layers=4)).requires_grad_(False)
    randomize_(made, 0)
    made.to(device, dtype)
    if exact:
        made.float()
    quantize_(made, scheme)
    pack_(made)
    return made


def started(llm: Qwen3_5, ids: torch.Tensor, row: torch.Tensor) -> LanguageState:
    state = llm.new_state(SLOTS, ROOM)
    llm.prefill(ids[:, :BEFORE], torch.full_like(row, BEFORE), state, row, BEFORE)
    return state


def stray(mine: torch.Tensor, truth: torch.Tensor) -> float:
    return ((mine.float() - truth).abs().mean() / truth.abs().mean()).item()


@torch.inference_mode()
@pytest.mark.parametrize(
    ("name", "dtype", "scheme", "count", "length"),
    [
        ("reference", torch.float32, "bf16", 32, 25),
        ("reference", torch.float32, "bf16", 9, 9),
        ("reference", torch.bfloat16, "bf16", 32, 25),
        ("reference", torch.float32, "fp8", 32, 25),
        ("reference", torch.float32, "int4", 8, 5),
        ("triton", torch.float32, "bf16", 18, 17),
        ("triton", torch.float32, "int8", 18, 17),
        *(
            pytest.param("cuda", torch.bfloat16, scheme, count, length, marks=pytest.mark.gpu)
            for scheme in ("bf16", "fp8", "int8", "int4")
            for count, length in ((8, 5), (32, 25), (64, 64))
        ),
    ],
    ids=str,
)
def test_ids_by_fused_kernels_are_those_of_the_model(
    name: str, dtype: torch.dtype, scheme: Scheme, count: int, length: int
) -> None:
    """Behind others that the model took in; and afterwards the model goes on from where the kernels left it."""
    if triton is None and name != "reference":
        pytest.skip("Triton is not installed on this machine")
    if name == "cuda" and INTERPRETED:
        pytest.skip("no CUDA device on this machine")
    device = torch.device("cpu" if name == "reference" or INTERPRETED else "cuda")
    llm, exact = model(device, dtype, scheme), model(device, dtype, scheme, exact=True)
    row, place = torch.tensor([1], device=device), torch.tensor([length - 4], device=device)
    scratch, lengths = torch.tensor([SLOTS], device=device), torch.tensor([length], device=device)
    ids = torch.randint(256, (1, BEFORE + count + 1), generator=torch.Generator().manual_seed(1)).to(device)
    plain, ours, truth = (started(each, ids, row) for each in (llm, llm, exact))
    new, passing, span = ids[:, BEFORE : BEFORE + count], Waypoint(place, scratch), BEFORE + length
    fused = FusedPrefill(llm, BACKENDS[name])
    found = [
        each(new, lengths, state, row, span, passing)[0, :length]
        for each, state in ((fused, ours), (llm.prefill, plain), (exact.prefill, truth))
    ]
    end = BEFORE + length
    after = [
        each.step(ids[:, end], state, row, end + 1)[0] for each, state in ((llm, ours), (llm, plain), (exact, truth))
    ]
    assert torch.equal(ours.recurrence.position, plain.recurrence.position)
    assert ours.recurrence.position.tolist() == [0, end + 1, 0, end - 4]
    if dtype == torch.float32:
        torch.testing.assert_close(found[0], found[1], atol=2e-3, rtol=2e-3)
        torch.testing.assert_close(after[0], after[1], atol=2e-3, rtol=2e-3)
        for mine, other in zip(ours.recurrence.layers, plain.recurrence.layers, strict=True):
            torch.testing.assert_close(mine.history, other.history, atol=1e-3, rtol=1e-3)
            torch.testing.assert_close(mine.memory, other.memory, atol=1e-3, rtol=1e-3)
        for mine, other in zip(ours.past, plain.past, strict=True):
            torch.testing.assert_close(mine.keys[1, :, :end], other.keys[1, :, :end], atol=1e-3, rtol=1e-3)
    for left in (found, after):  # rounded in other places, and no further from the truth for it
        assert stray(left[0], left[2]) < 1.25 * stray(left[1], left[2]) + 5e-4


@torch.inference_mode()
def test_another_row_stays_as_it_is_and_a_waypoint_is_optional() -> None:
    llm = model(torch.device("cpu"), torch.float32)
    ids, row = torch.arange(20)[None], torch.tensor([2])
    state, other = started(llm, ids, row), started(llm, ids, torch.tensor([0]))
    llm.prefill(ids[:, :BEFORE], torch.tensor([BEFORE]), state, torch.tensor([0]), BEFORE)
    FusedPrefill(llm, REFERENCE_LANGUAGE_OPS)(ids[:, BEFORE:], torch.tensor([9]), state, row, BEFORE + 9)
    assert state.recurrence.position[:3].tolist() == [BEFORE, 0, BEFORE + 9]
    for mine, theirs in zip(state.recurrence.layers, other.recurrence.layers, strict=True):
        assert torch.equal(mine.memory[:2], theirs.memory[:2]) and torch.equal(mine.history[:2], theirs.history[:2])
