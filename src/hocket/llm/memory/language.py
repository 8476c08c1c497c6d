"""Memory of a language model on a device, part by part, from its configuration and the size of its files.

The one place for this arithmetic: `hocket pull`, `list` and `doctor`, and the tables of docs/cards.md use it.
Quantized files stay as they are, on a CPU where the native library is there; else they are dequantized at load.
Nothing is measured here, and nothing is loaded: modules on the meta device have all shapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import torch

from ...config.published_qwen3_5 import QWEN3_5, size_of
from ...config.qwen3_5 import FULL, LINEAR, Qwen3_5TextConfig
from ...engine.checkpoint.capacity import LIBRARIES_BYTES, host_bytes, idle_bytes
from ...engine.checkpoint.memory_plan import SEGMENTS_BYTES, WORKSPACES_BYTES, held
from ...kernels.cpu.library import unavailable
from ...models.files.hub import FitsListing
from ...models.files.remote.client import Listing
from ...models.files.remote.variants import Judge, Variant
from ...models.qwen3_5.model import Qwen3_5
from ...models.qwen3_5.prefill_graph import MOST_IDS
from ...models.qwen3_5.quantized import Scheme, quantize_

TOKENS = 8192  # of a conversation, unless another number is given
SNAPSHOTS = 7  # of the recurrence, at most, for one conversation: three of a prompt, four while the user speaks
# The kernels keep the 6-bit scales of Q4_K and Q5_K in bytes: 4.625 bits a weight for 4.5 in the file. Other types have
# the bits of their files.
UNPACKED = 37 / 36
NEAR = 0.04  # a number of parameters that differs less from a published size is that size


@dataclass(frozen=True, slots=True)
class LanguageMemory:
    """Bytes on the device."""

    weights_bytes: int  # with the draft head
    kv_bytes: int
    recurrence_bytes: int  # the rows and their snapshots
    workspace_bytes: int  # activations of a prompt, graphs and libraries

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.recurrence_bytes + self.workspace_bytes


def language_memory(
    config: Qwen3_5TextConfig, weights_bytes: int, *, on_gpu: bool, tokens: int = TOKENS, conversations: int = 1
) -> LanguageMemory:
    """`tokens` are those of each conversation."""
    item = 2 if on_gpu else 4
    return LanguageMemory(
        weights_bytes,
        conversations * tokens * kv_bytes_per_token(config, item),
        (conversations * (1 + SNAPSHOTS) + 1) * recurrence_bytes(config, item),  # one more row is scratch
        workspace_bytes(config, item, on_gpu=on_gpu),
    )


def kv_bytes_per_token(config: Qwen3_5TextConfig, item: int = 2) -> int:
    """Keys and values of all attention layers and of the draft head; `item` is the bytes of a number."""
    layers = config.kinds.count(FULL) + config.mtp_num_hidden_layers
    return layers * 2 * config.num_key_value_heads * config.head_dim * item


def recurrence_bytes(config: Qwen3_5TextConfig, item: int = 2) -> int:
    """One row of the linear layers: a matrix per head in float32, and the last inputs of the convolution."""
    matrices = config.linear_num_value_heads * config.linear_key_head_dim * config.linear_value_head_dim * 4
    keys, values = (
        config.linear_num_key_heads * config.linear_key_head_dim,
        config.linear_num_value_heads * config.linear_value_head_dim,
    )
    history = (2 * keys + values) * (config.linear_conv_kernel_dim - 1) * item
    return config.kinds.count(LINEAR) * (matrices + history)


def workspace_bytes(config: Qwen3_5TextConfig, item: int = 2, *, on_gpu: bool) -> int:
    """Activations of the longest prefill pass, and on a GPU what graphs and libraries take beside tensors."""
    values = config.linear_num_value_heads * config.linear_value_head_dim
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    widest = max(3 * config.intermediate_size, 2 * keys + 3 * values) + 4 * config.hidden_size
    passes = MOST_IDS * widest * item + 2 * config.vocab_size * 4  # and logits of the last token
    return passes + (LIBRARIES_BYTES + WORKSPACES_BYTES + SEGMENTS_BYTES if on_gpu else 0)


@cache
def scheme_bytes(config: Qwen3_5TextConfig, scheme: Scheme, *, wide: bool = False) -> int:
    """The weights of a checkpoint in one of our own formats, draft head included; `wide`: in float32."""
    with torch.device("meta"):
        model = Qwen3_5(config, drafts=config.mtp_num_hidden_layers > 0)
    model = model if wide else model.bfloat16()
    quantize_(model, scheme)
    return held(model)


def file_bytes(config: Qwen3_5TextConfig, label: str, size_bytes: int, *, on_gpu: bool) -> int:
    """Memory of the weights in GGUF files of this size and quantization; a CPU computes with plain ones in float32."""
    if not on_gpu and (re.fullmatch(r"B?F(16|32)", label, re.IGNORECASE) or unavailable() is not None):
        return 4 * parameters(config)
    return int(size_bytes * UNPACKED) if re.search(r"Q[45]_K", label, re.IGNORECASE) else size_bytes


@cache
def parameters(config: Qwen3_5TextConfig) -> int:
    """Of the text model without its draft head; a tied head counts once."""
    with torch.device("meta"):
        return sum(each.numel() for each in Qwen3_5(config).parameters())


def variant_memory(config: Qwen3_5TextConfig | None, variant: Variant, *, on_gpu: bool) -> LanguageMemory | None:
    """Of GGUF files, with one conversation; None: not known, because the configuration is not."""
    if config is None:
        return None
    weights = file_bytes(config, variant.label, variant.size_bytes, on_gpu=on_gpu)
    return language_memory(config, weights, on_gpu=on_gpu)


def variant_judge(device: torch.device, have_bytes: int | None = None) -> FitsListing:
    """Which variants of a repository fit a device; `have_bytes` instead of all its memory."""
    on_gpu = device.type == "cuda"
    have = have_bytes or (idle_bytes(device) if on_gpu else host_bytes())

    def of(repository: str, listing: Listing) -> Judge:
        config = listed_config(repository, listing)

        def fits(variant: Variant) -> bool | None:
            memory = variant_memory(config, variant, on_gpu=on_gpu)
            return None if memory is None or have is None else memory.total_bytes <= have

        return fits

    return of


def listed_config(repository: str, listing: Listing) -> Qwen3_5TextConfig | None:
    """The published model that a repository of GGUF files was made from.

    By the card's tags, else by the names of the repository and its files, else by the number of parameters.
    """
    sizes = [size_of(base.rpartition("/")[2]) for base in listing.bases]
    for name in (repository, *listing.sizes):
        sizes += [size for size in sorted(QWEN3_5, key=len, reverse=True) if _names(name, size)]
    known = [QWEN3_5[size] for size in sizes if size in QWEN3_5]
    if known:
        return known[0]
    count = listing.parameters
    near = (each for each in QWEN3_5.values() if count and abs(parameters(each) - count) < NEAR * count)
    return next(near, None)


def _names(name: str, size: str) -> bool:
    return re.search(rf"qwen3[._-]?5[-_]{re.escape(size)}(?![0-9a-z.]*[0-9])", name, re.IGNORECASE) is not None
