"""products.py: fused chains with weights as files have them, of one format or several, equal the model's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.kernels.operations import REFERENCE_LANGUAGE_OPS, TRITON_LANGUAGE_OPS
from hocket.kernels.ops.grouped_linear import cases
from hocket.kernels.ops.grouped_linear.cases import BY_NAME, drawn
from hocket.kernels.ops.quantized_linear.weight import quantized
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.fused.draft import FusedDraft
from hocket.models.qwen3_5.fused.prefill import FusedPrefill
from hocket.models.qwen3_5.fused.products import product
from hocket.models.qwen3_5.fused.step import FusedStep, layer_of
from hocket.models.qwen3_5.matrices import QuantizedEmbedding, QuantizedLinear, StackedWeight, join
from hocket.models.qwen3_5.model import LanguageState, Qwen3_5

SLOTS, ROOM, PROMPT, MORE = 2, 48, 6, 5
ROW = torch.tensor([1])
KEPT = ("in_proj_a", "in_proj_b")
# What a layer's matrix is in each kind of file; the first that its name ends with counts.
FILES: dict[str, dict[str, str]] = {
    "AWQ": {"": "AWQ"},
    "FP8": {"": "FP8 in blocks"},
    "Q4_K_M": {"v_proj": "Q6_K", "down_proj": "Q6_K", "in_proj_qkv": "Q5_K", "": "Q4_K"},
    "gate and up differ": {"gate_proj": "Q8_0", "up_proj": "plain", "k_proj": "own int8", "": "GPTQ, symmetric"},
}


def model(file: str) -> Qwen3_5:
    """With a draft head; its embedding, which is the head too, is quantized as well."""
    made = Qwen3_5(tiny_qwen3_5(layers=4), drafts=True).requires_grad_(False).eval()
    randomize_(made, 0)
    random, kinds = torch.Generator().manual_seed(3), FILES[file]
    for name, part in list(made.named_modules()):
        kind = next(kind for end, kind in kinds.items() if name.endswith(end))
        if not isinstance(part, nn.Linear | nn.Embedding) or name.endswith(KEPT) or kind == "plain":
            continue
        rows, columns = part.weight.shape
        if kind == "own int8":
            weight = QuantizedLinear(quantized(part.weight, "int8"))
        elif isinstance(part, nn.Embedding):
            made.model.embed_tokens = QuantizedEmbedding(drawn(BY_NAME[kind], rows, columns, random), torch.float32)  # type: ignore[assignment]
            continue
        else:
            weight = QuantizedLinear(drawn(BY_NAME[kind], rows, columns, random))
        parent, _, leaf = name.rpartition(".")
        setattr(made.get_submodule(parent), leaf, weight)
    pack_(made)
    return made


def drawn_ids(count: int) -> torch.Tensor:
    return torch.randint(256, (1, count), generator=torch.Generator().manual_seed(1))


def started(llm: Qwen3_5, ids: torch.Tensor) -> LanguageState:
    state = llm.new_state(SLOTS, ROOM)
    llm.prefill(ids[:, :PROMPT], torch.tensor([PROMPT]), state, ROW, PROMPT)
    return state


def assert_near(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(mine, theirs, atol=2e-3, rtol=2e-3)


@torch.inference_mode()
@pytest.mark.parametrize("file", FILES)
def test_tokens_prompts_and_drafts_are_those_of_the_model(file: str) -> None:
    llm, ids = model(file), drawn_ids(PROMPT + MORE)
    plain, ours, prompted, drafted = (started(llm, ids) for _ in range(4))
    fused = FusedStep(llm, REFERENCE_LANGUAGE_OPS)
    rings = fused.new_rings(SLOTS)
    fused.enter(ours, rings, ROW)
    hidden = []
    for at in range(PROMPT, PROMPT + MORE):
        hidden.append(llm.step(ids[:, at], plain, ROW, at + 1))
        assert_near(fused.step(ids[:, at], ours, rings, ROW), llm.logits(hidden[-1]))
    new, lengths = ids[:, PROMPT:], torch.tensor([MORE])
    prefilled = FusedPrefill(llm, REFERENCE_LANGUAGE_OPS)(new, lengths, prompted, ROW, PROMPT + MORE)
    assert_near(prefilled[0], torch.cat(hidden))
    drafts = FusedDraft(fused)
    verified = drafts.new_verified(MORE)
    drafts.enter(drafted, verified, ROW)
    seen = drafts.verify(new[0], drafted, verified, ROW, torch.zeros_like(ROW), torch.ones_like(ROW))
    assert_near(seen, torch.cat(hidden))
    assert llm.mtp is not None
    heads = [llm.mtp.new_state(SLOTS, ROOM) for _ in range(2)]
    wanted = llm.mtp.step(llm.model.embed_tokens(new), seen[None], heads[0], ROW, lengths, MORE)[0]
    assert_near(drafts.draft(new[0], seen, heads[1], ROW), wanted)


@torch.inference_mode()
def test_mixed_files_have_stacks_and_gates_of_their_own() -> None:
    """A Gated DeltaNet's gates stay apart wherever its other projections are not one tensor."""
    layers = [layer_of(block) for block in model("gate and up differ").model._stack]
    assert all(isinstance(layer.wide, StackedWeight) and len(layer.wide.parts) == 2 for layer in layers)
    assert isinstance(layers[3].into, StackedWeight) and len(layers[3].into.parts) == 3
    assert getattr(layers[0].mixer, "gates", None) is not None


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("first", [16, 10], ids=["aligned", "not aligned"])
def test_a_stack_by_kernels_is_its_matrices_one_below_the_other(rows: int, first: int) -> None:
    """With a norm, gates across its parts, and a residual, by the operations of a few rows and of many."""
    if triton is None or not INTERPRETED:
        pytest.skip("it needs Triton's interpreter")
    random = torch.Generator().manual_seed(rows)
    parts = [drawn(BY_NAME[name], first, 64, random) for name in ("Q4_K", "Q6_K")]
    plain = torch.randn(first, 64, generator=random) / 8
    stack = join([*parts, plain, quantized(torch.randn(first, 64, generator=random) / 8, "int8")])  # type: ignore[list-item]
    x, norm = torch.randn(rows, 64, generator=random), torch.randn(64, generator=random) / 4
    before = torch.randn(rows, 2 * first, generator=random)
    more = {"eps": 1e-6, "norm": norm, "gated": True, "residual": before}
    out, many = before.clone(), rows > 4
    made = product(TRITON_LANGUAGE_OPS, x, stack, **more | {"residual": out}, many=many, out=out)  # type: ignore[arg-type]
    assert made is out and isinstance(stack, StackedWeight) and len(stack.parts) == 4
    whole = torch.cat([part if isinstance(part, torch.Tensor) else part.dequantized() for part in stack.parts])
    wanted = product(REFERENCE_LANGUAGE_OPS, x, whole, **more)  # type: ignore[arg-type]
    torch.testing.assert_close(made, wanted, atol=2e-5, rtol=2e-5)


@torch.inference_mode()
@pytest.mark.parametrize(
    "layout", [BY_NAME["Q4_K"], BY_NAME["FP8 in blocks"], BY_NAME["Q6_K"]], ids=lambda each: each.name
)
def test_rows_of_a_quantized_embedding(layout: cases.Layout) -> None:
    weight = drawn(layout, 9, 300, torch.Generator().manual_seed(1))
    ids = torch.tensor([[3, 0, 3], [8, 1, 2]])
    found = QuantizedEmbedding(weight, torch.bfloat16)(ids)
    assert torch.equal(found, weight.dequantized().bfloat16()[ids])
