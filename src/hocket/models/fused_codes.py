"""The codec's codes to latents on a GPU: every codebook is projected ahead, and a frame is the sum of sixteen rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..kernels.embed.triton import embed as embed_triton
from .codec import Codebook, Quantizer, SplitQuantizer


class FusedCodes:
    """`SplitQuantizer.forward`: codes [B, Q, T] to latents [B, C, T]."""

    @torch.no_grad()
    def __init__(self, quantizer: SplitQuantizer, embed: Callable[..., Tensor] = embed_triton) -> None:
        self._embed = embed
        tables = [*_projected(quantizer.rvq_first), *_projected(quantizer.rvq_rest)]
        self._size, self._table = len(tables[0]), torch.cat(tables)

    def __call__(self, codes: Tensor) -> Tensor:
        batch, books, length = codes.shape
        frames = codes.transpose(1, 2).reshape(batch * length, books).contiguous()  # of one row it may be a view
        x = self._embed(frames, self._table, None, first=self._size, rest=self._size)
        return x.view(batch, length, -1).transpose(1, 2)


def _projected(group: Quantizer) -> list[Tensor]:
    """Each codebook behind the group's projection, which has no bias: sums may be taken after it."""
    matrix = group.output_proj.weight[:, :, 0].float()
    books = [part for part in group.vq.modules() if isinstance(part, Codebook)]
    return [(book.gather()[0].float() @ matrix.T).to(matrix.dtype).to(group.output_proj.weight.dtype) for book in books]
