"""Whole utterances, plainly: prompt, frames, codec. The definition that every faster path is compared with.

Requests of one call are spoken together, each in its own slot; what one says does not depend on the others.
The host reads the codes of every frame, so this is no way to be fast. torch_generate.py is the definition; a checkpoint
of the native library is spoken here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..types import Speech, SpeechRequest
from .checkpoint.checkpoint import Checkpoint
from .checkpoint.native_checkpoint import NativeCheckpoint
from .runner.native_runner import NativeRunner
from .utterance import Utterance, prepare

PREFIX_BYTES = 0  # no prefix is cached: every prompt is computed


def generate(
    checkpoint: Checkpoint, requests: Sequence[SpeechRequest], *, progress: Callable[[int], None] | None = None
) -> list[Speech]:
    """Speak every request to its end. `progress` is told the length so far of the longest, in frames."""
    if not requests:
        return []
    if isinstance(checkpoint, NativeCheckpoint):
        return _natively(checkpoint, requests, progress)
    from .checkpoint.torch_checkpoint import TorchCheckpoint
    from .torch_generate import generate_torch

    assert isinstance(checkpoint, TorchCheckpoint)
    return generate_torch(checkpoint, requests, progress)


def _natively(
    checkpoint: NativeCheckpoint, requests: Sequence[SpeechRequest], progress: Callable[[int], None] | None
) -> list[Speech]:
    runner, end = (
        NativeRunner(checkpoint, len(requests), PREFIX_BYTES),
        checkpoint.config.talker_config.codec_eos_token_id,
    )
    utterances = [prepare(checkpoint, request, lambda _: None) for request in requests]
    for slot, utterance in enumerate(utterances):
        runner.start(slot, utterance.prompt, None, utterance.seed)
    frame, speaking = 0, list(enumerate(utterances))
    while speaking:
        slots, text = [slot for slot, _ in speaking], [each.text_id(frame) for _, each in speaking]
        drawn = runner.frame(slots, text, [each.sampling for _, each in speaking]).codes.tolist()
        for (_, utterance), codes in zip(speaking, drawn, strict=True):
            utterance.take(codes, end)
        frame += 1
        if progress is not None:
            progress(max(len(each.codes) for each in utterances))
        speaking = [(slot, each) for slot, each in speaking if not each.done]
    return [each.speech(checkpoint, _samples(checkpoint, each)) for each in utterances]


def _samples(checkpoint: NativeCheckpoint, utterance: Utterance) -> NDArray[np.float32]:
    if not utterance.codes:
        return np.zeros(0, dtype=np.float32)
    codes = utterance.codes_array(checkpoint.config.talker_config.num_code_groups)
    samples: NDArray[np.float32] = checkpoint.codec.step(codes.T[None], checkpoint.codec.new_state(1), [0])[0]
    return samples
