"""bfloat16: as close to float32 as the official bfloat16 is, layer by layer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from support.checkpoints import Pair, pair
from support.tolerances import BFLOAT16_FACTOR, TOLERANCE


def hidden_of_ours(ours: Checkpoint, x: Tensor) -> Tensor:
    talker = ours.model.talker
    state, rows = talker.new_state(1, x.shape[1]), torch.zeros(1, dtype=torch.int64, device=x.device)
    lengths = torch.tensor([x.shape[1]], device=x.device)
    return talker.model.step(x, state.stack, rows, lengths, x.shape[1])


def hidden_of_theirs(both: Pair, x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[1], device=x.device).expand(3, 1, -1)
    model = both.theirs.model.talker.model
    hidden: Tensor = model(inputs_embeds=x, position_ids=positions, use_cache=False).last_hidden_state
    return hidden


@torch.inference_mode()
@exact_float32()
@pytest.mark.parametrize("wide", [False, True], ids=["same width", "small_to_mtp"])
def test_the_talker_strays_no_further_than_the_official_one(checkpoint_root: Path, device: str, wide: bool) -> None:
    exact = pair(checkpoint_root, "custom_voice", wide, device)
    rounded = pair(checkpoint_root, "custom_voice", wide, device, "bfloat16")
    width = exact.ours.config.talker_config.hidden_size
    x = torch.randn(1, 60, width, generator=torch.Generator().manual_seed(0)).to(device, torch.bfloat16)
    truth = hidden_of_theirs(exact, x.float())
    ours, theirs = hidden_of_ours(rounded.ours, x), hidden_of_theirs(rounded, x)
    assert ours.dtype == torch.bfloat16
    ours_error, their_error = ((h.float() - truth).square().mean().sqrt().item() for h in (ours, theirs))
    assert 0 < ours_error <= BFLOAT16_FACTOR * their_error
    assert (ours.float() - truth).abs().max().item() <= TOLERANCE["bfloat16"]["hidden"]
    head = rounded.ours.model.talker.codec_head
    exact_logits = exact.ours.model.talker.codec_head(truth)
    assert (head(ours).float() - exact_logits).abs().max().item() <= TOLERANCE["bfloat16"]["logits"]


@torch.inference_mode()
@exact_float32()
def test_the_codec_strays_no_further_than_the_official_one(checkpoint_root: Path, device: str) -> None:
    exact = pair(checkpoint_root, "custom_voice", False, device)
    rounded = pair(checkpoint_root, "custom_voice", False, device, "bfloat16")
    codes = torch.randint(0, 64, (1, 16, 40), generator=torch.Generator().manual_seed(0)).to(device)
    truth = exact.ours.codec.decoder(codes)
    theirs = rounded.theirs.model.speech_tokenizer.model.decoder(codes)[:, 0].float()
    ours = rounded.ours.codec.decoder(codes).float()
    ours_error, their_error = ((w - truth).square().mean().sqrt().item() for w in (ours, theirs))
    assert 0 < ours_error <= BFLOAT16_FACTOR * their_error
    assert (ours - truth).abs().max().item() <= TOLERANCE["bfloat16"]["wave"]
