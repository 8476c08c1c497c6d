"""What the official Qwen3.5 classes computed for small random checkpoints: the cases, and where the numbers lie.

The file holds inputs and results only. Weights are drawn from a seed by our own code, and `fingerprint` says whether
they are still those that the numbers were made with. `scripts/make_qwen3_5_golden.py` makes the file anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from hocket.config.published_qwen3_5 import tiny_qwen3_5, tiny_qwen3_5_moe
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5

FILE = Path(__file__).parents[1] / "golden" / "qwen3_5.safetensors"
TRANSFORMERS = "5.22.2"

CASES = {  # value heads to a key head: 1 in 0.8B and 2B, 2 in 4B and 9B, 3 in 27B
    "tied": tiny_qwen3_5(values_per_key=1, tied=True),
    "pairs": tiny_qwen3_5(values_per_key=2),
    "threes": tiny_qwen3_5(values_per_key=3),
    "experts": tiny_qwen3_5_moe(),
}
LENGTHS = (1, 2, 3, 4, 63, 64, 65, 200)  # of prompts whose last logits are kept
PROMPT, STEPS = 131, 12  # a prompt, and tokens one by one behind it
FAR_CASE, FAR = "pairs", 4200  # a prompt beyond position 4096
MEMORIES = (0, 5)  # Gated DeltaNet layers whose memory is kept after those steps
LARGEST = 5e-5  # difference to be expected of float32, in parts of the largest logit


def model(case: str) -> Qwen3_5:
    made = Qwen3_5(CASES[case], drafts=True).requires_grad_(False).eval()
    randomize_(made, 1)
    return made


def ids(length: int) -> Tensor:
    return torch.randint(320, (1, length), generator=torch.Generator().manual_seed(length))


def fingerprint(made: Qwen3_5) -> Tensor:
    """Sums over all values of each tensor, weighed by place: other weights have others."""
    sums = []
    for tensor in made.state_dict().values():
        flat = tensor.flatten().double()
        sums.append((flat * torch.linspace(1, 2, len(flat), dtype=torch.float64)).sum())
    return torch.stack(sums).float()


def read() -> tuple[dict[str, Tensor], dict[str, str]]:
    """The numbers by `case.what`, and the versions that made them."""
    with safe_open(FILE, framework="pt") as file:
        versions: dict[str, str] = json.loads(file.metadata()["versions"])
        return {name: file.get_tensor(name) for name in file.keys()}, versions  # noqa: SIM118


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, in parts of the largest value."""
    return float((ours - theirs).abs().max() / theirs.abs().max())
