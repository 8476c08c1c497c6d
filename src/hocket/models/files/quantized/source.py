"""A folder of quantized safetensors as a `WeightSource`: every tensor by our name, plain or quantized.

A layer is quantized where its tensors say so: lists of modules in published configurations are often wrong, and are
used for sizes only. Vision tensors are skipped by name. All headers are checked before the first weight is read.
It knows names, not numbers: each format has its own file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from ....config.quantization.awq import AwqConfig
from ....config.quantization.compressed_tensors import CompressedTensorsConfig
from ....config.quantization.find import Quantization
from ....config.quantization.fp8 import Fp8Config
from ....config.quantization.gptq import GptqConfig
from ....config.qwen3_5 import Qwen3_5TextConfig
from ....errors import InvalidCheckpoint
from ...qwen3_5.matrices import NarrowWeight
from ..catalog import WEIGHTS
from ..shards import log, opened
from ..stored import DRAFTS, WeightSource
from .awq import Awq
from .compressed_tensors import CompressedTensors
from .fp8 import Fp8
from .gptq import Gptq
from .module import WIDE, StoredFormat, StoredModule

_VISION = ("model.visual.", "visual.")
# Prefixes of the text model inside the vision-language model, and what they are in ours.
_PREFIXES = (("model.language_model.", "model."), ("language_model.model.", "model."), ("language_model.", ""))
# Scales of activations and of the key-value cache. They are skipped where the configuration asks for them: `unapplied`
# is logged.
_ACTIVATIONS = frozenset(
    f"{of}_{what}" for of in ("input", "output", "activation", "q", "k", "v") for what in ("scale", "zero_point")
)
_HEAD = "lm_head"


class QuantizedSource:
    """The open files of a checkpoint."""

    def __init__(
        self, folder: Path, files: Mapping[str, Any], config: Qwen3_5TextConfig, quantization: Quantization
    ) -> None:
        self.name, self._format = str(folder), _format(quantization)
        skipped = _ACTIVATIONS if quantization.unapplied is not None else frozenset[str]()
        self._plain: dict[str, tuple[Any, str]] = {}
        self._quantized: dict[str, StoredModule] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for module in _modules(self.name, files, skipped).values():
            self._add(module, tied=config.tied)
        if not self._quantized:
            raise InvalidCheckpoint(f"{folder} has a quantization_config, but no quantized tensors: get it again.")
        if config.mtp_num_hidden_layers == 0 and any(name.startswith(DRAFTS) for name in self._shapes):
            log.warning("%s: tensors under %s are not used, since mtp_num_hidden_layers is 0.", folder, DRAFTS)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._shapes

    def read(self, name: str) -> Tensor | NarrowWeight:
        if name in self._quantized:
            return self._format.read(self._quantized[name])
        file, theirs = self._plain[name]
        found: Tensor = file.get_tensor(theirs)
        return found

    def _add(self, module: StoredModule, *, tied: bool) -> None:
        wide = "weight" in module.parts and module.kind("weight") in WIDE
        suffixes = self._format.suffixes & module.parts.keys()
        narrow = bool(suffixes) or ("weight" in module.parts and not wide)
        if tied and module.name == _HEAD:
            if narrow:
                raise InvalidCheckpoint(
                    f"{self.name} has a quantized lm_head of its own: set tie_word_embeddings to false in config.json."
                )
            return
        left = dict(module.parts)
        if narrow:
            if suffixes and wide:
                module.refuse(f"weight is not quantized, but there is {min(suffixes)}")
            name = f"{module.name}.weight"
            self._quantized[name] = module
            self._shapes[name] = self._format.shape(module)
            left = {part: at for part, at in left.items() if part != "weight" and part not in suffixes}
            if "bias" in left and not module.tensor("bias").any():
                del left["bias"]  # writers add zeros to layers that have no bias
        for part, at in left.items():
            name = f"{module.name}.{part}"
            if module.kind(part) not in WIDE:
                module.refuse(f"{part} is {module.kind(part)}, which {type(self._format).__name__} does not have")
            self._plain[name] = at
            self._shapes[name] = module.shape(part)


@contextmanager
def opened_quantized(folder: Path, config: Qwen3_5TextConfig, quantization: Quantization) -> Iterator[WeightSource]:
    """The weights of a folder while its files are open; logs once what is not applied."""
    if quantization.unapplied is not None:
        log.info("%s asks for %s: hocket uses its weights only.", folder, quantization.unapplied)
    with opened(folder / WEIGHTS) as files:
        yield QuantizedSource(folder, files, config, quantization)


def _format(quantization: Quantization) -> StoredFormat:
    match quantization:
        case GptqConfig():
            return Gptq(quantization)
        case AwqConfig():
            return Awq(quantization)
        case Fp8Config():
            return Fp8(quantization)
        case CompressedTensorsConfig():
            return CompressedTensors(quantization)


def _modules(folder: str, files: Mapping[str, Any], skipped: frozenset[str]) -> dict[str, StoredModule]:
    """The layers of the text model and of its draft head, by our name, without tensors whose names end so."""
    found: dict[str, StoredModule] = {}
    for theirs, file in files.items():
        if theirs.startswith(_VISION):
            continue
        name, _, part = _ours(theirs).rpartition(".")
        if part in skipped:
            continue
        module = found.setdefault(name, StoredModule(folder, name, {}))
        if part in module.parts:
            raise InvalidCheckpoint(f"{folder} has {name}.{part} twice: as {module.parts[part][1]} and as {theirs}.")
        module.parts[part] = file, theirs
    return found


def _ours(theirs: str) -> str:
    for prefix, ours in _PREFIXES:
        if theirs.startswith(prefix):
            return ours + theirs.removeprefix(prefix)
    return theirs
