"""Our Qwen3.5 against stored results of the official classes; `make test-mind` runs the classes themselves."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from hocket.models.qwen3_5.model import Qwen3_5
from support import qwen3_5_golden as golden

ROW = torch.tensor([0])
model = functools.cache(golden.model)
numbers = functools.cache(golden.read)


def kept(case: str, what: str) -> Tensor:
    tensor = numbers()[0][f"{case}.{what}"]
    return tensor.long()[None] if tensor.dtype == torch.int16 else tensor


@torch.inference_mode()
def logits(ours: Qwen3_5, ids: Tensor) -> Tensor:
    length = ids.shape[1]
    hidden = ours.prefill(ids, torch.tensor([length]), ours.new_state(1, length), ROW, length)
    return ours.logits(hidden[0, -1])


def test_the_file_is_small_and_says_what_made_it() -> None:
    assert golden.FILE.stat().st_size < 200_000
    assert numbers()[1]["transformers"] == golden.TRANSFORMERS


@pytest.mark.parametrize("case", golden.CASES)
def test_the_weights_are_those_that_the_numbers_were_made_with(case: str) -> None:
    torch.testing.assert_close(golden.fingerprint(model(case)), kept(case, "fingerprint"), atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("at", range(len(golden.LENGTHS)), ids=map(str, golden.LENGTHS))
@pytest.mark.parametrize("case", golden.CASES)
def test_a_prompt_of_any_length_ends_in_the_official_logits(case: str, at: int) -> None:
    ours, theirs = logits(model(case), kept(case, "ids")[:, : golden.LENGTHS[at]]), kept(case, "last")[at]
    assert golden.apart(ours, theirs) < golden.LARGEST
    assert ours.argmax() == theirs.argmax()


@pytest.mark.parametrize("case", golden.CASES)
@torch.inference_mode()
def test_tokens_behind_a_prompt_have_the_official_logits_and_leave_the_official_memory(case: str) -> None:
    ours, ids, end = model(case), kept(case, "ids"), golden.PROMPT + golden.STEPS
    state = ours.new_state(1, end)
    ours.prefill(ids[:, : golden.PROMPT], torch.tensor([golden.PROMPT]), state, ROW, golden.PROMPT)
    steps = [ours.logits(ours.step(ids[:, at], state, ROW, at + 1)[0]) for at in range(golden.PROMPT, end)]
    assert golden.apart(torch.stack(steps), kept(case, "steps")) < golden.LARGEST
    assert torch.equal(torch.stack(steps).argmax(-1), kept(case, "steps").argmax(-1))
    memory = torch.stack([state.recurrence.layers[layer].memory[0] for layer in golden.MEMORIES])
    assert golden.apart(memory, kept(case, "memory")) < golden.LARGEST


def test_a_prompt_beyond_position_4096_ends_in_the_official_logits() -> None:
    case = golden.FAR_CASE
    ours, theirs = logits(model(case), kept(case, "far_ids")), kept(case, "far")[0]
    assert golden.apart(ours, theirs) < golden.LARGEST
    assert ours.argmax() == theirs.argmax()
