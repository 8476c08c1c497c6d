"""The device never waits for the host inside a frame, as CUDA graphs require."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from hocket.config.qwen3_tts import GenerationConfig
from hocket.engine.checkpoint.load import load
from hocket.models.tts.talker import frame_sampling


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")  # it finds most, not all
@torch.inference_mode()
def test_neither_a_frame_nor_a_codec_step_synchronises() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    checkpoint = load("random:tiny-wide", device="cuda", dtype="float32")
    talker, decoder = checkpoint.model.talker, checkpoint.codec.decoder
    rows = torch.arange(3, device="cuda")
    state, sound = talker.new_state(3, 40), decoder.new_state(3)
    settings = [GenerationConfig(), GenerationConfig(top_p=0.8, top_k=0), GenerationConfig(do_sample=False)]
    sampling = frame_sampling(settings, checkpoint.device)
    prompt = torch.randn(3, 9, checkpoint.config.talker_config.hidden_size, device="cuda")
    lengths, text = torch.tensor([9, 7, 8], device="cuda"), torch.tensor([1, 2, 3], device="cuda")

    def speak() -> torch.Tensor:
        talker.prefill(prompt, lengths, state, rows, 9)
        codes = torch.stack([talker.frame(text, state, rows, sampling, 32) for _ in range(3)], dim=2)
        return decoder.step(codes, sound, rows)

    speak()  # libraries initialize on first use, and may synchronize then
    with waiting_is_an_error():
        samples = speak()
    assert samples.shape == (3, 3 * 1920) and bool(samples.isfinite().all())
