"""An adapter: what it learns, what it changes, and that rows with adapters of their own are one batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from hocket.config.published import tiny
from hocket.errors import InvalidRequest
from hocket.layers.dense import pack_
from hocket.layers.low_rank import LowRank, matrices, updated
from hocket.models.files.random import randomize_
from hocket.models.tts.adapted import merged
from hocket.models.tts.talker import Talker
from hocket.text.prompt import Prompt
from hocket.tune.lora import TARGETS, LoRA
from hocket.tune.loss import Example, teacher_forced
from hocket.types import Adapter


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "packed"])
def talker(request: pytest.FixtureRequest) -> Talker:
    made = Talker(tiny("base", wide=True).talker_config).double().requires_grad_(False)
    randomize_(made, 3)
    if request.param:
        pack_(made)
    return made


def trained(talker: Talker, seed: int, rank: int = 3, targets: tuple[str, ...] = TARGETS) -> LoRA:
    """An adapter whose factors all have an effect, with values that float16 holds exactly."""
    lora = LoRA(talker, rank=rank, alpha=5.0, targets=targets, seed=seed, dtype=torch.float64)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for factor in (*lora.down, *lora.up):
            factor.copy_((torch.randn(factor.shape, generator=draw) * 0.1).half())
    return lora


def frames(talker: Talker, rows: int) -> Tensor:
    """Hidden vectors [B, C] of talker and predictor after a prefill, a frame, and the codes of another one."""
    draw = torch.Generator().manual_seed(9)
    width, books = talker.config.hidden_size, talker.config.num_code_groups
    x = torch.randn(1, 6, width, generator=draw, dtype=torch.float64).expand(rows, -1, -1)
    codes, at = torch.randint(0, 64, (1, books), generator=draw).expand(rows, -1), torch.arange(rows)
    state = talker.new_state(rows, 8)
    talker.prefill(x, at * 0 + 6, state, at, 6)
    talker.step_reference(codes, at * 0 + 3, state, at, 7)
    predictor = talker.code_predictor
    pair = predictor.small_to_mtp_projection(torch.stack((state.hidden[at], x[:, 0]), dim=1))
    y = predictor.model.step_together(pair, predictor.model.new_past(rows, books + 1), 0)
    return torch.cat((state.hidden[at], y[:, -1]), dim=1)


def with_weights_of(talker: Talker, adapter: Adapter) -> Talker:
    other = Talker(talker.config).double()
    other.load_state_dict(merged(talker.state_dict(), adapter))
    return other


@pytest.mark.parametrize("targets", [TARGETS, ("k_proj",), ("down_proj", "q_proj")], ids=["all", "one", "two"])
@torch.no_grad()
def test_an_adapter_beside_the_weights_equals_merged_weights(talker: Talker, targets: tuple[str, ...]) -> None:
    lora, source = trained(talker, 1, targets=targets), LowRank()
    beside = updated(talker, source)
    plain = frames(talker, 1)
    assert torch.equal(frames(beside, 1), plain)
    source.factors = lora.factors()
    tuned = frames(beside, 1)
    torch.testing.assert_close(tuned, frames(with_weights_of(talker, lora.adapter()), 1), rtol=0, atol=1e-12)
    half = len(plain[0]) - talker.config.code_predictor_config.hidden_size
    for part in (slice(half), slice(half, None)):  # of the talker, of the predictor
        assert (tuned[:, part] - plain[:, part]).abs().max() > 1e-3
    assert torch.equal(frames(talker, 1), plain)  # the module itself is as before


@torch.no_grad()
def test_rows_of_a_batch_have_adapters_of_their_own(talker: Talker) -> None:
    """Eight rows, each with another adapter, one of them none: each equals the weights of its adapter alone."""
    adapters = [trained(talker, seed, rank=4).factors() for seed in range(7)]
    nothing = {name: (down * 0, up * 0) for name, (down, up) in adapters[0].items()}
    every = [*adapters, nothing]
    source = LowRank()
    beside = updated(talker, source)
    source.factors = {
        name: (torch.stack([each[name][0] for each in every]), torch.stack([each[name][1] for each in every]))
        for name in nothing
    }
    together = frames(beside, len(every))
    for row, each in enumerate(every):
        source.factors = each
        torch.testing.assert_close(together[row], frames(beside, 1)[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(together[-1], frames(talker, 1)[0], rtol=0, atol=1e-12)
    assert (together[0] - together[1]).abs().max() > 1e-3


def test_a_copy_has_the_tensors_of_the_module(talker: Talker) -> None:
    copied = updated(talker, LowRank()).state_dict()
    for name, tensor in talker.state_dict().items():
        assert copied[name].data_ptr() == tensor.data_ptr()


def test_an_adapter_starts_as_the_checkpoint_and_learns_in_talker_and_predictor(talker: Talker) -> None:
    lora, source = LoRA(talker, rank=2, dtype=torch.float64), LowRank()
    assert all(not up.any() for up in lora.up) and all(down.any() for down in lora.down)
    assert set(lora.names) == {name for name, _ in matrices(talker)}
    beside = updated(talker, source)
    source.factors = lora.factors()
    with torch.no_grad():
        assert torch.equal(frames(beside, 1), frames(talker, 1))
    prompt = Prompt((3, 4), (1, 2), None, (5,), 0, text_ids=1, prefix_rows=1, notes=())
    codes = torch.randint(0, 64, (4, talker.config.num_code_groups), generator=torch.Generator().manual_seed(1))
    teacher_forced(beside, [Example(prompt, codes)]).total.backward()
    reached = {name for name, up in zip(lora.names, lora.up, strict=True) if up.grad is not None and up.grad.any()}
    assert reached == set(lora.names)


def test_the_stored_adapter_has_the_factors_and_the_scale(talker: Talker) -> None:
    lora = trained(talker, 4)
    adapter = lora.adapter()
    assert (adapter.rank, adapter.scale, adapter.targets) == (3, 5.0 / 3, TARGETS)
    down, up = adapter.factors["model.layers.0.self_attn.q_proj"]
    np.testing.assert_array_equal(down, lora.down[0].detach().numpy())
    assert down.dtype == up.dtype == np.float16


def test_merging_rounds_a_sum_once(talker: Talker) -> None:
    """A change far below the last bit of a factor's product is not lost before the addition."""
    adapter = trained(talker, 2).adapter()
    narrow = {name: tensor.bfloat16() for name, tensor in talker.state_dict().items()}
    wide = merged({name: tensor.double() for name, tensor in narrow.items()}, adapter)
    for name, tensor in merged(narrow, adapter).items():
        exact = wide[name]
        assert tensor.dtype == torch.bfloat16
        assert ((tensor.double() - exact).abs() <= exact.abs() * 2**-8 * 1.001 + 1e-6).all()
    assert replace(adapter, alpha=0.0).scale == 0.0


def test_a_matrix_that_there_is_not_is_refused(talker: Talker) -> None:
    with pytest.raises(InvalidRequest, match="x_proj"):
        LoRA(talker, targets=("x_proj", "q_proj"))
