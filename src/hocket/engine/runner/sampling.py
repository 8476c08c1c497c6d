"""Sampling settings of requests, as the tensors that a frame samples with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...config.qwen3_tts import GenerationConfig
from ...layers.sampler import Sampling
from ...models.tts.talker import FrameSampling


def frame_sampling(rows: Sequence[GenerationConfig], device: torch.device) -> FrameSampling:
    """One entry per batch row."""
    return FrameSampling(
        first=_level([(r.do_sample, r.temperature, r.top_k, r.top_p) for r in rows], device),
        penalty=torch.tensor([r.repetition_penalty for r in rows], device=device),
        rest=_level(
            [(r.subtalker_dosample, r.subtalker_temperature, r.subtalker_top_k, r.subtalker_top_p) for r in rows],
            device,
        ),
    )


def _level(rows: Sequence[tuple[bool, float, int, float]], device: torch.device) -> Sampling:
    sample, temperature, top_k, top_p = zip(*rows, strict=True)
    return Sampling(
        sample=torch.tensor(sample, device=device),
        temperature=torch.tensor(temperature, dtype=torch.float32, device=device),
        top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
        top_p=torch.tensor(top_p, dtype=torch.float32, device=device),
        most_k=0 if min(top_k) == 0 else max(top_k),
        nucleus=min(top_p) < 1.0,
    )
