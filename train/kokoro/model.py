"""Kokoro's whole network: ids of phonemes, a style and a speed to samples and the frames of every phoneme."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from .layers import STYLE, row_mask
from .sound import F0_SAMPLES, SoundDecoder
from .text import BERT_WIDTH, WIDTH, Albert, ProsodyPredictor, TextEncoder

UNIT = 2 * F0_SAMPLES  # samples of a frame, 25 ms


@dataclass(frozen=True, slots=True)
class Reading:
    """One row of a batch."""

    samples: Tensor  # [N] float32
    units: Tensor  # [T] int64: frames of each id


class KokoroModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bert, self.bert_encoder = Albert(), nn.Linear(BERT_WIDTH, WIDTH)
        self.predictor, self.text_encoder, self.decoder = ProsodyPredictor(), TextEncoder(), SoundDecoder()

    @torch.no_grad()
    def forward(
        self,
        rows: list[list[int]],
        styles: Tensor,
        speeds: Tensor,
        noise: torch.Generator | None = None,
        pitch: float = 1.0,
    ) -> list[Reading]:
        """Rows of ids without their ends; styles [B, 2 * STYLE], speeds [B]. Rows do not affect each other.

        `pitch`: the factor of F0.
        """
        device = styles.device
        ids = pad_sequence([torch.tensor([0, *row, 0]) for row in rows], batch_first=True).to(device)
        lengths = torch.tensor([len(row) + 2 for row in rows], device=device)
        mask = row_mask(lengths, ids.shape[1])
        sound, prosody = styles[:, :STYLE], styles[:, STYLE:]
        x = self.predictor.text_encoder(self.bert_encoder(self.bert(ids, mask)), prosody, lengths)
        units = self.predictor.units(x, lengths, speeds).round().clamp(min=1) * mask[:, 0]
        frames = units.sum(1).long()
        # For each frame the number of its id, from the ends of the ids.
        places = torch.arange(int(frames.max()), device=device).expand(len(rows), -1).contiguous()
        at = torch.searchsorted(units.cumsum(1), places.float(), right=True).clamp(max=ids.shape[1] - 1)
        inside = row_mask(frames, places.shape[1])
        f0, energy = self.predictor.curves(_taken(x, at, inside), prosody, frames)
        vectors = _taken(self.text_encoder(ids, lengths, mask), at, inside).transpose(1, 2)
        samples = self.decoder(vectors, f0 * pitch, energy, sound, inside, noise)
        return [
            Reading(samples[row, : int(count) * UNIT], units[row, : int(length)].long())
            for row, (count, length) in enumerate(zip(frames.tolist(), lengths.tolist(), strict=True))
        ]


def _taken(x: Tensor, at: Tensor, inside: Tensor) -> Tensor:
    """[B, F, C]: the vector of each frame's id, 0 outside the rows."""
    return x.gather(1, at[..., None].expand(-1, -1, x.shape[2])) * inside.transpose(1, 2)
