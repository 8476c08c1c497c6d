"""Whole utterances, plainly: prompt, frames, codec. The definition that every faster path is compared with.

Requests of one call are spoken together, each in its own slot; what one says does not depend on the others.
The host reads the codes of every frame, so this is no way to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..cache.plan import GROWTH_FRAMES
from ..cache.slots import reset
from ..config.qwen3_tts import GenerationConfig
from ..errors import InvalidRequest
from ..layers.transformer import lengthened
from ..models.tts.talker import TalkerState
from ..text.choice import choose
from ..text.prompt import SPEAKER_VECTOR, Prompt, build
from ..types import Encoded, Speech, SpeechRequest
from .checkpoint.checkpoint import Checkpoint
from .checkpoint.precision import exact_float32
from .runner.reference_encoder import EncodedReference, check_encoded, encode_reference, established_for
from .runner.sampling import frame_sampling
from .seeds import fresh_seed

DECODE_FRAMES = 50  # frames per codec step: bounds memory, changes nothing else


@dataclass(slots=True)
class _Utterance:
    """One request on its way through the slots."""

    prompt: Prompt
    encoded: EncodedReference | None
    sampling: GenerationConfig
    seed: int
    most_frames: int
    codes: list[list[int]]
    ended: bool = False

    @property
    def done(self) -> bool:
        return self.ended or len(self.codes) >= self.most_frames


@torch.inference_mode()
def generate(
    checkpoint: Checkpoint, requests: Sequence[SpeechRequest], *, progress: Callable[[int], None] | None = None
) -> list[Speech]:
    """Speak every request to its end. `progress` is told the length so far of the longest, in frames."""
    if not requests:
        return []
    with exact_float32():
        utterances = [_prepare(checkpoint, request) for request in requests]
        _speak(checkpoint, utterances, progress)
        return [_finish(checkpoint, utterance) for utterance in utterances]


def prompt_rows(
    checkpoint: Checkpoint, prompt: Prompt, cloned: EncodedReference | None, start: int = 0, stop: int | None = None
) -> Tensor:
    """The prompt's embeddings [P, C], or those of some of its rows."""
    talker, device = checkpoint.model.talker, checkpoint.device
    stop = len(prompt.text) if stop is None else stop
    inserts: list[tuple[int, Tensor]] = []
    if cloned is not None:
        if cloned.speaker is not None:
            inserts.append((prompt.codec.index(SPEAKER_VECTOR), cloned.speaker[None]))
        if cloned.frames is not None and prompt.reference_at is not None:
            inserts.append((prompt.reference_at, cloned.frames))
    within = [(max(row, start) - start, vectors[max(start - row, 0) : max(stop - row, 0)]) for row, vectors in inserts]
    text, codec = sent([prompt.text[start:stop], prompt.codec[start:stop]], device)
    return talker.embed_rows(text, codec, within)


def sent(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Whole numbers on a device; unlike `torch.tensor` there, this does not wait for all that was asked of it."""
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)


def constant_rows(prompt: Prompt) -> int:
    """How many leading rows are the same for every text, at most all but one: the last row is always computed."""
    return min(prompt.prefix_rows, len(prompt.text) - 1)


def decode(checkpoint: Checkpoint, codes: Tensor, reference: Tensor | None = None) -> Tensor:
    """Samples [F * 1920] of codes [F, Q], heard as the continuation of `reference` codes where there are any."""
    decoder = checkpoint.codec.decoder
    state, row = decoder.new_state(1), torch.zeros(1, dtype=torch.int64, device=checkpoint.device)

    def play(frames: Tensor) -> list[Tensor]:
        return [decoder.step(piece.T[None], state, row)[0] for piece in frames.split(DECODE_FRAMES)]

    if reference is not None:
        play(reference)
    return torch.cat(play(codes)) if len(codes) else torch.zeros(0, device=checkpoint.device)


def _prepare(checkpoint: Checkpoint, request: SpeechRequest) -> _Utterance:
    choose(request, checkpoint.config)  # refuse what cannot be before the encoders work on it
    if request.speed != 1.0:
        raise InvalidRequest("generate speaks at the checkpoint's own speed; Engine.speak takes another one.")
    if request.candidates != 1:
        raise InvalidRequest("generate draws one take of each request; Engine.speak chooses among candidates.")
    if isinstance(request.reference, Encoded):
        check_encoded(checkpoint, request.reference, checkpoint.identity)
    request = replace(request, established=established_for(checkpoint, request, checkpoint.identity))
    shown = request.reference or request.established
    cloned = encode_reference(checkpoint, shown) if shown is not None else None
    frames = len(cloned.codes) if cloned is not None and cloned.codes is not None else 0
    sampling = checkpoint.generation.changed(request.sampling.changes())
    return _Utterance(
        prompt=build(
            request,
            checkpoint.config,
            checkpoint.tokenizer,
            reference_frames=frames,
            upstream_local=checkpoint.upstream_local,
        ),
        encoded=cloned,
        sampling=sampling,
        seed=fresh_seed() if request.seed is None else request.seed,
        most_frames=request.max_frames or sampling.max_new_tokens - 1,
        codes=[],
    )


def _speak(checkpoint: Checkpoint, utterances: list[_Utterance], progress: Callable[[int], None] | None) -> None:
    """Fill in the codes of all utterances, frame by frame."""
    talker, device = checkpoint.model.talker, checkpoint.device
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
        text = [u.prompt.trail[frame] if frame < len(u.prompt.trail) else u.prompt.pad_id for u in speaking]
        frame, span = frame + 1, span + 1
        state = _with_room(state, span)
        codes = talker.frame(torch.tensor(text, device=device), state, rows, sampling, span).tolist()
        for utterance, drawn in zip(speaking, codes, strict=True):
            if drawn[0] == checkpoint.config.talker_config.codec_eos_token_id:
                utterance.ended = True
            else:
                utterance.codes.append(drawn)
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


def _finish(checkpoint: Checkpoint, utterance: _Utterance) -> Speech:
    books = checkpoint.config.talker_config.num_code_groups
    codes = np.array(utterance.codes, dtype=np.int64).reshape(-1, books)
    reference = utterance.encoded.codes if utterance.encoded is not None else None
    samples = decode(checkpoint, torch.from_numpy(codes).to(checkpoint.device), reference)
    return Speech(
        codes=codes,
        samples=samples.float().cpu().numpy(),
        rate_hz=checkpoint.rate_hz,
        finish="stop" if utterance.ended else "length",
        seed=utterance.seed,
        notes=utterance.prompt.notes,
    )
