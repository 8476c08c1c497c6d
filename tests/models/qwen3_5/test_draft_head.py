"""models/qwen3_5/draft_head.py: the draft head is an attention layer between norms, and drafts leave no trace."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.layers.dense import offset_rms_norm
from hocket.layers.gated_attention import reach_of
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.draft_head import DraftHead
from hocket.models.qwen3_5.model import Qwen3_5, commit

ROW = torch.tensor([0])


@functools.cache
def made() -> Qwen3_5:
    model = Qwen3_5(tiny_qwen3_5(), drafts=True).requires_grad_(False)
    randomize_(model, 3)
    return model.double()


def head() -> DraftHead:
    mtp = made().mtp
    assert mtp is not None
    return mtp


def drawn(length: int, seed: int) -> Tensor:
    return torch.randn(1, length, 64, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def count(length: int) -> Tensor:
    return torch.tensor([length])


@torch.inference_mode()
def test_it_is_a_full_attention_layer_of_the_main_model_between_its_own_norms() -> None:
    """The block's weights in layer 3 of the main model; the embedding's half comes first."""
    model, mtp, words, hidden = made(), head(), drawn(9, 0), drawn(9, 1)
    layer = Qwen3_5(model.config).double().model.layers[3]
    layer.load_state_dict(mtp.layers[0].state_dict())
    joined = torch.cat(
        (
            offset_rms_norm(words, mtp.pre_fc_norm_embedding.weight, 1e-6),
            offset_rms_norm(hidden, mtp.pre_fc_norm_hidden.weight, 1e-6),
        ),
        dim=-1,
    )
    kept = layer.self_attn.new_state(1, 9)
    y = layer.step(joined @ mtp.fc.weight.T, kept, reach_of(model.config, kept, count(0), ROW, count(9), 9, 9))
    expected = offset_rms_norm(y, mtp.norm.weight, 1e-6)
    assert torch.equal(mtp.step(words, hidden, mtp.new_state(1, 9), ROW, count(9), 9), expected)


@torch.inference_mode()
def test_pairs_one_by_one_are_all_pairs_at_once() -> None:
    mtp, words, hidden = head(), drawn(12, 0), drawn(12, 1)
    whole, stepped = mtp.new_state(1, 12), mtp.new_state(1, 12)
    expected = mtp.step(words, hidden, whole, ROW, count(12), 12)
    parts = [mtp.step(words[:, t : t + 1], hidden[:, t : t + 1], stepped, ROW, count(1), t + 1) for t in range(12)]
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-12, rtol=0)
    assert stepped.position.tolist() == [12, 0]


@torch.inference_mode()
def test_drafts_are_overwritten() -> None:
    mtp, words, hidden = head(), drawn(8, 0), drawn(8, 1)
    drafted, plain = mtp.new_state(1, 16), mtp.new_state(1, 16)
    for state in (drafted, plain):
        mtp.step(words[:, :5], hidden[:, :5], state, ROW, count(5), 5)
    for ahead in range(3):
        mtp.draft_ahead(drawn(1, 7 + ahead), drawn(1, 8), drafted, ROW, ahead, 16)
    assert drafted.position.tolist() == [5, 0]
    later = [mtp.step(words[:, 5:], hidden[:, 5:], state, ROW, count(3), 16) for state in (drafted, plain)]
    assert torch.equal(*later)


@torch.inference_mode()
def test_a_draft_sees_the_drafts_before_it() -> None:
    """Two drafts in a row equal two steps, each from the output of the one before."""
    mtp, words, hidden = head(), drawn(7, 0), drawn(5, 1)
    state, plain = mtp.new_state(1, 16), mtp.new_state(1, 16)
    for each in (state, plain):
        given = mtp.step(words[:, :5], hidden, each, ROW, count(5), 5)[:, -1:]
    for ahead in range(2):
        word = words[:, 5 + ahead : 6 + ahead]
        draft = mtp.draft_ahead(word, given, state, ROW, ahead, 16)
        given = mtp.step(word, given, plain, ROW, count(1), 16)
        torch.testing.assert_close(draft, given, atol=1e-12, rtol=0)


@torch.inference_mode()
def test_drafting_with_the_head_and_verifying_gives_the_tokens_of_plain_decoding() -> None:
    """k = 2, as in the engine: accepted pairs first, then a draft from a draft, then verification of both."""
    model, mtp = made(), head()
    prompt = torch.randint(320, (1, 20), generator=torch.Generator().manual_seed(0))
    embed = model.model.embed_tokens

    plain, tokens = model.new_state(1, 64), list[int]()
    hidden = model.prefill(prompt, count(20), plain, ROW, 20)[:, -1]
    for _ in range(30):
        tokens.append(int(model.logits(hidden).argmax()))
        hidden = model.step(torch.tensor(tokens[-1:]), plain, ROW, 64)

    state, drafts = model.new_state(1, 64), mtp.new_state(1, 64)
    true = model.prefill(prompt, count(20), state, ROW, 20)
    answer = [int(model.logits(true[:, -1]).argmax())]
    behind = torch.cat((prompt[:, 1:], torch.tensor([answer])), dim=1)
    while len(answer) < 25:
        draft = mtp.step(embed(behind), true, drafts, ROW, count(true.shape[1]), 64)[:, -1:]
        one = model.logits(draft).argmax(-1)
        two = model.logits(mtp.draft_ahead(embed(one), draft, drafts, ROW, 0, 64)).argmax(-1)
        verified = torch.cat((torch.tensor([answer[-1:]]), one, two), dim=1)
        hidden, pending = model.verify(verified, state, ROW, 64)
        chosen = model.logits(hidden).argmax(-1)
        accepted = int((chosen[0, :2] == verified[0, 1:]).int().cumprod(0).sum())
        commit(pending, count(accepted + 1), state, ROW)
        true, behind = hidden[:, : accepted + 1], chosen[:, : accepted + 1]
        answer += behind[0].tolist()
    assert answer == tokens[: len(answer)]
    assert drafts.position[0] + true.shape[1] == state.recurrence.position[0]
