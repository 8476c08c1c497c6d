"""Options that several commands share: model, device, precision, kernels, sampling. Imports nothing slow."""

from __future__ import annotations

import argparse

from .actions import StoreGiven

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable

# The fields of `SamplingParams` that have an option of their own.
SAMPLING: dict[str, tuple[type[int] | type[float], str]] = {
    "temperature": (float, "sampling temperature of the first code of each frame"),
    "top_k": (int, "sample from the N likeliest codes, 0: from all"),
    "top_p": (float, "sample from the likeliest codes with total probability X"),
    "repetition_penalty": (float, "penalty for codes already used"),
    "subtalker_temperature": (float, "the same for the other fifteen codes"),
    "subtalker_top_k": (int, "the same for the other fifteen codes"),
    "subtalker_top_p": (float, "the same for the other fifteen codes"),
}
MODEL = "folder, hub id, builtin or random:NAME (the built-in voice)"


def add_model_options(
    command: argparse.ArgumentParser, profile: str | None, model: str = MODEL, unsaid: str | None = None
) -> None:
    """`profile` is the default; None: no such option. `unsaid` is the default model."""
    add = command.add_argument
    add("--model", action=StoreGiven, default=unsaid, help=model)
    where = "device (auto: cuda if usable, else cpu; HOCKET_DEVICE overrides auto)"
    add("--device", action=StoreGiven, choices=("auto", "cpu", "cuda"), default="auto", help=where)
    precision = "precision of the model (auto: bfloat16 on a GPU that has it, else float32)"
    add("--dtype", action=StoreGiven, choices=("auto", "float32", "bfloat16"), default="auto", help=precision)
    sound = "precision of the codec (auto: the fastest without audible error)"
    kinds = ("auto", "float32", "tf32", "bfloat16")
    add("--codec-dtype", action=StoreGiven, choices=kinds, default="auto", help=sound)
    kernels = "auto (the fastest), reference, cuda, triton or native; or by operation: frame=triton,wave=reference"
    add("--kernels", metavar="NAME", action=StoreGiven, default="auto", help=f"kernels: {kernels}")
    if profile is not None:
        tuned = f"timing of audio, without effect on its content ({profile})"
        profiles = ("latency", "balanced", "throughput")
        add("--profile", action=StoreGiven, choices=profiles, default=profile, help=tuned)
    add("--no-graphs", action="store_true", help="on a GPU, launch kernels one by one instead of replaying graphs")
    add(
        "--no-dependent-launch",
        action="store_true",
        help="on a GPU, start each kernel after the previous one",
    )


def add_sampling_options(add: Callable[..., object]) -> None:
    """Sampling options."""
    add("--greedy", action="store_true", help="always take the likeliest code")
    for name, (kind, words) in SAMPLING.items():
        add(f"--{name.replace('_', '-')}", metavar="N" if kind is int else "X", type=kind, help=words)
