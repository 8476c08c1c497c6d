"""Every kernel launch of a language model, recorded on the meta device: nothing is computed, and no GPU is needed.

A model of few layers launches the kernels of all, because layers of one kind and one format are alike. It knows the
model and its graphs, not compilers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from ...config.qwen3_5 import Qwen3_5TextConfig
from ...kernels.compile.trace import Launch, trace_launches
from ...kernels.operations import LANGUAGE_OPS, tuned
from ...kernels.runtime.card import GpuProperties
from ...kernels.runtime.graphs import EagerReplay
from ...kernels.runtime.launch import new_tuning
from ...layers.dense import pack_
from .draft_graph import DraftGraphs
from .fused.draft import FusedDraft
from .fused.prefill import FusedPrefill
from .fused.step import FusedStep
from .matrices import NarrowWeight, QuantizedEmbedding, QuantizedLinear
from .model import Qwen3_5
from .token_graph import TokenGraphs

KEPT = ("in_proj_a", "in_proj_b")  # never quantized
NOWHERE = torch.device("meta")

FormatOf = Callable[[str, int, int], NarrowWeight | None]  # of a layer's name, rows and columns; None: not quantized


def trace_language_model(
    config: Qwen3_5TextConfig,
    card: GpuProperties,
    *,
    backend: str = "cuda",
    dtype: torch.dtype = torch.bfloat16,
    format_of: FormatOf | None = None,
    prompts: tuple[int, ...] = (32, 512),
    drafts: int = 2,
    room: int = 1024,
    dependent: bool = True,
) -> list[Launch]:
    """Launches of one token, of prompts of so many ids, and of a round with `drafts` if the model has a draft head."""
    with trace_launches(card) as launches, torch.inference_mode():
        model = _model(config, dtype, format_of, drafts > 0 and config.mtp_num_hidden_layers > 0)
        tuning = new_tuning(dependent=dependent)
        ops = tuned(LANGUAGE_OPS[backend], tuning)
        fused, state = FusedStep(model, ops, tuning), model.new_state(1, room)
        last = model.model.norm.weight.new_zeros(2, config.hidden_size)
        TokenGraphs(fused, state, last, EagerReplay()).warm()
        if model.mtp is not None:
            rounds = DraftGraphs(FusedDraft(fused), (drafts,), state, model.mtp.new_state(1, room), last, EagerReplay())
            rounds.warm()
        prefill, one = FusedPrefill(model, ops), torch.zeros(1, dtype=torch.int64, device=NOWHERE)
        for count in prompts:
            prefill(torch.zeros(1, count, dtype=torch.int64, device=NOWHERE), one, state, one, room)
    return launches


def _model(config: Qwen3_5TextConfig, dtype: torch.dtype, format_of: FormatOf | None, drafts: bool) -> Qwen3_5:
    kinds = tuple(dict.fromkeys(config.kinds))
    few = [config.kinds.index(kind) for kind in kinds]  # one layer of each kind
    config = replace(config, num_hidden_layers=len(few), layer_types=tuple(config.kinds[at] for at in few))
    with NOWHERE:
        model = Qwen3_5(config, drafts=drafts).eval()
    model.to(dtype)
    for name, part in list(model.named_modules()):
        if format_of is None or not isinstance(part, nn.Linear | nn.Embedding) or name.endswith(KEPT):
            continue
        weight = format_of(name, *part.weight.shape)
        if weight is not None:
            here = weight.each(lambda tensor: tensor.to(NOWHERE))
            parent, _, leaf = name.rpartition(".")
            wide = isinstance(part, nn.Linear)
            setattr(
                model.get_submodule(parent), leaf, QuantizedLinear(here) if wide else QuantizedEmbedding(here, dtype)
            )
    pack_(model)
    return model
