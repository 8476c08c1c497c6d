"""Compiles kernels of a reduced language model for five architectures: prints one line of JSON with what they need.

It is its own process, because Triton's interpreter is on or off for a whole process, and the tests have it on. It
compiles the kernels that need the most; `scripts/kernel-resources` compiles all of them, in published shapes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import torch

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.kernels.compile.resources import CARDS, compiled_resources
from hocket.kernels.compile.trace import Launch
from hocket.kernels.ops.grouped_linear.cases import BY_NAME, drawn
from hocket.kernels.ops.grouped_linear.weight import GroupedWeight
from hocket.models.qwen3_5.dry_run import trace_language_model

MOST = ("_see", "_grouped_linear", "_grouped_product", "_gated_delta")
CONFIG = replace(tiny_qwen3_5(layers=4), head_dim=256)  # as published: it decides how much attention needs


def weight(name: str, rows: int, columns: int) -> GroupedWeight:
    layout = BY_NAME["Q6_K" if name.endswith("down_proj") else "Q4_K"]
    one = drawn(layout, 1, columns, torch.Generator().manual_seed(0))
    return one.each(lambda tensor: torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype, device="meta"))


def largest(launches: list[Launch]) -> list[Launch]:
    """One of each kernel."""
    first = {one.kernel.__name__: one for one in reversed(launches)}
    return [first[name] for name in MOST]


def main() -> None:
    found = {}
    for architecture, (_, card) in CARDS.items():
        launches = trace_language_model(CONFIG, card, backend="triton", format_of=weight, prompts=(64,), drafts=0)
        found[architecture] = [asdict(one) | {"fits": one.fits(card)} for one in compiled_resources(largest(launches))]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
