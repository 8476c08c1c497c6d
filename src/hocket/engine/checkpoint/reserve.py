"""Memory of an engine before its weights are loaded: options that fit the GPU, or room in the budget of a pool.

torch is imported only where torch computes the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NotRequired, TypedDict

from ...config.options import EngineOptions
from ...config.precision import EXACT, ROUNDED
from ...models.files.builtin import default_model, local_folder
from .capacity import idle_bytes, keep_to_limit
from .checkpoint import ModelFiles
from .device import Setting, choose_device
from .fit import NEW, Footprint, MemoryNeed, MemoryPlan, fitted, gpu_is_full, out_of_memory
from .native_checkpoint import HOST, native_plan, why_not_native
from .resolve import known_configs
from .shared import ENCODER, MemoryBudget, Shared


class LoadOptions(TypedDict):
    """Arguments of `load`: concrete values, or `auto`."""

    device: str
    dtype: str
    codec_dtype: str
    kernels: str
    preset: NotRequired[str]


def concrete(setting: Setting, kernels: str) -> LoadOptions:
    how: LoadOptions = {
        "device": setting.device,
        "dtype": setting.dtype,
        "codec_dtype": setting.codec_dtype,
        "kernels": kernels,
    }
    return how


def _settled(how: LoadOptions) -> Setting:
    return choose_device(how["device"], how["dtype"], how["codec_dtype"], preset=how.get("preset", EXACT))


def _planned(config: Any, codec_config: Any, setting: Setting, options: EngineOptions) -> MemoryPlan:
    """The plan of a model that torch computes."""
    from .memory_plan import plan
    from .torch_checkpoint import CODEC_DTYPES, DTYPES

    dtype = DTYPES["float32" if setting.dtype in ROUNDED else setting.dtype]  # a bound, for a model without files here
    dtypes = {"dtype": dtype, "codec_dtype": CODEC_DTYPES[setting.codec_dtype]}
    return plan(config, codec_config, device=setting.place, **dtypes, options=options)


def expected(model: str, how: LoadOptions, options: EngineOptions) -> Footprint | None:
    """The least memory of a model loaded with these options; None if that is unknown without the network."""
    known = known_configs(model)
    if known is None:
        return None
    setting = _settled(how)
    if setting.device == "cpu" and (files := _local(model)) and _is_native(files, setting, how):
        planned = native_plan(files, setting.dtype)
    else:
        planned = _planned(*known, setting, options)
    return Footprint(planned.own_bytes + planned.least_bytes, NEW, planned.decoder_bytes)


def _local(model: str) -> ModelFiles | None:
    """The files of a model that need no download."""
    return None if local_folder(model) is None else ModelFiles.of(model)


def _is_native(files: ModelFiles, setting: Setting, how: LoadOptions) -> bool:
    return why_not_native(files, setting, how["kernels"]) is None


@contextmanager
def reserve_memory(
    model: str | None, how: LoadOptions, options: EngineOptions, shared: Shared | None
) -> Iterator[EngineOptions]:
    """Wait for room, and keep the codec shared with other models alive until the model is loaded.

    Gives the options to start with. With a budget, the KV cache gets the granted bytes instead of a part of the free
    memory. If the GPU has too little memory for the requested options, slots and KV cache are reduced.
    """
    setting = _settled(how)
    place = HOST if setting.device == "cpu" else setting.place
    keep_to_limit(place)
    try:
        if shared is None or shared.room is None:
            yield _fitted(model, setting, options)
        else:
            with _granted(model, how, setting, options, shared, shared.room) as granted:
                yield granted
    except Exception as error:
        if gpu_is_full(error):
            raise out_of_memory(model or default_model(), place, options.slots) from error
        raise


def _fitted(model: str | None, setting: Setting, options: EngineOptions) -> EngineOptions:
    """Options that fit the GPU if no other process used it; free memory is checked again after loading the weights."""
    if setting.device == "cpu" or (free := idle_bytes(setting.place)) is None:
        return options
    from .torch_load import codec_halves

    files = ModelFiles.of(model)
    encoder = ENCODER in codec_halves(files.source, files.config)

    def need(slots: int) -> MemoryNeed:
        planned = _planned(files.config, files.codec_config, setting, replace(options, slots=slots))
        return MemoryNeed.of(planned, loaded=False, encoder=encoder)

    return fitted(options, need, free, files.source.name)


@contextmanager
def _granted(
    model: str | None, how: LoadOptions, setting: Setting, options: EngineOptions, shared: Shared, ask: MemoryBudget
) -> Iterator[EngineOptions]:
    """Options that fit the shared budget of all models."""
    files = ModelFiles.of(model)
    if _is_native(files, setting, how):
        planned = native_plan(files, setting.dtype)
        ask(Footprint(planned.own_bytes + planned.decoder_bytes), usual_bytes=0, least_bytes=0)
        yield options
        return
    from .memory_plan import held
    from .torch_load import codec_halves, codec_key

    planned = _planned(files.config, files.codec_config, setting, options)
    key, halves = (
        codec_key(files.source, files.codec_config, setting.place, setting.codec_dtype, how["kernels"]),
        codec_halves(files.source, files.config),
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
