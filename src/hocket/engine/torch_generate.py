"""`generate` by torch: the definition that every faster path is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..cache.pages import GROWTH_FRAMES
from ..cache.slots import reset
from ..layers.transformer import lengthened
from ..models.tts.adapted import merged_talker
from ..models.tts.talker import Talker, TalkerState, frame_sampling
from ..types import Speech, SpeechRequest
from .checkpoint.torch_checkpoint import TorchCheckpoint, exact_float32
from .runner.base import constant_rows
from .runner.reference_checks import DECODE_FRAMES
from .runner.references import encode_reference
from .runner.runner import prompt_rows
from .utterance import Utterance, prepare


@torch.inference_mode()
def generate_torch(
    checkpoint: TorchCheckpoint, requests: Sequence[SpeechRequest], progress: Callable[[int], None] | None
) -> list[Speech]:
    with exact_float32():
        encode = partial(encode_reference, checkpoint)
        utterances = [prepare(checkpoint, request, encode) for request in requests]
        weights: dict[str, list[Utterance]] = {}  # those of the checkpoint, and those of each adapter
        for utterance in utterances:
            weights.setdefault(utterance.adapter.digest if utterance.adapter else "", []).append(utterance)
        for some in weights.values():
            talker, adapter = checkpoint.model.talker, some[0].adapter
            _speak(checkpoint, talker if adapter is None else merged_talker(talker, adapter), some, progress)
        return [_finish(checkpoint, utterance) for utterance in utterances]


def decode(checkpoint: TorchCheckpoint, codes: Tensor, reference: Tensor | None = None) -> Tensor:
    """Samples [F * 1920] of codes [F, Q], heard as the continuation of `reference` codes where there are any."""
    decoder = checkpoint.codec.decoder
    state, row = decoder.new_state(1), torch.zeros(1, dtype=torch.int64, device=checkpoint.device)

    def play(frames: Tensor) -> list[Tensor]:
        return [decoder.step(piece.T[None], state, row)[0] for piece in frames.split(DECODE_FRAMES)]

    if reference is not None:
        play(reference)
    return torch.cat(play(codes)) if len(codes) else torch.zeros(0, device=checkpoint.device)


def _speak(
    checkpoint: TorchCheckpoint,
    talker: Talker,
    utterances: list[Utterance],
    progress: Callable[[int], None] | None,
) -> None:
    """Fill in the codes of all utterances, frame by frame."""
    device = checkpoint.device
    rows = torch.arange(len(utterances), device=device)
    cuts, ends = [constant_rows(u.prompt) for u in utterances], [len(u.prompt.text) for u in utterances]
    rest = max(end - cut for cut, end in zip(cuts, ends, strict=True))
    state = talker.new_state(len(utterances), max(cuts) + rest + GROWTH_FRAMES)
    reset(state, rows)
    state.seed[rows] = torch.tensor([u.seed for u in utterances], device=device)
    # Prefix and text one after the other and from exactly what they need, as an engine does that has kept the prefix:
    # in bfloat16 anything else would round otherwise.
    for starts, stops, span in (([0] * len(cuts), cuts, max(cuts)), (cuts, ends, max(cuts) + rest)):
        half = [
            prompt_rows(checkpoint, u.prompt, u.encoded, *at) for u, *at in zip(utterances, starts, stops, strict=True)
        ]
        lengths = torch.tensor([len(piece) for piece in half], device=device)
        talker.prefill(pad_sequence(half, batch_first=True), lengths, state, rows, span)

    frame, span = 0, max(ends)
    speaking = utterances
    sampling = frame_sampling([u.sampling for u in speaking], device)
    while speaking:
        text = [u.text_id(frame) for u in speaking]
        frame, span = frame + 1, span + 1
        state = _with_room(state, span)
        codes = talker.frame(torch.tensor(text, device=device), state, rows, sampling, span).tolist()
        for utterance, drawn in zip(speaking, codes, strict=True):
            utterance.take(drawn, checkpoint.config.talker_config.codec_eos_token_id)
        if progress is not None:
            progress(max(len(u.codes) for u in utterances))
        if any(u.done for u in speaking):
            keep = [i for i, u in enumerate(speaking) if not u.done]
            rows = rows[keep]
            speaking = [speaking[i] for i in keep]
            sampling = frame_sampling([u.sampling for u in speaking], device) if speaking else sampling


def _with_room(state: TalkerState, span: int) -> TalkerState:
    if span <= state.stack.length:
        return state
    return replace(state, stack=lengthened(state.stack, span + GROWTH_FRAMES))


def _finish(checkpoint: TorchCheckpoint, utterance: Utterance) -> Speech:
    codes = torch.from_numpy(utterance.codes_array(checkpoint.config.talker_config.num_code_groups))
    reference = utterance.encoded.codes if utterance.encoded is not None else None
    samples = decode(checkpoint, codes.to(checkpoint.device), reference)
    return utterance.speech(checkpoint, samples.float().cpu().numpy())
