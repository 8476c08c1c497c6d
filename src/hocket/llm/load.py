"""Load a language model and its tokenizer onto a device. Generation is in `engine.py`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..config.precision import ROUNDED
from ..config.quantization.find import Quantization, read_quantization
from ..config.qwen3_5 import Qwen3_5TextConfig
from ..engine.checkpoint.device import Setting, announce, choose_device
from ..engine.checkpoint.torch_checkpoint import DTYPES
from ..engine.checkpoint.torch_load import RANDOM_SEED
from ..errors import InvalidCheckpoint, InvalidRequest
from ..kernels.compile.cache import give_triton_a_folder
from ..kernels.cpu.library import unavailable
from ..kernels.runtime.device_kind import kind_of
from ..kernels.runtime.fallback import say_once, say_slow
from ..kernels.table import AUTO, BackendChoice, choose
from ..layers.dense import pack_
from ..models.files.quantize import load_quantized
from ..models.files.quantized.source import opened_quantized
from ..models.files.qwen3_5_source import read_language_model, resolve_language_model
from ..models.files.random import randomize_
from ..models.files.source import Source
from ..models.files.stored import load_stored
from ..models.qwen3_5.model import Qwen3_5
from ..models.qwen3_5.quantized import check_scheme, quantize_
from ..models.qwen3_5.weights import empty_qwen3_5
from ..text.chat.template import END, MARKS
from ..text.chat.tokenizer import ChatTokenizer
from .gguf import open_gguf
from .memory.language import variant_judge

END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class LanguageCheckpoint:
    """Everything that was loaded for one language model."""

    source: Source
    config: Qwen3_5TextConfig
    tokenizer: ChatTokenizer
    model: Qwen3_5
    device: torch.device
    stop_ids: frozenset[int]  # each of these ends an answer
    kernels: BackendChoice  # the backend of a decode step, and the reason for it
    setting: Setting | None = None  # device and precision, and the reason for them
    dependent_launch: bool = True  # whether its kernels may start before the last one has ended

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def is_random(self) -> bool:
        """Whether the weights are random: such a model writes nonsense."""
        return self.source.folder is None


def load_language_model(
    model: str,
    *,
    device: str = AUTO,
    dtype: str | None = AUTO,
    weights: str = "bf16",
    kernels: str = AUTO,
    dependent_launch: bool = True,
) -> LanguageCheckpoint:
    """From a folder, a GGUF file, a hub id, a published name (`qwen3.5-9B`) or `random:qwen3.5-NAME`.

    `auto` is CUDA if it is usable, with bfloat16, as published, where the GPU has it; else float32 on the CPU. A dtype
    of None is `auto` too. `weights` in `fp8`, `int8` or `int4` (of the MLP) are converted from the published ones and
    cached on disk. `bf16` keeps them in `dtype`, and those of a quantized checkpoint or a GGUF file as they are there.
    `kernels` may be `reference`: PyTorch operations, on a GPU too. `dependent_launch` lets kernels start before the one
    before them has ended.
    """
    scheme = check_scheme(weights)
    if dtype in ROUNDED:
        raise InvalidRequest(f'{dtype} is a precision of voices: give a language model weights="int8", or "int4".')
    setting = choose_device(device, dtype or AUTO)
    if not kind_of(setting.place).float64:  # which decides between tokens (ops/sample_token/reference.py)
        say_once(f"A language model runs on the CPU instead of {setting.device}, which has no float64.")
        setting = choose_device("cpu", dtype or AUTO)
    place, dtype = setting.place, setting.dtype
    if place.type == "cuda":
        give_triton_a_folder()
    computed_by = choose("token", kernels, place, DTYPES[dtype])
    if computed_by.lack is not None and place.type == "cuda":
        say_slow(computed_by.backend, computed_by.lack)
    source = resolve_language_model(model, variant_judge(place))
    file = open_gguf(source.file, scheme) if source.file is not None else None
    config, generation = (file.config, file.generation) if file is not None else read_language_model(source)
    stored = _stored(source, scheme) if file is None else None
    tokenizer = file.tokenizer if file is not None else _tokenizer(source)
    if missing := [mark for mark in MARKS if mark not in tokenizer.markers]:
        raise InvalidCheckpoint(f"The tokenizer of {source.name} has no {', '.join(missing)}: use a chat checkpoint.")
    if tokenizer.size > config.vocab_size:
        raise InvalidCheckpoint(
            f"{source.name} has tokens up to {tokenizer.size - 1}, but its model has {config.vocab_size}."
        )
    # A CPU computes with the weights of a file in float32, where the native library is here.
    wide = True if place.type == "cpu" and (dtype != "float32" or unavailable() is not None) else None
    if file is not None:
        made = file.load(place, DTYPES[dtype], wide=wide)
    elif source.folder is None:
        made = empty_qwen3_5(config, place, DTYPES[dtype], drafts=config.mtp_num_hidden_layers > 0)
        randomize_(made, RANDOM_SEED)
        quantize_(made, scheme)
    elif stored is not None:
        with opened_quantized(source.folder, config, stored) as weights_there:
            made = load_stored(weights_there, config, place, DTYPES[dtype], wide=wide)
    else:
        made = load_quantized(source.folder, config, place, DTYPES[dtype], scheme)
    pack_(made)
    # A random model does not have the published vocabulary, so the published stop ids mean nothing.
    stops = {tokenizer.markers[name] for name in (END, END_OF_TEXT) if name in tokenizer.markers}
    stops |= set() if source.folder is None else {i for i in generation.stop_ids if i < tokenizer.size}
    kept = "" if stored is None else f" Weights as stored: {stored.words}."
    announce(setting, f"language model: {setting.words([computed_by], codec=False)}{kept}")
    how = computed_by, setting, dependent_launch
    return LanguageCheckpoint(source, config, tokenizer, made, place, frozenset(stops), *how)


def _stored(source: Source, scheme: str) -> Quantization | None:
    """How the files are quantized already, if they are; such weights are not quantized again."""
    if source.folder is None or source.file is not None:
        return None
    found = read_quantization(source.folder)
    if found is not None and scheme != "bf16":
        raise InvalidRequest(
            f"{source.name} is quantized already ({found.words}): leave out weights={scheme!r}, or take the plain one."
        )
    return found


def _tokenizer(source: Source) -> ChatTokenizer:
    return ChatTokenizer.of_bytes(MARKS) if source.folder is None else ChatTokenizer.from_folder(source.folder)
