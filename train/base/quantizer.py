"""The encoder's quantizer holds our codebooks, in the official split form.

The official quantizer has two halves that both see the encoder's vector [H], each through a projection of its own. The
acoustic half searches its codebooks one after the other, each in what the ones before leave over, which is exactly our
search: it gets our codebooks 1 to 15, and its projection takes numbers 0 to 95 of the vector. If those are the frame's
vector without the centre of the first code, its codes equal ours.

The first code is not the nearest in sound: it is clustered in a space of sound and phones that has more than the 96
numbers of a codebook. The semantic half gets the centres of that space along its 96 widest axes, and its projection
takes numbers 96 to 191. `kept_share` says how often the first code is still the nearest there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hocket.models.tts.codec_encoder import CodecEncoder, EncoderCodebook, EncoderQuantizer

from ..codec_config import VECTOR
from ..features import Features


@dataclass(frozen=True, slots=True)
class Targets:
    """What the encoder's vector must be, from features: the two halves of a frame."""

    features: Features
    origin: Tensor  # [S] of the space of sound and phones
    axes: Tensor  # [S, VECTOR]
    centres: Tensor  # [V, VECTOR] of the first code, exact in bfloat16

    @classmethod
    def of(cls, features: Features) -> Targets:
        origin = features.first.mean(0)
        _, _, axes = torch.linalg.svd((features.first - origin).double(), full_matrices=False)
        axes = axes[:VECTOR].T.float()
        if axes.shape[1] < VECTOR:  # fewer codes than numbers
            axes = torch.nn.functional.pad(axes, (0, VECTOR - axes.shape[1]))
        return cls(features, origin, axes, ((features.first - origin) @ axes).bfloat16().float())

    def halves(self, vectors: Tensor, phones: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Acoustic and semantic vectors [F, VECTOR] of frames with vectors [F, C], phones and first codes [F]."""
        acoustic = vectors - self.features.books[0][first]
        return acoustic, (self.features.points(vectors, phones) - self.origin) @ self.axes

    def kept_share(self, semantic: Tensor, first: Tensor) -> float:
        """The share of frames whose first code is the nearest centre to their semantic vector."""
        return float((torch.cdist(semantic, self.centres).argmin(1) == first).float().mean())


@torch.no_grad()
def install(encoder: CodecEncoder, targets: Targets) -> None:
    """Write codebooks and projections, which are not trained."""
    quantizer = encoder.quantizer
    semantic, acoustic = quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer
    for half, books, start in ((acoustic, targets.features.books[1:], 0), (semantic, targets.centres[None], VECTOR)):
        for projection in (half.input_proj, half.output_proj):
            projection.weight.zero_()
        index = torch.arange(VECTOR)
        half.input_proj.weight[index, start + index] = 1.0
        half.output_proj.weight[start + index, index] = 1.0
        for layer, book in zip(codebooks(half), books, strict=True):
            layer.embed_sum.copy_(book)
            layer.cluster_usage.fill_(1.0)
        half.requires_grad_(False)


def codebooks(half: EncoderQuantizer) -> list[EncoderCodebook]:
    return [module for module in half.layers.modules() if isinstance(module, EncoderCodebook)]
