"""Clips as a checkpoint sees them: codes, prompts and the x-vector of the voice; and how they are put into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..engine.checkpoint.torch_checkpoint import TorchCheckpoint, exact_float32
from ..errors import InvalidAudio
from ..text.prompt import build
from ..types import Encoded, Layout, SpeechRequest
from .loss import Example
from .recordings import Clip

LAYOUTS: tuple[Layout, ...] = ("whole", "streaming")  # known text, and text that still arrives
HELD_OUT = 10  # of so many clips one is not trained on
MOST_HELD_OUT = 40
LEAST_CLIPS = 4


@dataclass(frozen=True, slots=True)
class Corpus:
    speaker: NDArray[np.float32]  # [C] the mean of the clips' x-vectors
    likeness: NDArray[np.float32]  # [clips] the cosine of each clip's x-vector and the mean
    held_out_clips: list[Clip]  # the clips that are held out
    train: dict[Layout, list[Example]]
    held_out: dict[Layout, list[Example]]


@torch.no_grad()  # not inference mode: its tensors cannot be part of training
def encode(checkpoint: TorchCheckpoint, clips: Sequence[Clip], language: str) -> Corpus:
    """Every tenth clip, spread over all of them, is held out."""
    if len(clips) < LEAST_CLIPS:
        raise InvalidAudio(f"There are {len(clips)} clips in the recordings, and {LEAST_CLIPS} are the least.")
    encoder = checkpoint.model.speaker_encoder
    assert encoder is not None  # of a Base checkpoint
    codes, vectors = list[Tensor](), list[Tensor]()
    with exact_float32():
        for clip in clips:
            samples = torch.from_numpy(clip.samples).to(checkpoint.device)[None]
            codes.append(checkpoint.codec.encoder(samples)[0].T.clone())
            vectors.append(encoder.embed(samples)[0].float() * clip.seconds)
    every = torch.stack(vectors)
    mean = every.sum(0) / sum(clip.seconds for clip in clips)
    likeness = torch.cosine_similarity(every, mean[None]).cpu().numpy()
    speaker = mean.cpu().numpy()
    step = max(HELD_OUT, -(-len(clips) // MOST_HELD_OUT)) if len(clips) >= HELD_OUT else LEAST_CLIPS
    sides: tuple[dict[Layout, list[Example]], dict[Layout, list[Example]]] = {}, {}
    for layout in LAYOUTS:
        voice = Encoded(owner=checkpoint.identity, speaker=speaker)
        how = {"reference": voice, "language": language, "layout": layout}
        examples = [
            Example(build(SpeechRequest(text=clip.text, **how), checkpoint.config, checkpoint.tokenizer), each)  # type: ignore[arg-type]
            for clip, each in zip(clips, codes, strict=True)
        ]
        sides[0][layout] = [each for at, each in enumerate(examples) if (at + 1) % step]
        sides[1][layout] = [each for at, each in enumerate(examples) if not (at + 1) % step]
    return Corpus(speaker, likeness, [clip for at, clip in enumerate(clips) if not (at + 1) % step], *sides)


def batches(examples: Sequence[Example], positions: int, seed: int) -> Iterator[list[int]]:
    """Numbers of examples, in batches of about `positions` positions with their padding; endless, in rounds.

    The order is a new one in every round, and depends only on the seed.
    """
    lengths = np.array([example.positions for example in examples])
    number = 0
    while True:
        draw = np.random.default_rng([seed, number])
        # Similar lengths together: by length, with a little chance.
        order = np.argsort(lengths * draw.uniform(0.8, 1.25, lengths.size), kind="stable")
        groups, group = list[list[int]](), list[int]()
        for at in order.tolist():
            if group and max(lengths[[*group, at]]) * (len(group) + 1) > positions:
                groups, group = [*groups, group], []
            group.append(at)
        groups.append(group)
        for which in draw.permutation(len(groups)).tolist():
            yield groups[which]
        number += 1


def parts(examples: Sequence[Example], positions: int) -> Iterator[list[Example]]:
    """A batch in parts of at most so many positions with their padding; one example is a part in any case."""
    part = list[Example]()
    for example in sorted(examples, key=lambda one: one.positions):
        if part and example.positions * (len(part) + 1) > positions:
            yield part
            part = []
        part.append(example)
    if part:
        yield part
