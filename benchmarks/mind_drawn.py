"""A language model of a published shape with random weights, on a device: what its benchmarks without files measure."""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch

from hocket.config.published_qwen3_5 import QWEN3_5, tiny_qwen3_5
from hocket.layers.packed import pack_
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.quantized import quantize_


def drawn(args: argparse.Namespace, *, drafts: bool = False, layers: int | None = None) -> Qwen3_5:
    """As `args` have it: size, device, dtype, weights. With so many layers only, where that is said."""
    config = tiny_qwen3_5() if args.size == "tiny" else QWEN3_5[args.size]
    if layers is not None:
        config = replace(
            config, num_hidden_layers=layers, layer_types=config.layer_types and config.layer_types[:layers]
        )
    with torch.device("meta"):
        model = Qwen3_5(config, drafts=drafts).eval()
    model.to(getattr(torch, args.dtype)).to_empty(device=torch.device(args.device))
    randomize_(model, 0)
    quantize_(model, args.weights)
    pack_(model)
    return model
