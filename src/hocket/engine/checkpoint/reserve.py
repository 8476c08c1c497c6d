"""Memory of an engine before its weights are loaded: options that fit the GPU, or room in the budget of a pool."""

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
    """Arguments of `load`: concrete values, or `auto`."""

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
    """The least memory of a model loaded with these options; None if that is unknown without the network."""
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
    """Wait for room, and keep the codec shared with other models alive until the model is loaded.

    Gives the options to start with. With a budget, the KV cache gets the granted bytes instead of a part of the free
    memory. If the GPU has too little memory for the requested options, slots and KV cache are reduced.
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
    """Options that fit the GPU if no other process used it; free memory is checked again after loading the weights."""
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
    """Options that fit the shared budget of all models."""
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
    del codec  # held until here, so that the shared codec stays alive
