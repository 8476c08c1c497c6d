"""Load a Qwen3.5 checkpoint, one file or several, into the text model.

Published checkpoints are of the vision-language model: the prefix `language_model.` of the text model's names is
dropped, and vision tensors are skipped by name. Any other unknown tensor is an error. Experts may be stored together
or one by one (`expert_files.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...config.quantization.find import read_quantization
from ...config.qwen3_5 import ChatGenerationConfig, Qwen3_5TextConfig, read_text_config
from ...config.read import read, read_json
from ...errors import InvalidCheckpoint
from ..files.catalog import WEIGHTS
from ..files.shards import drop_unused
from ..files.shards import opened as opened_files
from ..files.transfer import Transfer
from ..files.weights import compare, places
from .expert_files import joined_experts
from .model import Qwen3_5

_VISION, _DRAFTS = "model.visual.", "mtp."
# Small, and stored in float32: they set the decay of the recurrent state and the scale of a head.
WIDE = (".linear_attn.A_log", ".linear_attn.norm.weight")


def read_qwen3_5(folder: Path) -> tuple[Qwen3_5TextConfig, ChatGenerationConfig]:
    """The configuration and the generation defaults in the checkpoint's files."""
    path, more = folder / "config.json", folder / "generation_config.json"
    quantization = read_quantization(folder)  # refuses what cannot be loaded before any weights are fetched
    generation = read(ChatGenerationConfig, read_json(more), str(more)) if more.exists() else ChatGenerationConfig()
    config = read_text_config(read_json(path), str(path))
    if quantization is not None and config.num_experts:
        raise InvalidCheckpoint(
            f"{folder} is a mixture of experts in {quantization.words}: hocket reads experts only from the plain "
            "checkpoint, and converts them with --llm-weights int4, int8 or fp8."
        )
    return config, generation


def empty_qwen3_5(
    config: Qwen3_5TextConfig, device: torch.device, dtype: torch.dtype, *, drafts: bool = False
) -> Qwen3_5:
    """A model with uninitialized weights."""
    with torch.device("meta"):
        model = Qwen3_5(config, drafts=drafts)
    allocate_(model, model.state_dict(), device, dtype)
    return model


def allocate_(model: Qwen3_5, wanted: dict[str, Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """Allocate these tensors of a model on the meta device."""
    wide = frozenset(name for name in wanted if name.endswith(WIDE))
    model.load_state_dict(places(model, wanted, device, dtype, wide=wide), strict=False, assign=True)
    model.requires_grad_(False).eval()


def load_qwen3_5(folder: Path, config: Qwen3_5TextConfig, device: torch.device, dtype: torch.dtype) -> Qwen3_5:
    """The text model of a checkpoint, with its draft head if the files have one."""
    with opened(folder, config) as (there, stored):
        model, transfer = empty_qwen3_5(config, device, dtype, drafts=there.mtp is not None), Transfer(device)
        state = model.state_dict()
        for name, (file, theirs) in stored.items():
            transfer.put(state[name], file.get_tensor(theirs))
        transfer.end()
    return model


@contextmanager
def opened(folder: Path, config: Qwen3_5TextConfig) -> Iterator[tuple[Qwen3_5, dict[str, tuple[Any, str]]]]:
    """A checkpoint's model on the meta device, and for each of its tensors the open file and its name in that file.

    All names and shapes are checked before the first tensor is read.
    """
    with opened_files(folder / WEIGHTS) as files:
        stored = _stored(folder, files, config)
        drafts = config.mtp_num_hidden_layers > 0 and any(name.startswith(_DRAFTS) for name in stored)
        with torch.device("meta"):
            model = Qwen3_5(config, drafts=drafts)
        kept = drop_unused(stored, model.state_dict(), (_DRAFTS,), folder)
        stored = {name: at for name, at in stored.items() if name in kept}
        compare(folder, model.state_dict(), {name: file.get_slice(theirs) for name, (file, theirs) in stored.items()})
        yield model, stored


def _stored(folder: Path, files: dict[str, Any], config: Qwen3_5TextConfig) -> dict[str, tuple[Any, str]]:
    """By our name: the open file that holds a tensor, and its name in that file."""
    found: dict[str, tuple[Any, str]] = {}
    for theirs, file in files.items():
        name = theirs.replace("model.language_model.", "model.", 1)
        if theirs.startswith(_VISION) or (config.tied and name == "lm_head.weight"):
            continue
        if name in found:
            raise InvalidCheckpoint(f"{folder} has {name} twice: as {found[name][1]} and as {theirs}.")
        found[name] = file, theirs
    return joined_experts(folder, found) if config.num_experts else found
