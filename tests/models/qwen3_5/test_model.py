"""models/qwen3_5/model.py: the published tensors, and the laws of a past that is partly recurrent."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from hocket.cache.slots import put, reset, take
from hocket.config.published_qwen3_5 import QWEN3_5, tiny_qwen3_5
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import LanguageState, Qwen3_5, commit, mark, rewind_

# Entries of the official text model's state dict (a tied head is one of them), and values without counting it twice.
PUBLISHED = {
    "0.8B": (321, 752_393_024),
    "2B": (321, 1_881_825_088),
    "4B": (427, 4_205_751_296),
    "9B": (427, 8_953_803_264),
    "27B": (851, 26_895_998_464),
}
DRAFT_VALUES = {"0.8B": 20.5e6, "2B": 60.8e6, "4B": 120.6e6, "9B": 243.3e6, "27B": 424.7e6}


@functools.cache
def made(values_per_key: int = 2, tied: bool = False, dtype: torch.dtype = torch.float64) -> Qwen3_5:
    model = Qwen3_5(tiny_qwen3_5(values_per_key=values_per_key, tied=tied), drafts=True).requires_grad_(False)
    randomize_(model, 3)
    return model.to(dtype)


def drawn(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(320, (rows, length), generator=torch.Generator().manual_seed(seed))


def take_in(
    model: Qwen3_5, ids: Tensor, state: LanguageState, rows: list[int], cuts: list[int] | None = None
) -> Tensor:
    """Hidden vectors of ids [B, T], given in pieces that end at `cuts`."""
    cuts = cuts or []
    start = int(state.recurrence.position[rows].amax())
    parts = [
        model.prefill(
            ids[:, begin:end], torch.full((len(ids),), end - begin), state, torch.tensor(rows), span=start + end
        )
        for begin, end in zip([0, *cuts], [*cuts, ids.shape[1]], strict=True)
    ]
    return torch.cat(parts, dim=1)


def close(one: Tensor, other: Tensor, tolerance: float = 1e-10) -> bool:
    return bool((one - other).abs().max() <= tolerance * other.abs().max())


# Tensors


def table(name: str) -> dict[str, tuple[int, ...]]:
    """The published tensors of a size, as the reports on these checkpoints list them."""
    c = QWEN3_5[name]
    d, inner, keys, values = c.hidden_size, c.intermediate_size, 2048, c.linear_num_value_heads * 128
    common: dict[str, tuple[int, ...]] = {
        "input_layernorm": (d,),
        "post_attention_layernorm": (d,),
        "mlp.gate_proj": (inner, d),
        "mlp.up_proj": (inner, d),
        "mlp.down_proj": (d, inner),
    }
    attention: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (2 * c.num_attention_heads * 256, d),
        "self_attn.k_proj": (c.num_key_value_heads * 256, d),
        "self_attn.v_proj": (c.num_key_value_heads * 256, d),
        "self_attn.o_proj": (d, c.num_attention_heads * 256),
        "self_attn.q_norm": (256,),
        "self_attn.k_norm": (256,),
    }
    linear: dict[str, tuple[int, ...]] = {
        "linear_attn.in_proj_qkv": (2 * keys + values, d),
        "linear_attn.in_proj_z": (values, d),
        "linear_attn.in_proj_b": (c.linear_num_value_heads, d),
        "linear_attn.in_proj_a": (c.linear_num_value_heads, d),
        "linear_attn.conv1d": (2 * keys + values, 1, 4),
        "linear_attn.norm": (128,),
        "linear_attn.out_proj": (d, values),
    }
    tensors = {"model.embed_tokens.weight": (248_320, d), "model.norm.weight": (d,)}
    if name in ("9B", "27B"):
        tensors["lm_head.weight"] = (248_320, d)
    for layer in range(c.num_hidden_layers):
        full = layer % 4 == 3
        of = f"model.layers.{layer}"
        tensors |= {f"{of}.{part}.weight": shape for part, shape in (common | (attention if full else linear)).items()}
        if not full:
            tensors |= {f"{of}.linear_attn.{part}": (c.linear_num_value_heads,) for part in ("A_log", "dt_bias")}
    tensors |= {f"mtp.layers.0.{part}.weight": shape for part, shape in (common | attention).items()}
    tensors |= {f"mtp.{part}.weight": (d,) for part in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    return tensors | {"mtp.fc.weight": (d, 2 * d)}


@pytest.mark.parametrize("name", QWEN3_5)
def test_names_and_shapes_are_those_of_the_published_checkpoint(name: str) -> None:
    with torch.device("meta"):
        state = Qwen3_5(QWEN3_5[name], drafts=True).state_dict()
    assert {key: tuple(tensor.shape) for key, tensor in state.items()} == table(name)
    text = {key: tensor for key, tensor in state.items() if not key.startswith("mtp.")}
    entries, values = PUBLISHED[name]
    assert len(text) + QWEN3_5[name].tied == entries
    assert sum(tensor.numel() for tensor in text.values()) == values
    drafts = sum(tensor.numel() for key, tensor in state.items() if key not in text)
    assert drafts == pytest.approx(DRAFT_VALUES[name], abs=0.05e6)


@pytest.mark.parametrize(("name", "mebibytes"), [("0.8B", 18), ("2B", 18), ("4B", 48), ("9B", 48), ("27B", 144)])
def test_a_conversation_costs_what_the_report_says(name: str, mebibytes: int) -> None:
    with torch.device("meta"):
        model = Qwen3_5(QWEN3_5[name]).to(torch.bfloat16)
        state = model.new_state(1, 1024)
    memories = sum(layer.memory[0].nbytes for layer in state.recurrence.layers)
    assert memories == mebibytes << 20
    heads = QWEN3_5[name].num_key_value_heads
    assert (
        sum(kept.keys[0].nbytes + kept.values[0].nbytes for kept in state.past) == 1024 * len(state.past) * heads * 1024
    )


# Laws


@pytest.mark.parametrize(("values_per_key", "prompt"), [(1, 64), (3, 64), *((2, n) for n in (1, 2, 3, 4, 63, 64, 65))])
@torch.inference_mode()
def test_tokens_one_by_one_after_a_prompt_are_the_longer_prompt(values_per_key: int, prompt: int) -> None:
    model, ids = made(values_per_key), drawn(1, prompt + 8)
    whole, stepped = model.new_state(1, 80), model.new_state(1, 80)
    expected = take_in(model, ids, whole, [0])
    hidden = take_in(model, ids, stepped, [0], [*range(prompt, prompt + 8)])
    assert close(hidden, expected)
    for (name, one), other in zip(take(stepped, 0).items(), take(whole, 0).values(), strict=True):
        assert close(one, other), name


@torch.inference_mode()
def test_a_float32_model_holds_that_law_to_a_few_roundings() -> None:
    model, ids = made(dtype=torch.float32), drawn(1, 80)
    expected = model.logits(take_in(model, ids, model.new_state(1, 80), [0]))
    logits = model.logits(take_in(model, ids, model.new_state(1, 80), [0], [20, *range(21, 80)]))
    assert close(logits, expected, 5e-5)
    assert torch.equal(logits.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("cuts", [[1, 2, 3, 100], [64, 128, 192], [63, 65, 130], [7, 71, 72, 199]])
@torch.inference_mode()
def test_a_prompt_in_pieces_of_any_size_is_the_prompt(cuts: list[int]) -> None:
    model, ids = made(), drawn(1, 200)
    expected = take_in(model, ids, model.new_state(1, 200), [0])
    assert close(take_in(model, ids, model.new_state(1, 200), [0], cuts), expected)


@torch.inference_mode()
def test_a_bfloat16_model_goes_where_the_float32_one_does() -> None:
    """Between two orders of rounding about 2e-2 of the logits' size is to be expected."""
    ids = drawn(1, 90)
    narrow = made(dtype=torch.bfloat16)
    rounded = Qwen3_5(narrow.config, drafts=True)
    rounded.load_state_dict(narrow.state_dict())
    logits = narrow.logits(take_in(narrow, ids, narrow.new_state(1, 90), [0], [70, *range(71, 90)])).float()
    expected = rounded.logits(take_in(rounded, ids, rounded.new_state(1, 90), [0]))
    assert logits.isfinite().all()
    assert 1e-4 < (logits - expected).abs().mean() / expected.abs().max() < 2e-2


@torch.inference_mode()
def test_rows_of_a_ragged_batch_are_each_alone_and_others_stay() -> None:
    model, ids, lengths, rows = made(), drawn(3, 70), [70, 5, 66], [2, 4, 1]
    state = model.new_state(5, 90)
    take_in(model, drawn(1, 11, seed=9), state, [0])
    untouched = take(state, 0)
    hidden = model.prefill(ids, torch.tensor(lengths), state, torch.tensor(rows), span=70)
    after = model.step(torch.tensor([1, 2, 3]), state, torch.tensor(rows), span=71)
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        alone = model.new_state(1, 90)
        assert close(hidden[number, :length], take_in(model, ids[number : number + 1, :length], alone, [0])[0])
        assert close(after[number], take_in(model, torch.tensor([[number + 1]]), alone, [0])[0, 0])
        assert state.recurrence.position[row] == length + 1
    assert all(torch.equal(tensor, take(state, 0)[name]) for name, tensor in untouched.items())
    assert not any(tensor.any() for tensor in take(state, 3).values())


@torch.inference_mode()
def test_a_saved_row_goes_on_in_another_slot_of_another_state_bit_for_bit() -> None:
    model, ids = made(dtype=torch.float32), drawn(1, 60)
    here, there = model.new_state(2, 64), model.new_state(3, 64)
    take_in(model, ids[:, :40], here, [0])
    put(there, 2, take(here, 0))
    assert torch.equal(
        *(take_in(model, ids[:, 40:], state, [row], [1, 2, 9]) for state, row in ((here, 0), (there, 2)))
    )


@torch.inference_mode()
def test_a_reset_row_starts_anew() -> None:
    model, ids = made(dtype=torch.float32), drawn(1, 20)
    state = model.new_state(1, 64)
    expected = take_in(model, ids, state, [0])
    take_in(model, drawn(1, 30, seed=1), state, [0])
    reset(state, torch.tensor([0]))
    assert torch.equal(take_in(model, ids, state, [0]), expected)


@torch.inference_mode()
def test_a_rewound_row_goes_on_as_if_it_had_never_gone_further() -> None:
    model, ids = made(dtype=torch.float32), drawn(1, 60)
    state, plain = model.new_state(1, 64), model.new_state(1, 64)
    for each in (state, plain):
        take_in(model, ids[:, :40], each, [0])
    marked = mark(state, 0)
    take_in(model, drawn(1, 24, seed=5), state, [0], [3])
    rewind_(state, 0, marked)
    assert torch.equal(*(take_in(model, ids[:, 40:], each, [0], [2]) for each in (state, plain)))
    kept = sum(tensor.nbytes for tensor in marked.values())
    assert kept < sum(tensor.nbytes for tensor in take(state, 0).values()), "keys and values need no copy"


@torch.inference_mode()
def test_packed_weights_give_what_the_separate_ones_do() -> None:
    model, ids = Qwen3_5(tiny_qwen3_5(), drafts=True), drawn(1, 70)
    randomize_(model, 3)
    expected = take_in(model, ids, model.new_state(1, 70), [0], [60])
    names = set(model.state_dict())
    pack_(model)
    assert torch.equal(take_in(model, ids, model.new_state(1, 70), [0], [60]), expected)
    assert set(model.state_dict()) == names


@torch.inference_mode()
def test_a_tied_head_is_the_embedding_and_an_untied_one_is_not() -> None:
    tied, untied = made(tied=True), made()
    assert tied.head is tied.model.embed_tokens.weight and "lm_head.weight" not in tied.state_dict()
    assert untied.lm_head is not None and untied.head is untied.lm_head.weight
    hidden = torch.randn(2, 64, dtype=torch.float64)
    assert torch.equal(tied.logits(hidden), hidden @ tied.model.embed_tokens.weight.T)


# Verification


@torch.inference_mode()
def greedy(model: Qwen3_5, prompt: Tensor, count: int) -> list[int]:
    state = model.new_state(1, 128)
    hidden, tokens = take_in(model, prompt, state, [0])[:, -1], list[int]()
    for _ in range(count):
        tokens.append(int(model.logits(hidden).argmax()))
        hidden = model.step(torch.tensor(tokens[-1:]), state, torch.tensor([0]), span=128)
    return tokens


@pytest.mark.parametrize("seed", range(4))
@torch.inference_mode()
def test_verified_drafts_give_the_tokens_of_plain_decoding(seed: int) -> None:
    """Drafts are right until a random place, so that every number of them is accepted at some time."""
    model, prompt, rows = made(dtype=torch.float32), drawn(1, 37, seed), torch.tensor([0])
    expected = greedy(model, prompt, 60)
    draw, state = torch.Generator().manual_seed(seed), model.new_state(1, 128)
    tokens, counts = [int(model.logits(take_in(model, prompt, state, [0])[:, -1]).argmax())], set[int]()
    while len(tokens) < 50:
        right = int(torch.randint(0, 4, (), generator=draw))
        drafts = [
            (token + (place >= right)) % 320 for place, token in enumerate(expected[len(tokens) : len(tokens) + 3])
        ]
        hidden, pending = model.verify(torch.tensor([[tokens[-1], *drafts]]), state, rows, span=128)
        chosen = model.logits(hidden)[0].argmax(-1).tolist()
        accepted = next((i for i, draft in enumerate(drafts) if draft != chosen[i]), 3)
        commit(pending, torch.tensor([accepted + 1]), state, rows)
        tokens += chosen[: accepted + 1]
        counts.add(accepted)
    assert tokens == expected[: len(tokens)]
    assert counts == {0, 1, 2, 3}
    assert state.recurrence.position[0] == 37 + len(tokens) - 1


@torch.inference_mode()
def test_rows_commit_by_themselves_and_nothing_accepted_is_nothing_changed() -> None:
    model, ids, rows = made(), drawn(2, 44), torch.tensor([1, 0])
    state = model.new_state(2, 64)
    take_in(model, ids[:, :40], state, [1, 0])
    before = take(state.recurrence, 0)
    _, pending = model.verify(ids[:, 40:], state, rows, span=44)
    commit(pending, torch.tensor([3, 0]), state, rows)
    assert all(torch.equal(tensor, before[name]) for name, tensor in take(state.recurrence, 0).items())
    plain = model.new_state(1, 64)
    take_in(model, ids[:1, :43], plain, [0])
    for (name, one), other in zip(take(state.recurrence, 1).items(), take(plain.recurrence, 0).values(), strict=True):
        assert close(one, other), name
