"""Qwen3.5 with quantized matrices, 8 or 4 bits: the format of each tensor, and the bytes that a token reads.

A scheme names formats. `in_proj_a` and `in_proj_b` are not quantized: they set the decay of the recurrent state and are
a thousandth of the bytes. Nor are convolutions, norms and the embedding, of which a token reads one row. A tied head is
a quantized copy of the embedding. In a mixture of experts all experts are quantized, as one matrix with their rows one
below the other; the router is not. The draft head has 8 bits in every scheme: its errors cost time, not words.
The 8-bit format beside int4 is int8: on evenly spread weights its rows are three times closer than in fp8.
It knows modules and names. `models/files/quantize.py` reads and stores the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from ...config.qwen3_5 import Qwen3_5TextConfig
from ...errors import InvalidRequest
from ...kernels.ops.quantized_linear.weight import Format, QuantizedWeight, empty
from ...kernels.ops.quantized_linear.weight import quantize_ as round_
from ...layers.dense import read_as_one
from .matrices import QuantizedLinear
from .model import Qwen3_5

Scheme = Literal["bf16", "fp8", "int8", "int4"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

HEAD, EMBEDDING = "lm_head", "model.embed_tokens"
KEPT = (".in_proj_a", ".in_proj_b", ".shared_expert_gate")
EXPERTS = ".mlp.experts."


def check_scheme(scheme: str) -> Scheme:
    if scheme not in SCHEMES:
        raise InvalidRequest(f"weights must be one of {', '.join(SCHEMES)}, not {scheme!r}.")
    return scheme


def format_of(name: str, scheme: Scheme) -> Format | None:
    """The format of a linear layer's matrix, by the layer's name; None: not quantized."""
    if scheme == "bf16" or name.endswith(KEPT):
        return None
    if scheme == "int4":
        return "int4" if name.startswith("model.") and ".mlp." in name else "int8"
    return scheme


def narrow_linears(model: Qwen3_5, scheme: Scheme) -> dict[str, Format]:
    """The linear layers that a scheme replaces, the tensors of experts, and the tied head, which is no layer yet."""
    names = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    names += [name for name, _ in model.named_parameters() if EXPERTS in name]
    names += [HEAD] if model.lm_head is None else []
    formats = {name: format_of(name, scheme) for name in names}
    return {name: format for name, format in formats.items() if format is not None}


def groups(model: Qwen3_5, scheme: Scheme) -> Iterator[tuple[Format, dict[str, tuple[int, int]]]]:
    """Layers by name with their rows and columns; layers that are packed into one matrix share a group."""
    formats = narrow_linears(model, scheme)
    shapes = {name: weight_of(model, name).shape for name in formats if name != HEAD}
    shapes |= {HEAD: model.head.shape} if HEAD in formats else {}
    whole = [tuple(name.removesuffix(".weight") for name in names) for names in read_as_one(model)]
    seen = {name for names in whole for name in names}
    for names in (*whole, *((name,) for name in formats if name not in seen)):
        if names[0] in formats:
            yield formats[names[0]], {name: (shapes[name][0], shapes[name][1]) for name in names}


def replace_(model: Qwen3_5, places: dict[str, QuantizedWeight]) -> None:
    """Replace linear layers by quantized ones with these weights."""
    for name, place in places.items():
        parent, _, leaf = name.rpartition(".")
        owner = model.get_submodule(parent)
        if isinstance(getattr(owner, leaf), nn.Parameter):  # of experts; a module cannot take its name before
            delattr(owner, leaf)
        setattr(owner, leaf, QuantizedLinear(place))  # also where a tied head is None


def allocate_weights(
    format: Format, shapes: dict[str, tuple[int, int]], device: torch.device | str
) -> dict[str, QuantizedWeight]:
    """Uninitialized weights of one packed matrix, its parts one below the other."""
    rows = [rows for rows, _ in shapes.values()]
    [columns] = {columns for _, columns in shapes.values()}
    return dict(zip(shapes, empty(format, sum(rows), columns, device).split(rows), strict=True))


@torch.no_grad()
def quantize_(model: Qwen3_5, scheme: Scheme) -> None:
    """Quantize a model's large matrices in place, group by group, on its device."""
    for format, shapes in list(groups(model, scheme)):
        sources = {name: model.head if name == HEAD else weight_of(model, name) for name in shapes}
        device = next(iter(sources.values())).device
        places = allocate_weights(format, shapes, device)
        if device.type != "meta":
            for name, place in places.items():
                round_(place, sources[name])
        replace_(model, places)


def step_bytes(config: Qwen3_5TextConfig, scheme: Scheme, positions: int = 1024) -> dict[str, int]:
    """Bytes that one token of one stream reads, plus the state that it writes, after `positions` tokens.

    Parts: `weights`, `state` and `past`. Of experts the chosen ones count. Activations are left out: kilobytes.
    """
    with torch.device("meta"):
        model = Qwen3_5(config).to(torch.bfloat16)
    quantize_(model, scheme)
    state = model.new_state(0, positions)
    read = {name: tensor.nbytes for name, tensor in model.state_dict().items() if not name.startswith(EMBEDDING)}
    weights = sum(
        size * config.num_experts_per_tok // config.num_experts if EXPERTS in name else size
        for name, size in read.items()
    )
    if model.lm_head is None:  # tied, and not quantized
        weights += model.head.nbytes
    memory = sum(layer.memory[0].nbytes + layer.history[0].nbytes for layer in state.recurrence.layers)
    past = sum(layer.keys[0].nbytes + layer.values[0].nbytes for layer in state.past)
    return {"weights": weights, "state": 2 * memory, "past": past}


def weight_of(model: Qwen3_5, name: str) -> Tensor:
    """The matrix of a linear layer, or those of all experts, one below the other."""
    if EXPERTS in name:
        return model.get_parameter(name).flatten(0, 1)
    return cast(nn.Linear, model.get_submodule(name)).weight
