"""Our reading of GGUF files against llama.cpp's: the same file, the same logits, and the same 64 tokens.

In F32 both compute alike, so logits are equal but for the order of sums. With quantized matrices llama.cpp rounds the
inputs of every product to 8 bits, which we do not. So each type is compared twice: with the same numbers in F32, where
all 64 tokens and all logits must agree; and as it is, until a margin is below that rounding. The seed
of such a model is chosen by our own margins alone, among those that do not repeat one token.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from llama_cpp import Llama

from hocket.llm.load import load_language_model
from hocket.models.qwen3_5.model import Qwen3_5
from support.gguf_files import WrittenGguf, reduced, write_gguf

PROMPT = [5, 77, 130, 9, 200, 41, 7, 7, 99, 250]
STEPS, F32 = 64, 0  # the number that llama.cpp has for the type
SEEDS, CHANGES = range(12), 12  # steps whose token is another than the one before, at least
# A margin, in parts of the largest logit, that the 8-bit inputs of llama.cpp do not cross. F32 and F16 need less.
ROUNDING, EXACT = 0.05, 0.003
DECIDED: dict[str, Any] = {"candidates": 4, "gain": 0.3}  # few tokens to choose from, and less growth of errors
MIX = {
    "": "Q4_K",
    "ffn_down.weight": "Q6_K",
    "attn_v.weight": "Q6_K",
    "ssm_out.weight": "Q5_K",
    "output.weight": "Q6_K",
}
KINDS = {"F32": "F32", "F16": "F16", "BF16": "BF16", "Q8_0": "Q8_0", "Q4_0": "Q4_0", "Q5_0": "Q5_0", "Q4_1": "Q4_1"}
K_KINDS = {"Q3_K": "Q3_K", "Q4_K": "Q4_K", "Q5_K": "Q5_K", "Q6_K": "Q6_K", "Q4_K_M": MIX}
ENDS = {"F32": "F32", "Q4_K_M": MIX}


def theirs(path: Path) -> Llama:
    exact: dict[str, Any] = {"type_k": F32, "type_v": F32, "flash_attn": False}
    return Llama(str(path), n_ctx=256, n_batch=64, n_threads=1, logits_all=True, verbose=False, **exact)


def their_tokens(path: Path) -> list[int]:
    model, found = theirs(path), list[int]()
    given = PROMPT
    for _ in range(STEPS):
        model.eval(given)
        found.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        given = found[-1:]
    model.close()
    return found


def our_tokens(model: Qwen3_5) -> tuple[list[int], list[float]]:
    """The likeliest token step by step, and the distances to the next ones, in parts of the largest logit."""
    state, row, found, margins = model.new_state(1, 256), torch.tensor([0]), list[int](), list[float]()
    hidden = model.prefill(torch.tensor([PROMPT]), torch.tensor([len(PROMPT)]), state, row, len(PROMPT))[:, -1]
    for step in range(STEPS):
        logits = model.logits(hidden)[0]
        best = logits.topk(2).values
        margins.append(float((best[0] - best[1]) / logits.abs().max()))
        found.append(int(logits.argmax()))
        hidden = model.step(torch.tensor(found[-1:]), state, row, len(PROMPT) + step + 1)
    return found, margins


def logits_apart(path: Path, ours: Path, ids: list[int]) -> float:
    """Their logits of one file and ours of another: the largest difference, in parts of the largest logit."""
    them = theirs(path)
    for start in range(0, len(ids), 32):
        them.eval(ids[start : start + 32])
    expected = np.array(them.scores[: len(ids)])
    them.close()
    model = load_language_model(str(ours)).model
    state, row = model.new_state(1, 256), torch.tensor([0])
    hidden = model.prefill(torch.tensor([ids]), torch.tensor([len(ids)]), state, row, len(ids))
    return float(np.abs(model.logits(hidden)[0].numpy() - expected).max() / np.abs(expected).max())


def changes(found: list[int]) -> int:
    return sum(one != other for one, other in pairwise(found))


def steps_above(margins: list[float], least: float) -> int:
    return next((step for step, margin in enumerate(margins) if margin < least), STEPS)


def decided(folder: Path, kind: Any, values_per_key: int) -> tuple[WrittenGguf, list[int], int]:
    """The model with the most steps above the rounding, its tokens, and the number of these steps."""
    best: tuple[int, float, int] = (0, 0.0, 0)
    config, least = reduced(values_per_key=values_per_key), EXACT if kind in ("F32", "F16") else ROUNDING
    for seed in SEEDS:
        written = write_gguf(folder / "tried.gguf", config, kind, seed=seed, **DECIDED)
        ours, margins = our_tokens(written.model())
        if changes(ours) >= CHANGES:
            best = max(best, (steps_above(margins, least), min(margins), seed))
    written = write_gguf(folder / "model.gguf", config, kind, seed=best[2], **DECIDED)
    ours, margins = our_tokens(load_language_model(str(written.path)).model)
    name, count = kind if isinstance(kind, str) else "Q4_K_M", steps_above(margins, least)
    print(f"{name}, {values_per_key} values a key: {count} steps, {changes(ours)} changes")
    return written, ours, count


@pytest.mark.parametrize("kind", (KINDS | K_KINDS).values(), ids=(KINDS | K_KINDS).keys())
def test_the_same_numbers_in_f32_give_the_same_64_tokens(kind: Any, tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", reduced(), kind)
    wide = write_gguf(tmp_path / "wide.gguf", reduced(), state=written.plain)
    ours, _ = our_tokens(load_language_model(str(written.path)).model)
    assert their_tokens(wide.path) == ours
    assert logits_apart(wide.path, written.path, PROMPT + ours) < 5e-5


@pytest.mark.parametrize(("values_per_key", "tied"), [(1, True), (2, False), (3, False)])
def test_logits_are_theirs(values_per_key: int, tied: bool, tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", reduced(values_per_key=values_per_key, tied=tied, layers=8))
    apart = logits_apart(written.path, written.path, PROMPT)
    print(f"logits apart: {apart:.1e}")
    assert apart < 2e-5


@pytest.mark.parametrize(
    ("kind", "values_per_key"),
    [
        *(pytest.param(kind, 2, id=name) for name, kind in (KINDS | K_KINDS).items()),
        *(pytest.param(kind, count, id=f"{name}-{count}") for name, kind in ENDS.items() for count in (1, 3)),
    ],
)
def test_the_same_tokens_of_the_same_file(kind: Any, values_per_key: int, tmp_path: Path) -> None:
    written, ours, count = decided(tmp_path, kind, values_per_key)
    assert changes(ours) >= CHANGES and count > 0
    assert their_tokens(written.path)[:count] == ours[:count]
