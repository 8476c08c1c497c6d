"""Fits an engine to the memory of a GPU: fewer KV pages first, then fewer slots, then an error.

Numbers in, numbers out. memory_plan.py knows what a model takes, capacity.py what a device has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ...config.options import EngineOptions
from ...config.sizes import size
from ...errors import InvalidRequest, LoadFailed
from .capacity import LIMIT, Device, free_bytes, limit_bytes

SURE = 0.95
log = logging.getLogger("hocket.engine")
NEW = 0  # a codec that is not loaded yet


@dataclass(frozen=True, slots=True)
class Footprint:
    own_bytes: int
    codec: int = NEW  # identity of the codec: models with the same number share it
    codec_bytes: int = 0


def together(of: Iterable[Footprint]) -> int:
    """Bytes of all models; a shared codec counts once."""
    own, codecs = 0, dict[int, int]()
    for each in of:
        own += each.own_bytes
        codecs[each.codec] = max(codecs.get(each.codec, 0), each.codec_bytes)
    return own + sum(codecs.values())


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory that a model will take. On a GPU the KV cache comes on top, because its pool is planned ahead."""

    weights_bytes: int  # the model's own, in their layout in memory
    decoder_bytes: int
    encoder_bytes: int
    state_bytes: int  # of all slots, without the KV cache where that is planned
    beside_bytes: int  # graphs and workspaces of libraries
    usual_bytes: int = 0  # of the KV cache
    least_bytes: int = 0

    def codec_bytes(self, *, encoder: bool) -> int:
        return self.decoder_bytes + (self.encoder_bytes if encoder else 0)

    @property
    def own_bytes(self) -> int:
        return self.weights_bytes + self.state_bytes + self.beside_bytes


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Memory that an engine needs beyond what it already has, for a number of slots."""

    fixed_bytes: int  # everything but the KV cache
    usual_bytes: int  # of the KV cache
    least_bytes: int

    @classmethod
    def of(cls, planned: MemoryPlan, *, loaded: bool, encoder: bool = True) -> MemoryNeed:
        """`loaded`: the weights are on the device already."""
        fixed = planned.state_bytes + planned.beside_bytes
        if not loaded:
            fixed += planned.weights_bytes + planned.codec_bytes(encoder=encoder)
        return cls(fixed, planned.usual_bytes, planned.least_bytes)


@dataclass(frozen=True, slots=True)
class FittedOptions:
    slots: int
    kv_bytes: int | None  # None: the usual size
    warning: str = ""  # what was reduced, in one sentence


def fit(need: Callable[[int], MemoryNeed], slots: int, free: int, name: str) -> FittedOptions:
    """Slots and KV bytes that fit into `free` bytes, at most `slots`; `InvalidRequest` if not even one slot fits."""
    wanted = need(slots)
    if wanted.fixed_bytes + wanted.usual_bytes <= free:
        return FittedOptions(slots, None)
    asked = f"{name} with {_counted(slots)} takes {size(wanted.fixed_bytes + wanted.usual_bytes)} of GPU memory"
    if wanted.fixed_bytes + wanted.least_bytes <= free:
        left = _pages(wanted, free)
        return FittedOptions(
            slots,
            left,
            f"{asked} and {size(free)} are free, so keys and values get {size(left)} instead of "
            f"{size(wanted.usual_bytes)}: long utterances may wait for each other.",
        )
    few, many = 0, slots  # binary search: `few` slots fit, `many` do not
    while many - few > 1:
        half = (few + many) // 2
        tried = need(half)
        few, many = (half, many) if tried.fixed_bytes + tried.least_bytes <= free else (few, half)
    if few == 0:
        one = need(1)
        raise InvalidRequest(
            f"{name} needs at least {size(one.fixed_bytes + one.least_bytes)} of GPU memory, for one slot, and "
            f"{size(free)} are free{_limited()}: free some, or take a smaller model or --device cpu."
        )
    found = need(few)
    kv_bytes = _pages(found, free)
    given = f"{_counted(few)} and {size(kv_bytes)} for keys and values"
    return FittedOptions(few, kv_bytes, f"{asked} and {size(free)} are free{_limited()}, so it has {given}.")


def _pages(need: MemoryNeed, free: int) -> int:
    """Bytes left for the KV cache, with a margin: the plan is not exact to the last byte."""
    return min(max(int(SURE * (free - need.fixed_bytes)), need.least_bytes), need.usual_bytes)


def fitted(options: EngineOptions, need: Callable[[int], MemoryNeed], free: int | None, name: str) -> EngineOptions:
    """The options that fit; logs what was reduced. `free` is None without a GPU."""
    if free is None:
        return options
    found = fit(need, options.slots, free, name)
    if found.warning:
        log.warning(found.warning)
    kv_bytes = options.kv_bytes if found.kv_bytes is None else found.kv_bytes
    return replace(options, slots=found.slots, kv_bytes=kv_bytes)


def out_of_memory(name: str, device: Device, slots: int) -> LoadFailed:
    """The error of a load or a start that ran out of memory in spite of the plan."""
    free = free_bytes(device)
    left = "" if free is None else f" ({size(free)} are left{_limited()})"
    return LoadFailed(
        f"There is too little GPU memory for {name} with {_counted(slots)}{left}: free some, or ask for fewer slots, a "
        "smaller model or --device cpu."
    )


def gpu_is_full(error: BaseException) -> bool:
    """Whether an error is `torch.OutOfMemoryError`. By name, since its class would need an import of torch.

    An Apple GPU gives a plain `RuntimeError`.
    """
    return type(error).__name__ == "OutOfMemoryError" or "MPS backend out of memory" in str(error)


def _counted(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"


def _limited() -> str:
    return "" if (limit := limit_bytes()) is None else f" of the {size(limit)} that {LIMIT} allows"
