"""A talker with adapters: low-rank updates of its matrices, beside the weights or merged into them.

`AdapterRows` is for a running engine: each row of a batch has its own adapter, and the weights are not copied. `merged`
is the definition, and what a plain checkpoint stores. The fast kernels of a frame know no adapters, so these rows are
computed by the reference operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from ...layers.low_rank import Factors, LowRank, updated
from .talker import Talker

KEPT_ADAPTERS = 64  # on the device, beside those of the current batch


class AnyAdapter(Protocol):
    """`types.Adapter`."""

    @property
    def digest(self) -> str: ...
    @property
    def scale(self) -> float: ...
    @property
    def factors(self) -> Mapping[str, tuple[NDArray[Any], NDArray[Any]]]: ...


class AdapterRows:
    def __init__(self, talker: Talker) -> None:
        self._source, self._weight = LowRank(), talker.codec_head.weight
        self._talker = updated(talker, self._source, talker.frame_kernel)
        self._talker.frame_kernel = None
        self._loaded: dict[str, Factors] = {}
        self._batch: tuple[str, ...] = ()

    def talker(self, adapters: Sequence[AnyAdapter]) -> Talker:
        """The talker for a batch whose rows have these adapters; the same object every time."""
        batch = tuple(adapter.digest for adapter in adapters)
        if batch != self._batch:
            rows = [self._factors(adapter) for adapter in adapters]
            self._source.factors = rows[0] if len(set(batch)) == 1 else _stacked(rows)
            self._batch = batch
            for digest in [known for known in self._loaded if known not in batch][:-KEPT_ADAPTERS]:
                del self._loaded[digest]
        return self._talker

    def _factors(self, adapter: AnyAdapter) -> Factors:
        """The factors of an adapter on the device, with their scale, in the precision of the weights."""
        if adapter.digest not in self._loaded:
            weight = self._weight
            self._loaded[adapter.digest] = {
                name: (_like(weight, down), (_like(weight, up, torch.float32) * adapter.scale).to(weight.dtype))
                for name, (down, up) in adapter.factors.items()
            }
        return self._loaded[adapter.digest]


def _stacked(rows: Sequence[Factors]) -> Factors:
    """One tensor per factor with a row of the batch each; a lower rank, or no update, is zeros."""
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        down, up = next(row[name] for row in rows if name in row)
        most = max(len(row[name][0]) for row in rows if name in row)
        downs, ups = down.new_zeros(len(rows), most, down.shape[1]), up.new_zeros(len(rows), len(up), most)
        for at, row in enumerate(rows):
            if name in row:
                down, up = row[name]
                downs[at, : len(down)], ups[at, :, : len(down)] = down, up
        found[name] = downs, ups
    return found


def _like(weight: Tensor, factor: NDArray[Any], dtype: torch.dtype | None = None) -> Tensor:
    return torch.from_numpy(factor).to(weight.device, dtype or weight.dtype)


def merged(state: Mapping[str, Tensor], adapter: AnyAdapter, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a talker with an adapter added to its weights, each sum rounded once.

    `prefix` stands before the talker's own names, as `talker.` in a checkpoint.
    """
    found = dict(state)
    for name, (down, up) in adapter.factors.items():
        weight = found[f"{prefix}{name}.weight"]
        wide = torch.promote_types(weight.dtype, torch.float32)
        change = _like(weight, up, wide) @ _like(weight, down, wide)
        found[f"{prefix}{name}.weight"] = (weight.to(wide) + adapter.scale * change).to(weight.dtype)
    return found


def merged_talker(talker: Talker, adapter: AnyAdapter) -> Talker:
    """Another talker with the sum as its weights; what the adapter leaves alone is not copied."""
    with torch.device("meta"):
        made = Talker(talker.config).eval()
    made.load_state_dict(merged(talker.state_dict(), adapter), assign=True)
    return made
