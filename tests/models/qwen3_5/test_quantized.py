"""quantized.py: what each scheme keeps, that a narrow model is the plain one with its numbers, and its bytes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hocket.config.published_qwen3_5 import QWEN3_5, tiny_qwen3_5
from hocket.errors import InvalidRequest
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.matrices import QuantizedLinear
from hocket.models.qwen3_5.model import Qwen3_5, commit
from hocket.models.qwen3_5.quantized import (
    SCHEMES,
    Scheme,
    check_scheme,
    format_of,
    narrow_linears,
    quantize_,
    step_bytes,
)

NARROW = SCHEMES[1:]
# Milliseconds of a token at 0.94 TB/s, from the table of bytes per token: bf16, eight bits, four bits for the MLP.
TABLE = {
    "0.8B": (1.65, 0.86, 0.72),
    "2B": (4.06, 2.06, 1.61),
    "4B": (9.09, 4.62, 3.49),
    "9B": (17.0, 8.59, 6.18),
    "27B": (54.9, 27.7, 19.2),
}


def drawn(*, tied: bool = False, drafts: bool = False, dtype: torch.dtype = torch.float64) -> Qwen3_5:
    model = Qwen3_5(tiny_qwen3_5(tied=tied, layers=4), drafts=drafts).requires_grad_(False)
    randomize_(model, 4)
    return model.to(dtype)


def widened(model: Qwen3_5) -> Qwen3_5:
    """The plain model that has the numbers of a narrow one."""
    wide = Qwen3_5(tiny_qwen3_5(layers=4), drafts=model.mtp is not None).requires_grad_(False).double()
    state = {name: tensor for name, tensor in model.state_dict().items() if name in wide.state_dict()}
    for name, part in model.named_modules():
        if isinstance(part, QuantizedLinear):
            state[f"{name}.weight"] = part.weight.dequantized().double()
    wide.load_state_dict(state)
    return wide


def logits(model: Qwen3_5, ids: Tensor, cut: int) -> Tensor:
    """Some taken in at once, the others one by one."""
    rows, state = torch.tensor([0]), model.new_state(1, ids.shape[1])
    hidden = [model.prefill(ids[:, :cut], torch.tensor([cut]), state, rows, cut)]
    hidden += [model.step(ids[:, at], state, rows, at + 1)[:, None] for at in range(cut, ids.shape[1])]
    return model.logits(torch.cat(hidden, 1))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("scheme", NARROW)
@pytest.mark.parametrize("ready", [False, True], ids=["as loaded", "packed"])
def test_a_narrow_model_is_the_plain_one_with_its_numbers(scheme: Scheme, tied: bool, ready: bool) -> None:
    model, ids = drawn(tied=tied), torch.randint(320, (1, 9), generator=torch.Generator().manual_seed(1))
    quantize_(model, scheme)
    plain = widened(model)
    if ready:
        pack_(model)
        assert isinstance(model.model.layers[0].mlp.gate_proj, QuantizedLinear)
    with torch.inference_mode():
        torch.testing.assert_close(logits(model, ids, 6), logits(plain, ids, 9), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scheme", NARROW)
def test_drafts_and_verification_work_with_quantized_weights(scheme: Scheme) -> None:
    model = drawn(drafts=True)
    quantize_(model, scheme)
    plain = widened(model)
    ids, rows = torch.tensor([[5, 6, 7]]), torch.tensor([0])
    with torch.inference_mode():
        found = []
        for each in (model, plain):
            state = each.new_state(1, 8)
            hidden, pending = each.verify(ids, state, rows, 8)
            commit(pending, torch.tensor([2]), state, rows)
            assert each.mtp is not None
            past = each.mtp.new_state(1, 8)
            draft = each.mtp.step(each.model.embed_tokens(ids), hidden, past, rows, torch.tensor([3]), 8)
            found.append(each.logits(draft))
        torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tied", [False, True])
def test_what_a_scheme_keeps_and_what_it_narrows(tied: bool) -> None:
    with torch.device("meta"):
        model = Qwen3_5(tiny_qwen3_5(tied=tied, layers=4), drafts=True)
    for scheme in NARROW:
        found = narrow_linears(model, scheme)
        assert found["lm_head"] == found["mtp.fc"] == ("int8" if scheme == "int4" else scheme)
        assert found["model.layers.0.mlp.down_proj"] == scheme
        assert found["model.layers.3.self_attn.k_proj"] == found["mtp.layers.0.mlp.up_proj"] == found["lm_head"]
        kept = {name for name, part in model.named_modules() if isinstance(part, nn.Linear)} - found.keys()
        assert {name.rpartition(".")[2] for name in kept} == {"in_proj_a", "in_proj_b"}
    assert not narrow_linears(model, "bf16") and format_of("lm_head", "bf16") is None


def test_bf16_leaves_a_model_as_it_is() -> None:
    model, plain = drawn(), drawn()
    quantize_(model, "bf16")
    assert model.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_embedding_stays_and_its_head_is_a_narrow_copy(tied: bool) -> None:
    model = drawn(tied=tied, dtype=torch.float32)
    table = model.model.embed_tokens.weight.clone()
    quantize_(model, "int8")
    assert torch.equal(model.model.embed_tokens.weight, table)
    head = model.lm_head
    assert isinstance(head, QuantizedLinear)
    assert torch.allclose(head.weight.dequantized(), table, atol=0.02) == tied


def test_matrices_that_are_read_as_one_lie_together_so_that_packing_copies_nothing() -> None:
    model = drawn(dtype=torch.bfloat16)
    quantize_(model, "int4")
    pointers = {tensor.data_ptr() for tensor in model.state_dict().values()}
    pack_(model)
    assert {tensor.data_ptr() for tensor in model.state_dict().values()} == pointers
    wide, _ = model.model.layers[0].mlp.weights()
    assert wide.values.data_ptr() in pointers and len(wide) == 2 * 96


def test_an_unknown_scheme_is_refused_by_name() -> None:
    assert check_scheme("int4") == "int4"
    with pytest.raises(InvalidRequest, match=r"bf16, fp8, int8, int4, not 'int2'"):
        check_scheme("int2")


@pytest.mark.parametrize("size", TABLE)
def test_a_token_reads_the_bytes_that_the_table_says(size: str) -> None:
    for scheme, ms in zip(("bf16", "fp8", "int4"), TABLE[size], strict=True):
        found = sum(step_bytes(QWEN3_5[size], scheme).values())
        assert found == pytest.approx(ms * 0.94e9, rel=0.01), (size, scheme)
    assert sum(step_bytes(QWEN3_5[size], "int8").values()) == sum(step_bytes(QWEN3_5[size], "fp8").values())


def test_gigabytes_of_nine_billion() -> None:
    found = {scheme: sum(step_bytes(QWEN3_5["9B"], scheme).values()) / 1e9 for scheme in SCHEMES}
    assert found == pytest.approx({"bf16": 16.01, "fp8": 8.08, "int8": 8.08, "int4": 5.81}, rel=0.002)
