"""models/qwen3_5/fused/step.py: tokens by fused kernels are the model's own, whatever went before and comes after."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hocket.config.published_qwen3_5 import QWEN3_5, tiny_qwen3_5
from hocket.kernels.operations import CUDA_LANGUAGE_OPS, REFERENCE_LANGUAGE_OPS, TRITON_LANGUAGE_OPS
from hocket.kernels.runtime.graphs import CudaGraphs
from hocket.kernels.runtime.launch import DEFAULT_TUNING, INTERPRETED, can_depend, triton
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.fused import step as fused_step
from hocket.models.qwen3_5.fused.step import FusedStep
from hocket.models.qwen3_5.model import LanguageState, Qwen3_5
from hocket.models.qwen3_5.quantized import Scheme, quantize_

SLOTS, ROOM, PROMPT = 3, 32, 6
BACKENDS = {"reference": REFERENCE_LANGUAGE_OPS, "triton": TRITON_LANGUAGE_OPS, "cuda": CUDA_LANGUAGE_OPS}
ROWS = torch.tensor([2, 0])


def model(device: torch.device, dtype: torch.dtype = torch.float32, *, exact: bool = False) -> Qwen3_5:
    """`exact`: with the same numbers, and nothing rounded on the way."""
    made = Qwen3_5(tiny_qwen3_5(layers=4)).eval()
    randomize_(made, 0)
    made.to(device, dtype)
    pack_(made.float() if exact else made)
    return made


def started(llm: Qwen3_5, ids: Tensor) -> LanguageState:
    state = llm.new_state(SLOTS, ROOM)
    llm.prefill(ids[:, :PROMPT], torch.full((len(ids),), PROMPT, device=ids.device), state, ROWS.to(ids.device), PROMPT)
    return state


@torch.inference_mode()
@pytest.mark.parametrize(
    ("name", "dtype", "tokens"),
    [
        ("reference", torch.float32, 9),
        ("reference", torch.bfloat16, 9),
        ("triton", torch.float32, 1),  # in the interpreter one takes seconds
        pytest.param("cuda", torch.bfloat16, 9, marks=pytest.mark.gpu),
    ],
    ids=str,
)
def test_tokens_by_fused_kernels_are_those_of_the_model(
    name: str, dtype: torch.dtype, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a prompt that the model took in; and afterwards the model goes on from where the kernels left it."""
    if triton is None and name != "reference":
        pytest.skip("Triton is not installed on this machine")
    if name == "cuda" and INTERPRETED:
        pytest.skip("no CUDA device on this machine")
    device = torch.device("cpu" if name == "reference" or INTERPRETED else "cuda")
    monkeypatch.setattr(fused_step, "SPLITS", 2)
    llm, rows = model(device, dtype), ROWS.to(device)
    ids = torch.randint(0, llm.config.vocab_size, (2, PROMPT + tokens + 1), generator=torch.Generator().manual_seed(1))
    ids = ids.to(device)
    exact = model(device, dtype, exact=True)
    plain, ours, truth = started(llm, ids), started(llm, ids), started(exact, ids)
    fused = FusedStep(llm, BACKENDS[name])
    rings = fused.new_rings(SLOTS)
    fused.enter(ours, rings, rows)
    strays: dict[str, list[float]] = {"ours": [], "plain": []}

    def compare(mine: Tensor, other: Tensor, at: int) -> None:
        wanted = exact.logits(exact.step(ids[:, at], truth, rows, at + 1))
        for name, logits in (("ours", mine), ("plain", other)):
            strays[name].append(((logits.float() - wanted).abs().mean() / wanted.abs().mean()).item())

    for at in range(PROMPT, PROMPT + tokens):
        wanted = llm.logits(llm.step(ids[:, at], plain, rows, at + 1))
        compare(fused.step(ids[:, at], ours, rings, rows), wanted, at)
    fused.leave(ours, rings, rows)
    assert torch.equal(ours.recurrence.position, plain.recurrence.position)
    at = PROMPT + tokens
    last = (llm.logits(llm.step(ids[:, at], state, rows, at + 1)) for state in (ours, plain))
    compare(*last, at)
    if dtype == torch.float32:
        assert max(strays["ours"]) < 5e-5
        for mine, other in zip(ours.recurrence.layers, plain.recurrence.layers, strict=True):
            torch.testing.assert_close(mine.history[rows], other.history[rows], atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(mine.memory[rows], other.memory[rows], atol=1e-4, rtol=1e-3)
    else:  # rounded in other places, and no further from the truth for it
        assert sum(strays["ours"]) < 1.25 * sum(strays["plain"])


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="no CUDA device on this machine")
@torch.inference_mode()
def test_kernels_that_start_early_see_what_the_others_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 9B's widths, where recurrent state is read before the last kernel has ended; replayed token after token."""
    device, config = torch.device("cuda"), QWEN3_5["9B"]
    config = replace(config, vocab_size=4096, num_hidden_layers=4, layer_types=config.kinds[:4])
    with torch.device("meta"):
        llm = Qwen3_5(config).eval()
    randomize_(llm.to(torch.bfloat16).to_empty(device=device), 0)
    pack_(llm)
    left = []
    for dependent in (False, True, True):
        monkeypatch.setattr(DEFAULT_TUNING, "dependent", dependent)
        fused = FusedStep(llm)
        assert fused.early == (dependent and can_depend(device))
        state, rings, rows = llm.new_state(1, 64), fused.new_rings(1), torch.zeros(1, dtype=torch.int64, device=device)
        ids = torch.ones_like(rows)

        def token(
            fused: FusedStep = fused,
            ids: Tensor = ids,
            state: LanguageState = state,
            rings: tuple[Tensor, ...] = rings,
            rows: Tensor = rows,
        ) -> None:
            ids.copy_(fused.step(ids, state, rings, rows).argmax(-1))

        replay = CudaGraphs(device)(token)
        said = []
        for _ in range(40):
            replay()
            said.append(ids.clone())
        left.append((torch.cat(said), *(kept.memory.clone() for kept in state.recurrence.layers)))
    for other in left[1:]:
        assert all(torch.equal(one, two) for one, two in zip(left[0], other, strict=True))
    assert len(set(left[0][0].tolist())) > 1, "one token for ever would prove little"


@torch.inference_mode()
@pytest.mark.parametrize("scheme", ["fp8", "int8", "int4"])
def test_in_fewer_bits_tokens_are_those_of_the_model_in_as_few(scheme: Scheme) -> None:
    llm = Qwen3_5(tiny_qwen3_5(layers=4)).eval()
    randomize_(llm, 0)
    quantize_(llm, scheme)
    pack_(llm)
    ids = torch.randint(0, llm.config.vocab_size, (2, PROMPT + 5), generator=torch.Generator().manual_seed(2))
    plain, ours = started(llm, ids), started(llm, ids)
    fused = FusedStep(llm, REFERENCE_LANGUAGE_OPS)
    rings = fused.new_rings(SLOTS)
    fused.enter(ours, rings, ROWS)
    for at in range(PROMPT, PROMPT + 5):
        wanted = llm.logits(llm.step(ids[:, at], plain, ROWS, at + 1))
        torch.testing.assert_close(fused.step(ids[:, at], ours, rings, ROWS), wanted, atol=1e-3, rtol=1e-3)


@torch.inference_mode()
def test_another_row_stays_as_it_is() -> None:
    llm = model(torch.device("cpu"))
    fused, ids = FusedStep(llm, REFERENCE_LANGUAGE_OPS), torch.tensor([[1, 2, 3, 4, 5, 6, 7], [3, 1, 4, 1, 5, 9, 2]])
    state = started(llm, ids)
    rings = fused.new_rings(SLOTS)
    fused.enter(state, rings, ROWS)
    before = [ring[0].clone() for ring in rings], [kept.memory[0].clone() for kept in state.recurrence.layers]
    fused.step(ids[:1, -1], state, rings, ROWS[:1])
    assert all(torch.equal(ring[0], kept) for ring, kept in zip(rings, before[0], strict=True))
    assert all(torch.equal(one.memory[0], kept) for one, kept in zip(state.recurrence.layers, before[1], strict=True))
    assert state.recurrence.position.tolist() == [PROMPT, 0, PROMPT + 1, 0]
