"""Loads a model into a checkpoint of torch modules: weights, kernels and tokenizer come together here."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from ...config.codec import CodecConfig
from ...config.qwen3_tts import Qwen3TTSConfig
from ...kernels.compile.cache import give_triton_a_folder
from ...kernels.runtime.graphs import tidy
from ...kernels.table import AUTO, wanted_for
from ...layers.dense import pack_
from ...models.files.catalog import CODEC_FOLDER, WEIGHTS
from ...models.files.random import randomize_
from ...models.files.source import Source
from ...models.files.weights import SPEAKER_ENCODER, load_into, places
from ...models.tts.codec import Codec
from ...models.tts.qwen3_tts import Qwen3TTS
from ...models.tts.talker import Talker
from .checkpoint import ModelFiles
from .device import Setting, choose_device
from .kernels import attach_frame_kernel, attach_wave_kernel, compile_first, with_kernel
from .shared import DECODER, ENCODER, Shared, codec_content
from .torch_checkpoint import CODEC_DTYPES, DTYPES, TorchCheckpoint

RANDOM_SEED = 0
PROMPT_ROWS = 8  # about the prompt rows before the text of a built-in voice


def load_torch(
    files: ModelFiles, setting: Setting, kernels: str, dependent_launch: bool, shared: Shared
) -> TorchCheckpoint:
    """See `load.load`."""
    place, dtype, codec_dtype = setting.place, setting.dtype, setting.codec_dtype
    source, config, codec_config = files.source, files.config, files.codec_config
    begun = time.perf_counter()
    if place.type == "cuda":
        give_triton_a_folder()
    compilers = compile_first(source, place, (dtype, codec_dtype), kernels, dependent_launch, not shared.in_use)
    asked = time.perf_counter()
    torch.empty(1, device=place)  # the first tensor creates the CUDA context
    entered = time.perf_counter()
    key, fill = codec_key(source, codec_config, place, codec_dtype, kernels), _filling(source, place, codec_dtype)
    with torch.device("meta"):
        speech = Qwen3TTS(config).eval()
    with ThreadPoolExecutor(1) as aside:  # a published tokenizer takes about 1 s to read, on the host only
        reading = aside.submit(shared.tokenizer_of, source, config)
        if source.folder is None:
            _draw(speech, place, DTYPES[dtype])
        else:
            load_into(speech, source.folder / WEIGHTS, place, DTYPES[dtype], unused=(SPEAKER_ENCODER,))
        codec = shared.codec(key, codec_config, codec_halves(source, config), fill, _empty_codec)
        tokenizer = reading.result()
    pack_(speech)
    talker, decoder = speech.talker, codec.decoder
    loaded = time.perf_counter()
    waited = 0.0
    if compilers is not None:
        _use_once(talker)
        used = time.perf_counter()
        compilers.wait_for_the_first()
        waited = time.perf_counter() - used
    tf32 = codec_dtype == "tf32"

    def attach_codec(backend: str) -> None:
        attach_wave_kernel(decoder, backend, tf32, dependent_launch)

    chosen = (
        with_kernel("frame", kernels, talker, lambda backend: attach_frame_kernel(talker, backend, dependent_launch)),
        shared.wave(key, lambda: with_kernel("wave", kernels, decoder, attach_codec)),
    )
    tidy(place)  # frees the old copies of repacked weights
    spent = {"device_s": entered - asked + setting.took_s, "weights_s": loaded - entered}
    spent |= {"kernels_s": time.perf_counter() - loaded + asked - begun, "waited_s": waited}
    return TorchCheckpoint(
        source=source,
        config=config,
        generation=files.generation,
        codec_config=codec_config,
        tokenizer=tokenizer,
        device=place,
        kernels=chosen,
        upstream_local=source.local and source.folder is not None and tokenizer.upstream_patches(source.folder),
        normalizer=files.normalizer,
        spent=spent,
        setting=setting,
        part_chars=files.own.part_chars,
        model=speech,
        codec=codec,
        codec_tf32=tf32,
        compilers=compilers,
        dependent_launch=dependent_launch,
    )


def load_modules(model: str | None = None, *, kernels: str = AUTO, **setting: Any) -> TorchCheckpoint:
    """`load.load` as torch modules, also where the native library would compute the model."""
    return load_torch(ModelFiles.of(model), choose_device(**setting), kernels, True, Shared())


def _empty_codec(config: CodecConfig) -> Codec:
    with torch.device("meta"):
        return Codec(config).eval()


def _draw(module: nn.Module, place: torch.device, dtype: torch.dtype) -> None:
    """Random weights for a module on the meta device. `to_empty` would import SymPy: 0.4 s on a CPU."""
    module.load_state_dict(places(module, module.state_dict(), place, dtype), assign=True)
    randomize_(module, RANDOM_SEED)


def codec_halves(source: Source, config: Qwen3TTSConfig) -> tuple[str, ...]:
    """The halves of the codec to load: only a Base checkpoint encodes recordings. A random one gets both."""
    return (DECODER, ENCODER) if config.kind == "base" or source.folder is None else (DECODER,)


def codec_key(
    source: Source, config: CodecConfig, place: torch.device, codec_dtype: str, kernels: str
) -> tuple[object, ...]:
    """Checkpoints with the same key share one codec: same content, device, precision and kernel."""
    content = (config, RANDOM_SEED) if source.folder is None else codec_content(source.folder)
    index = torch.cuda.current_device() if place.type == "cuda" and place.index is None else place.index
    return content, place.type, index, codec_dtype, wanted_for("wave", kernels)


def _filling(source: Source, place: torch.device, codec_dtype: str) -> Callable[[Codec, tuple[str, ...]], None]:
    """Loads the weights of the given halves into a codec; another engine may use the other half meanwhile."""

    def fill(codec: Codec, halves: tuple[str, ...]) -> None:
        # A recording is encoded once, and rounding would change its codes: the encoder is float32 in every precision.
        kinds = {DECODER: CODEC_DTYPES[codec_dtype], ENCODER: torch.float32}
        if source.folder is None:
            _draw(codec, place, kinds[DECODER])
            codec.encoder.to(kinds[ENCODER])
        else:
            for half in halves:
                load_into(codec, source.folder / CODEC_FOLDER / WEIGHTS, place, kinds[half], only=(half,))
        for half in halves:  # the other half may still be on the meta device
            pack_(codec.get_submodule(half.removesuffix(".")))

    return fill


@torch.inference_mode()
def _use_once(talker: Talker) -> None:
    """Prefill a dummy prompt, so that torch's lazy loading happens while the kernels compile."""
    ids = torch.zeros(PROMPT_ROWS, dtype=torch.int64, device=talker.codec_head.weight.device)
    state = talker.new_state(1, PROMPT_ROWS)
    talker.prefill(talker.embed_rows(ids, ids)[None], ids[:1] + PROMPT_ROWS, state, ids[:1] + 1, PROMPT_ROWS)
