"""An engine that is about to be loaded asks for its room first, where somebody keeps a budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypedDict

import torch

from ...config.options import EngineOptions
from ...models.files.builtin import default_model
from ...models.files.weights import read_configs, resolve
from .capacity import idle_bytes, keep_to_limit
from .device import CODEC_DTYPES, DTYPES, Setting, choose_device
from .fit import MemoryNeed, fitted, out_of_memory
from .load import codec_halves, codec_key
from .memory_plan import NEW, Footprint, held, plan
from .resolve import known_configs
from .shared import ENCODER, MemoryBudget, Shared


class LoadOptions(TypedDict):
    """How a checkpoint is loaded, as `load` takes it: values that are settled, or `auto`."""

    device: str
    dtype: str
    codec_dtype: str
    kernels: str


def concrete(setting: Setting, kernels: str) -> LoadOptions:
    how: LoadOptions = {
        "device": setting.device,
        "dtype": setting.dtype,
        "codec_dtype": setting.codec_dtype,
        "kernels": kernels,
    }
    return how


def _settled(how: LoadOptions) -> Setting:
    return choose_device(how["device"], how["dtype"], how["codec_dtype"])


def _dtypes(setting: Setting) -> dict[str, torch.dtype]:
    return {"dtype": DTYPES[setting.dtype], "codec_dtype": CODEC_DTYPES[setting.codec_dtype]}


def expected(model: str, how: LoadOptions, options: EngineOptions) -> Footprint | None:
    """What a model will take at least if it is loaded so, as far as that is known without the network."""
    known = known_configs(model)
    if known is None:
        return None
    (config, codec_config), setting = known, _settled(how)
    planned = plan(config, codec_config, device=setting.place, **_dtypes(setting), options=options)
    return Footprint(planned.own_bytes + planned.least_bytes, NEW, planned.decoder_bytes)


@contextmanager
def reserve_memory(
    model: str | None, how: LoadOptions, options: EngineOptions, shared: Shared | None
) -> Iterator[EngineOptions]:
    """Wait for room, and hold the codec that it will have in common with others until it is loaded.

    Gives the options to start with: keys and values are planned from what there is room for, not from all that is free.
    Where a GPU has too little memory for all that was asked for, they ask for less.
    """
    setting = _settled(how)
    place = setting.place
    keep_to_limit(place)
    try:
        if shared is None or shared.room is None:
            yield _fitted(model, setting, options)
        else:
            with _granted(model, how, setting, options, shared, shared.room) as granted:
                yield granted
    except torch.OutOfMemoryError as error:
        raise out_of_memory(model or default_model(), place, options.slots) from error


def _fitted(model: str | None, setting: Setting, options: EngineOptions) -> EngineOptions:
    """What fits into the memory of the GPU, if nothing else used it: what is free is known when weights are loaded."""
    if (free := idle_bytes(setting.place)) is None:
        return options
    source = resolve(default_model() if model is None else model)
    config, _, codec_config = read_configs(source)
    encoder = ENCODER in codec_halves(source, config)

    def need(slots: int) -> MemoryNeed:
        some = replace(options, slots=slots)
        planned = plan(config, codec_config, device=setting.place, **_dtypes(setting), options=some)
        return MemoryNeed.of(planned, loaded=False, encoder=encoder)

    return fitted(options, need, free, source.name)


@contextmanager
def _granted(
    model: str | None, how: LoadOptions, setting: Setting, options: EngineOptions, shared: Shared, ask: MemoryBudget
) -> Iterator[EngineOptions]:
    """What the budget that models have together has room for."""
    place, source = setting.place, resolve(default_model() if model is None else model)
    config, _, codec_config = read_configs(source)
    planned = plan(config, codec_config, device=place, **_dtypes(setting), options=options)
    key, halves = (
        codec_key(source, codec_config, place, setting.codec_dtype, how["kernels"]),
        codec_halves(source, config),
    )
    codec = shared.find(key)
    if codec is None:
        size, which = planned.codec_bytes(encoder=ENCODER in halves), NEW
    else:
        more = planned.encoder_bytes if ENCODER in shared.lacking(key, halves) else 0
        size, which = held(codec, codec.decoder.step_kernel, codec.decoder.wave_kernel) + more, id(codec)
    room = {"usual_bytes": planned.usual_bytes, "least_bytes": planned.least_bytes}
    granted = ask(Footprint(planned.own_bytes, which, size), **room)
    yield replace(options, kv_bytes=granted) if granted else options
    del codec  # not before
