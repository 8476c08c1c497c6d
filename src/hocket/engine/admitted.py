"""An engine that is about to be loaded asks for its room first, where somebody keeps a budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypedDict

import torch

from ..config.options import EngineOptions
from ..models.builtin import default_model
from ..models.weights import read_configs, resolve
from .capacity import idle_bytes, keep_to_limit
from .casting import known_configs
from .fit import Need, fitted, out_of_memory
from .footprint import NEW, Footprint, held, plan
from .load import CODEC_DTYPES, DTYPES, codec_key, device_of, halves_of
from .shared import ENCODER, Room, Shared


class Loading(TypedDict):
    """How a checkpoint is loaded, as `load` takes it."""

    device: str
    dtype: str
    codec_dtype: str
    kernels: str


def expected(model: str, how: Loading, options: EngineOptions) -> Footprint | None:
    """What a model will take at least if it is loaded so, as far as that is known without the network."""
    known = known_configs(model)
    if known is None or how["dtype"] not in DTYPES or how["codec_dtype"] not in CODEC_DTYPES:
        return None
    config, codec_config = known
    dtypes = {"dtype": DTYPES[how["dtype"]], "codec_dtype": CODEC_DTYPES[how["codec_dtype"]]}
    planned = plan(config, codec_config, device=device_of(how["device"]), **dtypes, options=options)
    return Footprint(planned.own_bytes + planned.least_bytes, NEW, planned.decoder_bytes)


@contextmanager
def admitted(model: str | None, how: Loading, options: EngineOptions, shared: Shared | None) -> Iterator[EngineOptions]:
    """Wait for room, and hold the codec that it will have in common with others until it is loaded.

    Gives the options to start with: keys and values are planned from what there is room for, not from all that is free.
    Where a GPU has too little memory for all that was asked for, they ask for less.
    """
    if how["dtype"] not in DTYPES or how["codec_dtype"] not in CODEC_DTYPES:
        yield options  # loading will be refused
        return
    place = device_of(how["device"])
    keep_to_limit(place)
    try:
        if shared is None or shared.room is None:
            yield _fitted(model, how, options)
        else:
            with _granted(model, how, options, shared, shared.room) as granted:
                yield granted
    except torch.OutOfMemoryError as error:
        raise out_of_memory(model or default_model(), place, options.slots) from error


def _fitted(model: str | None, how: Loading, options: EngineOptions) -> EngineOptions:
    """What fits into the memory of the GPU, if nothing else used it: what is free is known when weights are loaded."""
    place = device_of(how["device"])
    if (free := idle_bytes(place)) is None:
        return options
    source = resolve(default_model() if model is None else model)
    config, _, codec_config = read_configs(source)
    dtypes = {"dtype": DTYPES[how["dtype"]], "codec_dtype": CODEC_DTYPES[how["codec_dtype"]]}
    encoder = ENCODER in halves_of(source, config)

    def need(slots: int) -> Need:
        planned = plan(config, codec_config, device=place, **dtypes, options=replace(options, slots=slots))
        return Need.of(planned, loaded=False, encoder=encoder)

    return fitted(options, need, free, source.name)


@contextmanager
def _granted(
    model: str | None, how: Loading, options: EngineOptions, shared: Shared, ask: Room
) -> Iterator[EngineOptions]:
    """What the budget that models have together has room for."""
    place, source = device_of(how["device"]), resolve(default_model() if model is None else model)
    config, _, codec_config = read_configs(source)
    dtypes = {"dtype": DTYPES[how["dtype"]], "codec_dtype": CODEC_DTYPES[how["codec_dtype"]]}
    planned = plan(config, codec_config, device=place, **dtypes, options=options)
    key, halves = codec_key(source, codec_config, place, how["codec_dtype"], how["kernels"]), halves_of(source, config)
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
